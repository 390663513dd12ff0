"""Perfetto's own parser tests, and cases of ours, are read as trace_processor v52 reads them."""

from __future__ import annotations

import json
from collections import Counter as Bag
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.tools.sources import load
from profiler.trace import TraceColumns, read_trace
from profiler.trace.columns import ARG_KINDS, TrackRow
from tests.corpus import PERFETTO_TESTS, needs_corpus
from tests.trace.conformance.cases import FOLDER, TEXTS, encoded

_FILES = [*PERFETTO_TESTS, *sorted(FOLDER.glob("*.pb"))]

cases = pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)


@needs_corpus
def test_corpus() -> None:
    """The corpus is among the cases."""
    assert len(_FILES) > len(TEXTS)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_text(path: Path) -> None:
    """A case's bytes are those of its text."""
    pytest.importorskip("perfetto", reason="Perfetto's definitions are missing: perfetto extra")
    assert path.with_suffix(".pb").read_bytes() == encoded(path)


def _expected(path: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(path.with_suffix(".expected.json").read_text())
    return expected


def _track_name(track: TrackRow) -> str | None:
    """The name of the track itself: those of threads and processes are named apart."""
    if track.kind in {"thread", "process"} or track.name.startswith("track "):
        return None
    return track.name


def _slices(trace: TraceColumns) -> list[dict[str, Any]]:
    rows, slices = [], trace.slices
    for row in range(len(slices)):
        track = trace.tracks[slices.track[row]]
        rows.append(
            {
                "id": row,
                "ts": int(slices.start_ns[row]),
                "dur": int(slices.duration_ns[row]),
                "name": trace.strings[slices.name[row]],
                "category": trace.strings[slices.category[row]],
                "depth": int(slices.depth[row]),
                "parent_id": int(slices.parent[row]),
                "track_name": _track_name(track),
                "thread_name": track.thread or None,
                "tid": track.tid,
                "process_name": track.process or None,
                "pid": track.pid,
            }
        )
    return rows


def _expected_slices(expected: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for given in expected["slices"]:
        row = {key: value for key, value in given.items() if key != "track_id"}
        parent = row["parent_id"] if row["parent_id"] is not None else -1
        texts = {"name": row["name"] or "", "category": row["category"] or ""}
        rows.append(row | texts | {"ts": int(row["ts"]), "parent_id": parent})
    return rows


@cases
def test_slices(path: Path) -> None:
    """Times, names, categories, depth, parents, tracks, threads and processes are equal."""
    assert _slices(read_trace(path)) == _expected_slices(_expected(path))


@cases
def test_slices_share_tracks(path: Path) -> None:
    """Two slices lie on one track where they do for trace_processor, and only there."""
    found = read_trace(path).slices.track.tolist()
    pairs = set(zip(found, [row["track_id"] for row in _expected(path)["slices"]], strict=True))
    assert len(pairs) == len({own for own, _ in pairs}) == len({theirs for _, theirs in pairs})


def _args(trace: TraceColumns) -> set[tuple[int, str, str | None]]:
    args, pointer = trace.args, ARG_KINDS.index("pointer")
    places = np.flatnonzero(args.kind == pointer).tolist()
    pointers = {(int(args.slice[at]), trace.strings[args.key[at]]) for at in places}
    shown = set()
    for row in range(len(trace.slices)):
        for key, value in trace.args_of(row).items():
            text = hex(value) if (row, key) in pointers else _shown(value)
            shown.add((row, key, text))
    return shown


def _shown(value: Any) -> str | None:
    """A value as SQL shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


@cases
def test_args(path: Path) -> None:
    """Every argument stands under trace_processor's key, with its value."""
    trace = read_trace(path)
    expected = {(row["slice_id"], row["key"], row["value"]) for row in _expected(path)["args"]}
    assert _args(trace) == expected


@cases
def test_flows(path: Path) -> None:
    """The same slices are connected, in the same direction."""
    expected = [[row["slice_out"], row["slice_in"]] for row in _expected(path)["flows"]]
    assert sorted(read_trace(path).flows.tolist()) == sorted(expected)


@cases
def test_counters(path: Path) -> None:
    """Samples have the same times, absolute values and tracks."""
    trace = read_trace(path)
    names = [_track_name(trace.tracks[track]) for track in trace.counters.track]
    times, values = trace.counters.time_ns.tolist(), trace.counters.value.tolist()
    rows = _expected(path)["counters"]
    expected = Bag((row["ts"], float(row["value"]), row["track_name"]) for row in rows)
    assert Bag(zip(times, values, names, strict=True)) == expected


@cases
def test_load(path: Path) -> None:
    """`profiler.load` makes every slice a command, and drops nothing."""
    commands = load(path).commands
    rows = _expected_slices(_expected(path))
    assert commands["start_ns"].to_list() == [row["ts"] for row in rows]
    assert commands["duration_ns"].to_list() == [row["dur"] for row in rows]
    assert commands["layer"].cast(str).to_list() == [row["name"] for row in rows]
    named = [row["track_name"] or row["thread_name"] for row in rows]
    found = commands["track"].cast(str).to_list()
    assert all(own == theirs for own, theirs in zip(found, named, strict=True) if theirs)
