"""The devices on the page's first screen: what ran where and when, by submodule and step.

Made of the timeline's lanes: the calls of each device, and what it executed before, between and
after them; of devices without calls the stretches of calls whose commands they executed. Many short
calls in a row are one rectangle, so that the first screen is as small for a million commands as for
a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.report.html.table_json import described
from profiler.report.html.timeline import Timeline
from profiler.report.html.timeline_spans import LANES, SpanLane
from profiler.report.pack import Table
from profiler.report.views import columns_of, renamed
from profiler.run.columns import CALLS
from profiler.trace.events import CATEGORIES

__all__ = ["strip_json"]

_MOST = 1500  # rectangles of a device that are drawn one by one
_APART = 1000  # of more, those closer than this part of the run are one
_HOST = CATEGORIES.index("host")
_Ints = npt.NDArray[np.int64]
_COLUMNS = (
    "device",
    "submodule",
    "stage",
    renamed(CALLS, "step", kind="step"),
    renamed(CALLS, "start_ns", kind="instant"),
    "duration_ns",
)


def strip_json(timeline: Timeline) -> dict[str, Any]:
    """The rectangles of each device, the steps above them, the `span` in which all of them lie, and
    the columns of their table; times are ns from the run's begin, `submodule` and `stage` are
    indices of the timeline's strings."""
    devices, steps = [*_devices(timeline)], _steps(timeline)
    drawn: list[Mapping[str, Any]] = [*(found for _, found in devices), steps]
    ends = (np.add(one["start"], one["duration"]).max() for one in drawn if len(one["start"]))
    return {
        "span": int(max(ends, default=1)),
        "devices": [
            {"device": device} | {name: values.tolist() for name, values in found.items()}
            for device, found in devices
        ],
        "steps": steps,
        "columns": described(columns_of(_COLUMNS, CALLS)),
    }


def _devices(timeline: Timeline) -> Iterator[tuple[str, dict[str, _Ints]]]:
    span = max(int(timeline.document["span"]), 1)
    lanes: dict[str, list[dict[str, Any]]] = {}
    for lane in timeline.document["lanes"]:
        if lane["device"] and lane["kind"] in ("calls", "commands"):
            lanes.setdefault(lane["device"], []).append(lane)
    for device, found in lanes.items():
        calls = next((lane for lane in found if lane["kind"] == "calls"), None)
        work = _work(timeline, [lane for lane in found if lane["kind"] == "commands"])
        if calls:
            place = slice(calls["first"], calls["first"] + calls["count"])
            rows = _calls(timeline.tables["calls"], place)
            rows = _with_rest(rows, *_outside(timeline, work, rows, span // _APART))
        else:
            rows = _stretches(timeline, work)
        if len(rows["start"]):
            yield device, _merged(rows, span // _APART)


def _calls(calls: Table, rows: slice) -> dict[str, _Ints]:
    names = ("start", "duration", "submodule", "stage", "step")
    return {name: calls[name][rows].astype(np.int64) for name in names}


def _work(timeline: Timeline, lanes: list[dict[str, Any]]) -> _Ints:
    """Rows of the commands on these lanes, without the host's."""
    rows = [np.arange(one["first"], one["first"] + one["count"]) for one in lanes]
    found = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
    host = {place for lane in lanes for place in lane["host"]} | {_HOST}
    kept: _Ints = found[~np.isin(timeline.tables["commands"]["category"][found], [*host])]
    return kept


def _outside(
    timeline: Timeline, work: _Ints, calls: Mapping[str, _Ints], apart: int
) -> tuple[_Ints, _Ints]:
    """Begins and lengths of stretches before, between and after a device's calls in which it worked
    for none of them, such as on what had been launched before the recording. Work less than `apart`
    after other is of one stretch with it, and what is shorter than that is left out."""
    commands = timeline.tables["commands"]
    rows = work[commands["call"][work] < 0]
    rows = rows[np.argsort(commands["start"][rows], kind="stable")]
    start = commands["start"][rows].astype(np.int64)
    end = start + np.maximum(commands["duration"][rows], 0).astype(np.int64)
    order = np.argsort(calls["start"], kind="stable")
    begins = np.concatenate((calls["start"][order], [np.iinfo(np.int64).max]))
    ends = np.maximum.accumulate((calls["start"] + np.maximum(calls["duration"], 0))[order])
    after = np.searchsorted(begins[:-1], start, side="right")  # the first call behind it
    start = np.maximum(start, np.concatenate(([0], ends))[after])
    end = np.minimum(end, begins[after])
    free = end > start
    start, end, after = start[free], end[free], after[free]
    if not len(start):
        return start, start
    apart_from = np.diff(after, prepend=-1) != 0
    apart_from[1:] |= start[1:] - np.maximum.accumulate(end)[:-1] > apart
    heads = np.flatnonzero(apart_from)
    length = np.maximum.reduceat(end, heads) - start[heads]
    long = length > apart
    return start[heads][long], length[long]


def _with_rest(rows: Mapping[str, _Ints], start: _Ints, length: _Ints) -> dict[str, _Ints]:
    """The calls of a device, and among them by time what belongs to none."""
    none = np.full(len(start), -1, dtype=np.int64)
    rest = {"start": start, "duration": length}
    found = {name: np.concatenate((of, rest.get(name, none))) for name, of in rows.items()}
    if not len(start):
        return found
    order = np.argsort(found["start"], kind="stable")
    return {name: values[order] for name, values in found.items()}


def _stretches(timeline: Timeline, rows: _Ints) -> dict[str, _Ints]:
    """From the first to the last command of each call on a device."""
    commands, calls = timeline.tables["commands"], timeline.tables["calls"]
    call = commands["call"][rows].astype(np.int64)
    order = np.lexsort((commands["start"][rows], call))
    rows, call = rows[order], call[order]
    if not len(rows):
        return dict.fromkeys(("start", "duration", "submodule", "stage", "step"), rows)
    heads = np.flatnonzero(np.diff(call, prepend=call[0] - 1))
    start = commands["start"][rows].astype(np.int64)
    end = start + np.maximum(commands["duration"][rows], 0).astype(np.int64)
    begin, known = start[heads], call[heads] >= 0
    found: dict[str, _Ints] = {"start": begin, "duration": np.maximum.reduceat(end, heads) - begin}
    for name in ("submodule", "stage", "step"):
        values = np.full(len(heads), -1, dtype=np.int64)
        values[known] = calls[name][call[heads][known]]
        found[name] = values
    by_time = np.argsort(found["start"], kind="stable")
    return {name: values[by_time] for name, values in found.items()}


def _merged(rows: Mapping[str, _Ints], apart: int) -> dict[str, _Ints]:
    """Rectangles of one submodule and stage that follow each other closely as one, where there are
    many; of several steps -1."""
    if len(rows["start"]) <= _MOST:
        return dict(rows)
    start, end = rows["start"], rows["start"] + np.maximum(rows["duration"], 0)
    reached = np.maximum.accumulate(end)
    same = (rows["submodule"][1:] == rows["submodule"][:-1]) & (
        rows["stage"][1:] == rows["stage"][:-1]
    )
    same &= start[1:] - reached[:-1] <= apart
    heads = np.flatnonzero(np.concatenate(([True], ~same)))
    low, high = (of.reduceat(rows["step"], heads) for of in (np.minimum, np.maximum))
    return {
        "start": start[heads],
        "duration": np.maximum.reduceat(end, heads) - start[heads],
        "submodule": rows["submodule"][heads],
        "stage": rows["stage"][heads],
        "step": np.where(low == high, low, -1),
    }


def _steps(timeline: Timeline) -> dict[str, list[int]]:
    """Begin, length and number of each step, as the timeline's lane of steps has them."""
    spans = timeline.tables["spans"]
    lane = next(
        (
            lane
            for lane in timeline.document["lanes"]
            if lane["kind"] == "spans" and lane["track"] == LANES[SpanLane.STEPS]
        ),
        None,
    )
    rows = slice(lane["first"], lane["first"] + lane["count"]) if lane else slice(0)
    return {name: spans[name][rows].tolist() for name in ("start", "duration", "step")}
