"""How far replays are those of captured graphs, and what comparing them may take."""

from __future__ import annotations

import random
from difflib import SequenceMatcher

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.importers import import_trace
from profiler.importers.kineto import cuda_graphs
from profiler.importers.kineto.cuda_graphs import Alignments, Sequences
from profiler.tools.sources import load
from tests.examples import examples

from .test_graphs import NAMES, captured, graphs_fact, imported, kernels, replayed

_LENGTH = 500
_GRAPHS = 100


def graph(names, *, named=True):
    """A graph of kernels of these names and of copies."""
    kinds = tuple("copy" if name == "copy" else "kernel" for name in names)
    return Sequences(kinds, tuple(names) if named else kinds, named)


def aligned(replay, capture):
    """By definition: places that are the same, else as difflib matches them; without names as many
    of the same kinds."""
    if not capture.named and len(capture.kinds) != len(replay.kinds):
        return 0
    ours, theirs = (one.names if capture.named else one.kinds for one in (replay, capture))
    same = sum(one == other for one, other in zip(ours, theirs, strict=False))
    if not capture.named or same >= 0.98 * len(ours):
        return same
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)


_LIST = st.lists(st.sampled_from(["a", "b", "copy"]), min_size=1, max_size=12)
_CAPTURE = st.tuples(_LIST, st.booleans())


@settings(max_examples=examples(200), deadline=None)
@given(_LIST, st.lists(_CAPTURE, max_size=5))
def test_no_capture_has_more_of_a_replay_than_the_one_that_is_found(names, given_captures):
    """Though most captures are not compared: what is found has as many of its kernels in order as
    any of them, each at its own place."""
    replay = graph(names)
    captures = [graph(theirs, named=named) for theirs, named in given_captures]
    fit = Alignments(captures, len(names)).fit(replay)
    most = max((aligned(replay, one) for one in captures), default=0)
    assert fit.compared
    assert fit.share == most / len(names)
    if not fit.fits:
        return
    capture = captures[fit.captures[0]]
    assert all(captures[number] == capture for number in fit.captures)
    here = np.flatnonzero(fit.places >= 0)
    there = fit.places[here]
    assert (np.diff(there) > 0).all()
    theirs = capture.names if capture.named else capture.kinds
    ours = replay.names if capture.named else replay.kinds
    assert [ours[place] for place in here] == [theirs[place] for place in there]


def test_comparing_has_an_end():
    """A hundred replays and a hundred captures of two kernels in any order, each pair of which has
    hundreds of runs to be found: hours of comparing are left out, and said; what is the same is
    still found."""
    drawn = random.Random(1)
    names = [tuple(drawn.choices("ab", k=_LENGTH)) for _ in range(2 * _GRAPHS)]
    captures = [graph(one) for one in names[:_GRAPHS]]
    alignments = Alignments(captures, _GRAPHS * _LENGTH)
    fits = [alignments.fit(graph(one)) for one in names[_GRAPHS:]]
    assert not any(fit.fits for fit in fits)
    assert sum(fit.compared for fit in fits) < 10
    assert alignments.fit(captures[50]).captures == [50]


def test_what_was_not_compared_is_said(tmp_path, monkeypatch):
    """A replay whose capture holds copies that it lacks, when no step is left: the report says it,
    and a capture that was named is not refused. One that is the same needs no step."""
    monkeypatch.setattr(cuda_graphs, "_STEPS", 0)
    monkeypatch.setattr(cuda_graphs, "_LEAST_STEPS", 0)
    run = imported(tmp_path, replayed(), [captured(extra=(3, 40))])
    note = str(graphs_fact(run).note)
    assert (run.info.recording.graphs.joined, run.info.recording.graphs.uncompared) == (0, 1)
    assert "not compared with all captures, which would take too long: 1" in note
    capture = tmp_path / "capture_traces" / "0.json"
    given_one = import_trace(
        tmp_path / "trace.json", tmp_path / "named", options={"capture": str(capture)}
    )
    assert load(given_one).info.recording.graphs.uncompared == 1
    (tmp_path / "same").mkdir()
    run = imported(tmp_path / "same", replayed(), [captured()])
    assert (len(kernels(run)), run.info.recording.graphs.joined) == (len(NAMES), len(NAMES))
    assert run.info.recording.graphs.uncompared == 0
