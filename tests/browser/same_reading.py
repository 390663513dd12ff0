"""What trace_processor should answer of a trace, from our own reading of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import profiler
from profiler.trace import TraceColumns, read_trace
from profiler.trace.events import PIPELINE_TRACK
from tests.browser.perfetto_ui import PerfettoUi

__all__ = ["COMPLAINTS", "COUNTERS", "FLOWS", "SLICES", "assert_same", "bag"]

COMPLAINTS = """
    select name, value from stats where severity in ('error', 'data_loss') and value > 0"""
SLICES = """
    select s.ts, s.dur, s.name, s.category, s.depth, t.name as track, d.name as device,
           p.name as parent
    from slice s join track t on s.track_id = t.id left join track d on t.parent_id = d.id
    left join slice p on s.parent_id = p.id"""
COUNTERS = """
    select c.ts, c.value, t.name, u.unit, d.name as device
    from counter c join track t on c.track_id = t.id join counter_track u on u.id = t.id
    left join track d on t.parent_id = d.id"""
FLOWS = """
    select a.name as source, a.ts as source_ts, b.name as target, b.ts as target_ts
    from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"""


def bag(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows)


def _our_slices(trace: TraceColumns) -> list[dict[str, Any]]:
    """Every slice as trace_processor should have it, from our own reading."""
    return [*_our_commands(trace), *_our_calls(trace), *_our_spans(trace)]


def _our_commands(trace: TraceColumns) -> list[dict[str, Any]]:
    slices, strings = trace.slices, trace.strings
    stacks: dict[int, list[str]] = {}
    rows = []
    for row in range(len(slices)):
        track = trace.tracks[slices.track[row]]
        stack = stacks.setdefault(int(slices.track[row]), [])
        del stack[slices.depth[row] :]
        name = strings[slices.name[row]]
        rows.append(
            {
                "ts": int(slices.start_ns[row]),
                "dur": int(slices.duration_ns[row]),
                "name": name,
                "category": strings[slices.category[row]],
                "depth": int(slices.depth[row]),
                "track": track.name,
                "device": trace.tracks[track.parent].name,
                "parent": stack[-1] if stack else None,
            }
        )
        stack.append(name)
    return rows


def _our_calls(trace: TraceColumns) -> list[dict[str, Any]]:
    return [
        {
            "ts": call.start_ns,
            "dur": call.duration_ns,
            "name": call.submodule,
            "category": "other",
            "depth": 0,
            "track": "Calls",
            "device": call.device,
            "parent": None,
        }
        for call in trace.calls
    ]


def _our_spans(trace: TraceColumns) -> list[dict[str, Any]]:
    rows = []
    stack: list[Any] = []
    for span in trace.spans:
        while stack and stack[-1].start_ns + stack[-1].duration_ns <= span.start_ns:
            stack.pop()
        rows.append(
            {
                "ts": span.start_ns,
                "dur": span.duration_ns,
                "name": span.name,
                "category": "other",
                "depth": len(stack),
                "track": PIPELINE_TRACK,
                "device": "cpu:0",
                "parent": stack[-1].name if stack else None,
            }
        )
        stack.append(span)
    return rows


def _our_counters(path: Path) -> list[dict[str, Any]]:
    names = {"time_ns": "ts", "value": "value", "name": "name", "unit": "unit", "device": "device"}
    return profiler.load(path).counters.rename(names).select(*names.values()).to_dicts()


def _our_flows(path: Path) -> list[dict[str, Any]]:
    """Flows from our tables."""
    run = profiler.load(path)
    starts, layers = run.commands["start_ns"], run.commands["layer"]
    return [
        {
            "source": layers[source],
            "source_ts": starts[source],
            "target": layers[target],
            "target_ts": starts[target],
        }
        for source, target in run.flows.iter_rows()
    ]


def _undirected(rows: list[dict[str, Any]]) -> Counter[Any]:
    """Perfetto directs a flow from what begins first, also into a command that waits."""
    return Counter(
        frozenset(((row["source"], row["source_ts"]), (row["target"], row["target_ts"])))
        for row in rows
    )


def assert_same(perfetto: PerfettoUi, path: Path) -> None:
    """trace_processor has the slices, counters and flows of our own reading, and no complaint."""
    trace = read_trace(path)
    assert perfetto.query(path, COMPLAINTS) == []
    assert bag(perfetto.query(path, SLICES)) == bag(_our_slices(trace))
    assert bag(perfetto.query(path, COUNTERS)) == bag(_our_counters(path))
    assert _undirected(perfetto.query(path, FLOWS)) == _undirected(_our_flows(path))
