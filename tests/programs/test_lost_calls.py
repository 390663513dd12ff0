"""What ends as it should is not reported as missing, and each process names its bundle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.capture.switched_on import CALLS_ONLY, drops, labels, whole

HERE = Path(__file__).parent


def test_workers_that_a_pool_ends(scripts):
    """Leaving the pool sends SIGTERM to workers that wait: their six calls and the parent's one
    are all there, nothing is a drop, and stderr names every bundle."""
    ended = scripts.run((HERE / "pool_workers.py").read_text(encoding="utf-8"))
    assert ended.code == 0
    counts = sorted(len(labels(bundle)) for bundle in ended.bundles)
    assert counts in ([1, 3, 3], [1, 6])  # one worker may take all
    assert [drops(bundle) for bundle in ended.bundles] == [[]] * len(ended.bundles)
    named = re.findall(r"the run is in (.+)", ended.err)
    assert sorted(map(Path, named)) == ended.bundles


@pytest.mark.parametrize("ops", ["all", "none"])
def test_a_run_that_is_refused(scripts, ops):
    """The script catches what the runtime raises: two calls returned, and nothing is a drop."""
    program = (HERE / "refused_run.py").read_text(encoding="utf-8")
    plain = scripts.run(program, RBLN_PROFILER=None)
    ours = scripts.run(program, RBLN_PROFILER_CONFIG=f'{{"ops": "{ops}"}}')
    assert (ours.code, ours.out) == (0, plain.out)
    assert len(labels(ours.bundle)) == 2
    assert drops(ours.bundle) == []


@pytest.mark.torch
@pytest.mark.parametrize(("ends_by", "lost"), [("another", []), ("its own", ["untraced_call"])])
def test_a_run_that_ends_by_an_exception(scripts, ends_by, lost):
    """Of the calls that failed, only the one whose exception ended the run is a drop, also if that
    exception was raised from it."""
    pytest.importorskip("torch", reason="needs the torch extra")
    program = (HERE / "caught_errors.py").read_text(encoding="utf-8")
    ended = scripts.run(program, ends_by, **CALLS_ONLY)
    assert (ended.code, ended.out) == (1, "RuntimeError\nRuntimeError\n")
    assert len(labels(ended.bundle)) == 2
    found = whole(ended.bundle).info.drops
    assert [(drop.kind, drop.count) for drop in found] == [
        *((kind, 1) for kind in lost),
        ("aborted_run", 1),
    ]
