"""ONNX Runtime's profiles read in blocks, against json.loads of each line."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler import ort_profiles
from profiler.errors import InputError
from profiler.ort_profiles import Unread, read_profile
from tests.corpus import CORPUS, needs_corpus
from tests.examples import examples

SUFFIX = "_kernel_time"
_NAMES = st.sampled_from(["a", "b", "/unet/MatMul", "ä", "", "fence"])
_SIZES = st.sampled_from(["0", "64", "-1", "x", "9" * 30])
_DIMS = st.lists(st.dictionaries(st.sampled_from(["float", "int64"]), st.just([2, 3])), max_size=2)
_ARGS = st.fixed_dictionaries(
    {"op_name": _NAMES, "provider": _NAMES},
    optional={
        **dict.fromkeys(("parameter_size", "activation_size", "output_size"), _SIZES),
        "mem_bytes_in_use": _SIZES,
        "input_type_shape": _DIMS,
        "thread_scheduling_stats": st.just({"main_thread": {"Run": 0}}),
    },
)
_DAMAGE = st.sampled_from(
    ["{", '{"cat": "Node"', '{"name": "a"b"}', "\ufffd", "[1]", '{"ts": "x"}']
)


@st.composite
def profiles(draw):
    """The lines of a profile: runs of a few nodes, one after the other, and lines that are none."""
    now, found = 0, []
    for _ in range(draw(st.integers(0, 4))):
        begin = now
        for _ in range(draw(st.integers(0, 5))):
            if draw(st.integers(0, 9)) == 0:
                found.append(draw(_DAMAGE))
            length = draw(st.integers(0, 50))
            name = draw(_NAMES) + draw(st.sampled_from([SUFFIX, SUFFIX, "_fence_before"]))
            node = {"cat": "Node", "tid": 1, "ts": now, "dur": length, "name": name}
            found.append(json.dumps(node | {"args": draw(_ARGS)}))
            now += length
        run = {"cat": "Session", "tid": 1, "ts": begin, "dur": now - begin, "name": "model_run"}
        found.append(json.dumps(run | {"args": {}}))
        now += 10  # beyond what times are cut by
    return found


def integer(text):
    return int(text) if text.isdigit() and len(text) < 19 else -1


def dims(entries):
    return " ".join(f"{kind}[2,3]" for entry in entries for kind in entry)


def expected(texts):
    """The runs with their nodes, and how many lines are no events, line by line."""
    runs, nodes, damaged = [], [], 0
    for text in texts:
        event = None
        with suppress(ValueError):
            event = json.loads(text)
        if not isinstance(event, dict) or "name" not in event:
            damaged += 1
        elif event["name"] == "model_run":
            runs.append((1000 * event["ts"], 1000 * event["dur"], nodes))
            nodes = []
        elif event["name"].endswith(SUFFIX):
            nodes.append(_node(event, event["args"]))
    return runs, damaged


def _node(event, args):
    read = [integer(args.get(f"{of}_size", "")) for of in ("parameter", "activation")]
    shapes = f"{dims(args.get('input_type_shape', []))} -> "
    return (
        event["name"].removesuffix(SUFFIX),
        *(args["op_name"], args["provider"], shapes),
        *(1000 * event["ts"], 1000 * event["dur"]),
        sum(max(one, 0) for one in read) if max(read) >= 0 else -1,
        integer(args.get("output_size", "")),
        integer(args.get("mem_bytes_in_use", "")),
    )


def found(path):
    """The same, as it is read here."""
    unread = Unread()
    runs = [
        (run.start_ns, run.duration_ns, nodes_of(run.nodes))
        for run in read_profile(path, unread)
        if run.duration_ns >= 0
    ]
    return runs, unread.lines


def nodes_of(nodes):
    times = (nodes.start_ns, nodes.duration_ns, nodes.arena_bytes)
    each = zip(nodes.each(), *(column.tolist() for column in times), strict=True)
    return [
        (
            *(kind.name, kind.op_type, kind.provider, kind.shapes),
            *(start, length, kind.bytes_read, kind.bytes_written, arena),
        )
        for kind, start, length, arena in each
    ]


@settings(max_examples=examples(150), deadline=None)
@given(texts=profiles(), piece=st.sampled_from([1, 7, 100, 1 << 18]), packed=st.booleans())
def test_blocks_are_read_as_their_lines(tmp_path_factory, texts, piece, packed):
    """Whatever a block holds and wherever it is cut, packed or not: the nodes, times, sizes and
    shapes of each run are those of the lines one by one, and so is what is no event."""
    path = tmp_path_factory.mktemp("profile") / "x.json"
    data = ("[\n" + ",\n".join(texts) + "\n]\n").encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ort_profiles, "_PIECE", piece)
        assert found(path) == expected(texts)


@needs_corpus
def test_a_real_profile_is_read_as_its_lines(tmp_path):
    """The shared profile, whole and in pieces of a hundred bytes."""
    path = CORPUS / "ort" / "ucb_resnet_inference_gemmini.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))
    truth = expected([json.dumps(event) for event in events])
    assert found(path) == truth
    assert len(truth[0][0][2]) == 77


def test_the_line_that_is_no_event_is_named(tmp_path, monkeypatch):
    """Where nothing may be left out: by its number in the file, after the runs ahead of it."""
    monkeypatch.setattr(ort_profiles, "_PIECE", 64)
    path = tmp_path / "x.json"
    run = json.dumps({"cat": "Session", "name": "model_run", "ts": 1, "dur": 5, "args": {}})
    path.write_text(f"[\n{run},\n{run},\nnonsense\n{run}\n]\n")
    runs = read_profile(path)
    assert [next(runs).duration_ns, next(runs).duration_ns] == [5000, 5000]
    with pytest.raises(InputError, match="line 4 is no profile event"):
        next(runs)
