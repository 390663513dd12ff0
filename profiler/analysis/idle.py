"""Idle time per device: its causes, the longest gaps, and busy shares over time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.commands import COMPUTES, MOVES, CommandArrays, times_recorded
from profiler.analysis.context import Inputs, device_axes, shared
from profiler.analysis.host_activity import (
    Doing,
    HostDoings,
    KernelsOfCalls,
    device_gaps,
    dropped_calls,
)
from profiler.analysis.idle_causes import (
    OUTSIDE,
    PARTS,
    UNKNOWN_CAUSE,
    DeviceGaps,
    GapPosition,
    HostDoing,
    RunTimeline,
    WaitCause,
    cause_on,
    launches_of,
)
from profiler.analysis.question import FigureSpec, Table
from profiler.analysis.result import Analysis
from profiler.analysis.table_text import Sentences
from profiler.analysis.timeline import Axis
from profiler.run.columns import (
    DATA_ONLY,
    INT64,
    LAYER,
    NS,
    SHARE,
    STEP,
    STRING,
    Column,
    col,
    empty,
    schema,
)
from profiler.run.intervals import InOrder, Stretches, Times, covered_before
from profiler.run.launches import Busy
from profiler.run.run import Run
from profiler.text import Value
from profiler.trace.events import CATEGORIES

# --- The columns of idle devices.


IDLE: tuple[Column, ...] = (
    col("device", STRING, "a place that executes commands"),
    col(
        "span_ns",
        NS,
        "from its first command or call to the end of the last one, minus the profiler's own work",
        importance=2,
    ),
    col("computing_ns", NS, "union of its commands of category compute or other", importance=8),
    col(
        "waiting_ns",
        NS,
        "span_ns - computing_ns - unrecorded_ns: idle_ns + data_ns + exposed_ns",
        importance=DATA_ONLY,
    ),
    col(
        "idle_ns",
        NS,
        "time in its span in which nothing ran on it: the sum of launch_ns to before_after_ns",
        label="idle in its span",
        importance=16,
    ),
    col(
        "launch_ns",
        NS,
        "idle in its calls because the host launched too late, or had nothing more to launch",
        label="launch-bound",
        hide_if_zero=True,
    ),
    col(
        "unknown_cause_ns",
        NS,
        "idle in its calls for an unknown reason: the launch that would tell was not recorded",
        label="cause not recorded",
        importance=2,
        hide_if_zero=True,
    ),
    col(
        "sync_ns",
        NS,
        "idle because the host launched too late after it had waited for a device; of each gap no "
        "more than it had waited",
        label="sync-bound",
        importance=2,
        hide_if_zero=True,
    ),
    col(
        "queue_ns",
        NS,
        "idle in its calls although work was launched in time: it had not begun",
        importance=2,
        hide_if_zero=True,
    ),
    col(
        "copy_wait_ns",
        NS,
        "waiting for an asynchronous copy of its own, while a command that waits for the copy ran",
        label="waiting for copies",
        hide_if_zero=True,
    ),
    col("other_device_ns", NS, "waiting for another device, which was running", hide_if_zero=True),
    col("host_ns", NS, "between calls", label="between calls", importance=2, hide_if_zero=True),
    col(
        "before_after_ns",
        NS,
        "outside of the end-to-end time",
        label="outside of end to end",
        importance=16,
    ),
    col(
        "host_work_ns",
        NS,
        "part of host_ns in which host work of no call ran",
        label="of it host work",
        importance=3,
    ),
    col(
        "data_ns",
        NS,
        "waiting for data, while one of its transfers ran",
        importance=3,
        hide_if_zero=True,
    ),
    col(
        "collective_ns",
        NS,
        "union of its collectives between ranks, including the wait for the last rank",
        label="collectives",
        importance=4,
        hide_if_zero=True,
    ),
    col(
        "exposed_ns",
        NS,
        "part of collective_ns in which it computed nothing",
        label="of it exposed",
        importance=4,
        hide_if_zero=True,
    ),
    col(
        "unrecorded_ns",
        NS,
        "time in which nothing was recorded although work or the host waited, or which is missing "
        "from the data",
        label="not recorded in its span",
        hide_if_zero=True,
    ),
    col("idle_inside_ns", NS, "part of idle_ns within its calls", importance=DATA_ONLY),
    col(
        "unallocated_ns",
        NS,
        "part of the end-to-end time outside of span_ns",
        label="before and after",
        importance=16,
        hide_if_zero=True,
    ),
    col("idle_of_run_ns", NS, "idle_ns - before_after_ns + unallocated_ns", label="idle"),
    col("idle_share", SHARE, "idle_of_run_ns / end-to-end time", True, label="idle of run"),
    col(
        "transfer_ns",
        NS,
        "union of its dma and copy commands",
        label="transfers",
        importance=8,
        hide_if_zero=True,
    ),
    col(
        "overlapped_ns",
        NS,
        "part of transfer_ns in which it also computed or communicated",
        importance=DATA_ONLY,
        hide_if_zero=True,
    ),
    col(
        "overlap_share",
        SHARE,
        "overlapped_ns / transfer_ns; null without transfers",
        True,
        label="overlapped",
        importance=3,
    ),
    col(
        "long_gaps",
        INT64,
        "gaps with more than 100 µs of idle time within the end-to-end time",
        importance=15,
        hide_if_zero=True,
    ),
    col(
        "long_gap_ns",
        NS,
        "idle time of these gaps",
        label="in these",
        importance=15,
        hide_if_zero=True,
    ),
)
IDLE_SHOWN = (  # in the report, in this order
    "device span_ns computing_ns idle_of_run_ns idle_share launch_ns unknown_cause_ns "
    "sync_ns queue_ns copy_wait_ns other_device_ns host_ns host_work_ns idle_ns before_after_ns "
    "unallocated_ns "
    "collective_ns exposed_ns data_ns unrecorded_ns long_gaps long_gap_ns transfer_ns "
    "overlap_share"
)


# --- The columns of gaps, and of how busy devices were over time.


BUSY_TIMELINE: tuple[Column, ...] = (
    col("device", STRING, "a place that executes commands"),
    col("begin_ns", NS, "begin of an interval, on the run's clock"),
    col("end_ns", NS, "its end"),
    col(
        "busy_share",
        SHARE,
        "share of the interval in which a command of the device ran, of any category except host "
        "and sync",
        label="busy",
    ),
    col(
        "unrecorded_share",
        SHARE,
        "share of the interval in which nothing was recorded although work or the host waited",
        label="not recorded",
    ),
)

GAPS: tuple[Column, ...] = (
    col("device", STRING, "the device that had nothing to run", importance=6),
    col("begin_ns", NS, "when it ran dry, on the run's clock"),
    col("length_ns", NS, "until the next command, minus time outside of the end-to-end time"),
    col("cause", STRING, "cause of most of it", codes=WaitCause),
    col(
        "position",
        STRING,
        "where it lies; kernels are commands of category compute or other, and copies do not "
        "count as kernels",
        codes=GapPosition,
        importance=2,
    ),
    col(
        "call",
        STEP,
        "the call in which most of it lies; between calls the next; null for none",
        True,
        importance=12,
    ),
    col("submodule", STRING, "that of the call", True, importance=1),
    col("step", STEP, "that of the call; null or -1 outside denoise", True),
    col(
        "host_activity",
        LAYER,
        "what the launching thread was executing: the innermost function that covers half of the "
        "gap, else the one that covers most of it; null if unknown",
        True,
        label="the host was in",
    ),
    col(
        "host_activity_kind",
        STRING,
        "kind of host_activity",
        True,
        label="kind",
        codes=HostDoing,
        importance=5,
    ),
    col(
        "host_activity_share",
        SHARE,
        "share of the gap that host_activity covers, including time outside of the end-to-end time",
        True,
        label="covers",
        importance=4,
    ),
    col(
        "repeated",
        LAYER,
        "what host_activity called most often during the gap; null below ten times",
        True,
        label="calling",
        importance=3,
    ),
    col("repeated_times", INT64, "how often", True, label="times", importance=3),
)
GAPS_SHOWN = (  # after the time at which it started
    "length_ns cause position submodule step call device host_activity host_activity_kind "
    "host_activity_share repeated repeated_times"
)


# --- How busy each device was over the run: its busy share in each of a few intervals of equal
# length.


_INTERVALS = 200  # of a device


def busy_timeline(
    devices: Sequence[DeviceGaps], axis: Axis, intervals: int = _INTERVALS
) -> pl.DataFrame:
    """Return that many rows per device (`BUSY_TIMELINE`), in order of device and time, from the
    start of the first pipeline call to the end of the last; fewer if the run is too short."""
    windows = axis.windows
    if not len(windows):
        return pl.DataFrame(schema=schema(BUSY_TIMELINE))
    first, last = int(windows.start[0]), int(windows.end[-1])
    count = min(intervals, last - first)
    edges = first + np.arange(count + 1) * (last - first) // count
    return pl.concat(
        [pl.DataFrame(schema=schema(BUSY_TIMELINE)), *(_course(gaps, edges) for gaps in devices)]
    )


def _course(gaps: DeviceGaps, edges: Times) -> pl.DataFrame:
    """The rows of one device, one for each interval between `edges`."""
    begin, end = edges[:-1], edges[1:]
    inside = np.clip(end, *gaps.span) - np.clip(begin, *gaps.span)
    busy = inside - gaps.dry(begin, end)
    lost = _both(gaps, edges)
    columns = {
        "device": [gaps.device] * len(begin),
        "begin_ns": begin,
        "end_ns": end,
        "busy_share": busy / (end - begin),
        "unrecorded_share": lost / (end - begin),
    }
    return pl.DataFrame(columns, schema=schema(BUSY_TIMELINE))


def _both(gaps: DeviceGaps, edges: Times) -> Times:
    """Return for how long, between each two `edges`, nothing ran and nothing was recorded, int64,
    in ns."""
    lost = gaps.unrecorded
    moments = np.unique(np.concatenate((edges, lost.start, lost.end)))
    begin, end = moments[:-1], moments[1:]
    rows = np.flatnonzero((lost.within(begin, end) > 0) & (begin >= edges[0]) & (end <= edges[-1]))
    found: Times = np.zeros(len(edges) - 1, dtype=np.int64)
    place = np.searchsorted(edges, begin[rows], side="right") - 1
    np.add.at(found, place, gaps.dry(begin[rows], end[rows]))
    return found


# --- The longest gaps of each device: when, in which call, what for, and what the host did in them.


_LONGEST = 20  # of a device
_PARTS = tuple(part for part in PARTS if part != OUTSIDE)
_CAUSES = tuple(WaitCause.UNRECORDED if part == UNKNOWN_CAUSE else part for part in _PARTS)


def gap_table(
    devices: Sequence[DeviceGaps],
    run: Run,
    commands: CommandArrays,
    kernels: Mapping[str, KernelsOfCalls],
) -> pl.DataFrame:
    """Return at most `_LONGEST` rows per device (`GAPS`), longest first; gaps that lie outside of
    the end-to-end time are left out. `commands` and the `kernels` on each device are those of
    `run`, whose calls are sorted."""
    longest = [(gaps, *_longest(gaps)) for gaps in devices]
    times = Stretches.of_all(Stretches(*gaps.ranges(np.sort(rows))) for gaps, rows, _ in longest)
    doings = HostDoings.of(run, commands, times)
    rows = [
        row
        for gaps, places, parts in longest
        for row in _rows(gaps, places, parts, kernels[gaps.device], doings)
    ]
    return pl.DataFrame(rows, schema=schema(GAPS), orient="row")


def _longest(gaps: DeviceGaps) -> tuple[Times, Times]:
    """The longest gaps of a device, and the time of each by cause (`_PARTS`), int64 [parts, k]."""
    rows = gaps.longest(_LONGEST)
    parts = gaps.parts(rows)
    return rows, parts[[PARTS.index(part) for part in _PARTS]]


def _rows(
    gaps: DeviceGaps, places: Times, parts: Times, calls: KernelsOfCalls, doings: HostDoings
) -> Iterator[tuple[object, ...]]:
    names = doings.run.calls.select("call", pl.col("submodule").cast(pl.String), "step")
    ranges = zip(*(column.tolist() for column in gaps.ranges(places)), strict=True)
    for place, (start, end), found in zip(places.tolist(), ranges, parts.T, strict=True):
        position, call = calls.place(start, end)
        doing = doings.during(start, end, gaps.launched_by(place))
        yield (
            gaps.device,
            start,
            int(found.sum()),
            cause_on(gaps.device, _CAUSES[int(found.argmax())]),
            position,
            *((None, None, None) if call < 0 else names.row(call)),
            *((None,) * 5 if doing is None else _activity(doing, end - start)),
        )


def _activity(doing: Doing, length: int) -> tuple[object, ...]:
    return (doing.name, doing.kind, doing.covered_ns / length, doing.repeated, doing.times)


# --- How idle each device was, and why: the sums of its gaps, and how its transfers overlapped.
#
# A device *computes* while a command of category compute or other runs on it, it *communicates*
# while one of category collective does, and *transfers* while one of dma or copy does. With |A| the
# length of the union of A, and C, K and T these commands,
#
#     span = |C| + exposed + data + idle + unrecorded
#     exposed = |C+K| - |C|          data = |C+K+T| - |C+K|
#
# `idle_causes` says what the idle time is put down to; the parts add up to it to the
# nanosecond, and it is the idle time of the table of devices. Of the end-to-end time,
#
#     idle_share = (idle - outside + unused) / end to end
#
# with what lies outside of it, and what of it lies outside of the device's own span. The span is
# without the profiler's own work, for which the program waited. What transfers
# took while the device computed or communicated is overlapped: |T| - data; so is |K| - exposed of
# the collectives, whose time holds the wait for the last rank. Long gaps are those of which over
# 100 µs count as idle.


_COMMUNICATES = np.array([name == "collective" for name in CATEGORIES])
LONG_GAP_NS = 100_000
_IN_TILES = ("launch", UNKNOWN_CAUSE, "sync", "queue", "copy_wait", "other_device")


def idle_table(devices: Sequence[DeviceGaps], commands: CommandArrays) -> pl.DataFrame:
    """One row per device (`IDLE`), by name, of the whole run, whose commands are `commands`."""
    transfers = np.flatnonzero((MOVES | _COMMUNICATES)[commands.category])
    apart = {*np.flatnonzero(np.bincount(commands.device[transfers])).tolist()}
    rows = [_row(gaps, _unions(commands, gaps, apart)) for gaps in devices]
    return pl.DataFrame(rows, schema=schema(IDLE))


def _row(gaps: DeviceGaps, unions: tuple[int, int, int, int]) -> dict[str, object]:
    """The row of a device, whose unions are |C|, |C+K|, |K| and |T|."""
    sums, worked = gaps.totals(), gaps.busy.length
    computed, unmoved, communicated, moved = unions
    exposed, data = unmoved - computed, worked - unmoved
    first, last = gaps.span
    span = last - first - sums["profiler"]
    idle = span - worked - sums["unrecorded"]
    unused = gaps.counted.length - gaps.counted.clipped(first, last).length
    total = gaps.end_to_end_ns
    long = gaps.longer_than(LONG_GAP_NS)
    return {
        "device": gaps.device,
        "span_ns": span,
        "computing_ns": computed,
        "waiting_ns": exposed + data + idle,
        "idle_ns": idle,
        **{f"{name}_ns": sums[name] for name in _IN_TILES},
        "host_ns": sums["host"],
        "host_work_ns": sums["host_work"],
        "before_after_ns": sums[OUTSIDE],
        "data_ns": data,
        "collective_ns": communicated,
        "exposed_ns": exposed,
        "unrecorded_ns": sums["unrecorded"],
        "idle_inside_ns": sums["inside"],
        "unallocated_ns": unused,
        "idle_of_run_ns": idle - sums[OUTSIDE] + unused,
        "idle_share": (idle - sums[OUTSIDE] + unused) / total if total else None,
        "transfer_ns": moved,
        "overlapped_ns": moved - data,
        "overlap_share": (moved - data) / moved if moved else None,
        "long_gaps": len(long),
        "long_gap_ns": int(long.sum()),
    }


def _unions(
    commands: CommandArrays, gaps: DeviceGaps, apart: Set[int]
) -> tuple[int, int, int, int]:
    """The lengths |C|, |C+K|, |K| and |T| on a device; `apart` are devices that do more than
    compute."""
    worked, device = gaps.busy.length, commands.devices.index(gaps.device)
    if device not in apart:
        return worked, worked, 0, 0
    here = commands.device == device
    moves, communicates = here & MOVES[commands.category], here & _COMMUNICATES[commands.category]
    moved, communicated = (_length(commands, which) for which in (moves, communicates))
    computes = here & COMPUTES[commands.category]
    unmoved = _length(commands, computes | communicates) if moved else worked
    computed = _length(commands, computes) if communicated else unmoved
    return computed, unmoved, communicated, moved


def _length(commands: CommandArrays, which: npt.NDArray[np.bool_]) -> int:
    """Length of the union of some commands."""
    if not which.any():
        return 0
    work = InOrder.of(commands.start, commands.end, which)
    return int(covered_before(work, commands.end[which].max(keepdims=True))[0])


# --- The tables of idle devices and of their gaps.


@shared
def device_works(of: Inputs) -> tuple[tuple[DeviceGaps, ...], dict[str, Busy]]:
    """The gaps of a run's devices, and when each worked, by name. The axes, which nothing else
    needs, are released."""
    axes, dropped = device_axes(of), dropped_calls(of.run)
    gaps = device_gaps(of, axes, dropped)
    of.release(device_axes)
    return gaps, {name: axis.busy for name, axis in axes.axes.items()}


def gaps_of(of: Inputs) -> tuple[DeviceGaps, ...]:
    """The gaps of the devices of a run."""
    return device_works(of)[0]


def busy_of(of: Inputs) -> dict[str, Busy]:
    """When each device of the run worked, by name."""
    return device_works(of)[1]


@shared
def kernels_of(of: Inputs) -> dict[str, KernelsOfCalls]:
    """Return when the first and the last kernel of each call ran, by device."""
    return KernelsOfCalls.of(gaps_of(of), of.run, of.everything)


@shared
def timeline_of(of: Inputs) -> RunTimeline:
    """What happened when in the run."""
    launches = launches_of(of.run, of.everything)
    return RunTimeline(of.run, of.everything, of.axis, launches, of.pipelines)


def if_times_recorded(
    columns: tuple[Column, ...], make: Callable[[Inputs], pl.DataFrame]
) -> Callable[[Inputs], pl.DataFrame]:
    """Wrap `make` so that its table is empty for runs whose commands have no times of their own."""

    def made(of: Inputs) -> pl.DataFrame:
        return make(of) if times_recorded(of.run.info) else empty(columns)

    return made


TABLES = (
    Table(
        name="idle",
        row="one device, and what it waited for",
        section="idle",
        columns=IDLE,
        make=if_times_recorded(IDLE, lambda of: idle_table(gaps_of(of), of.everything)),
        title="What devices waited for, whole run",
        about="Rows cover the whole run: there is one for each device that computed or "
        "transferred data, in order of names. [idle.md](idle.md) describes the rules.",
    ),
    Table(
        name="busy_timeline",
        row="one of 200 intervals of the run on a device",
        section="idle",
        columns=BUSY_TIMELINE,
        make=if_times_recorded(BUSY_TIMELINE, lambda of: busy_timeline(gaps_of(of), of.axis)),
        title="Busy share over time",
        about="They have equal length, from the start of the first pipeline call to the end of "
        "the last.",
        figure=FigureSpec(
            "curves", {"series": ("device",), "time": ("begin_ns",), "share": ("busy_share",)}
        ),
    ),
    Table(
        name="gaps",
        row="one of the longest gaps of a device",
        section="idle",
        columns=GAPS,
        make=if_times_recorded(
            GAPS, lambda of: gap_table(gaps_of(of), of.run, of.everything, kernels_of(of))
        ),
        title="Longest gaps, whole run",
        about="The table has the 20 longest gaps of each device within the end-to-end time, "
        "including time that was not recorded, which is not idle time. What the host did is "
        "known from its launches and waits; for imports with Python stacks or operators, it is "
        "also known for the 32 longest gaps over 100 µs of each device. [idle.md](idle.md) has "
        "details.",
        rank=("-length_ns",),
    ),
)


# --- Sentences about waiting devices and of the critical path.


SENTENCES: Sentences = {
    WaitCause: {
        WaitCause.LAUNCH: "launch-bound",
        WaitCause.OPERATORS: "between operators",
        WaitCause.SYNC: "sync-bound",
        WaitCause.QUEUE: "queue-bound",
        WaitCause.HOST: "between calls",
        WaitCause.COPY: "waiting for copies",
        WaitCause.OTHER_DEVICE: "waiting for another device",
        WaitCause.UNRECORDED: "work that was not recorded",
    }
}


# --- What findings say of long gaps, and of the calls in which a device waits longest.


DATA_LOADER = r"DataLoader|utils/data/"  # ranges of torch.profiler, and Python frames
_WORTH_NAMING = 0.25  # of the long gaps: what the host was in meanwhile


def gap_evidence(row: Mapping[str, int]) -> dict[str, int]:
    """The long gaps of a row of the idle table; nothing without any."""
    gaps, length = row["long_gaps"], row["long_gap_ns"]
    return {"gaps": gaps, "gap_ns": length, "mean_gap_ns": length // gaps} if gaps else {}


def in_data_loader(
    analysis: Analysis, row: Mapping[str, Any], causes: Sequence[WaitCause]
) -> tuple[dict[str, int], int]:
    """How long the host was in a DataLoader of PyTorch in the longest gaps of a device with one of
    these causes, and in how many, and how long the gaps are that may be its too and are not among
    these: shorter ones, if it is in the shortest of these. Nothing if the DataLoader is not most of
    them, or long gaps are not most of what the device waited."""
    listed = analysis.gaps.filter(pl.col("device") == row["device"])
    caused = listed.filter(pl.col("cause").is_in(causes))
    inside = caused.filter(pl.col("host_activity").fill_null("").str.contains(DATA_LOADER))
    covered = inside.select(pl.col("length_ns") * pl.col("host_activity_share")).to_series().sum()
    if 2 * covered < caused["length_ns"].sum() or 2 * row["long_gap_ns"] < row["launch_ns"]:
        return {}, 0
    found = {"data_loader_gaps": len(inside), "data_loader_ns": round(covered)} if covered else {}
    also_shorter = found and inside["length_ns"].min() == listed["length_ns"].min()
    known = listed.filter(pl.col("length_ns") > LONG_GAP_NS)["length_ns"].sum()
    return found, max(row["long_gap_ns"] - known, 0) if also_shorter else 0


def data_loader_times(run: Run) -> Stretches:
    """Return when the host was in a DataLoader of PyTorch while a device was idle, as far as that
    was recorded."""
    loads = [one for one in run.info.host_activities if re.search(DATA_LOADER, one.name)]
    begin = np.array([one.start_ns for one in loads], dtype=np.int64)
    length = np.array([one.duration_ns for one in loads], dtype=np.int64)
    return Stretches.union(begin, begin + length)


def host_in(
    analysis: Analysis, row: Mapping[str, Any], but: Sequence[int] = ()
) -> dict[str, Value]:
    """What the host was in for longest in the longest gaps of a device, `but` those that begin
    then, and how long; nothing if that is less than a quarter of all long gaps."""
    idle = (pl.col("cause") != WaitCause.UNRECORDED) & ~pl.col("begin_ns").is_in([*but])
    doing = (
        analysis.gaps.filter(idle & (pl.col("device") == row["device"]))
        .drop_nulls("host_activity")
        .group_by("host_activity")
        .agg(took=(pl.col("length_ns") * pl.col("host_activity_share")).sum())
        .sort("took", "host_activity", descending=True)
    )
    if doing.is_empty() or doing["took"][0] < _WORTH_NAMING * row["long_gap_ns"]:
        return {}
    return {"host_in": str(doing["host_activity"][0]), "host_in_ns": round(doing["took"][0])}


def longest_wait(analysis: Analysis, device: str) -> str | None:
    """The submodule in whose calls the device waited longest."""
    rows = (
        analysis.roofline_roles.filter(pl.col("device") == device)
        .drop_nulls("submodule")
        .group_by("submodule")
        .agg(pl.col("wait_ns").sum())
        .sort("wait_ns", "submodule")
    )
    return str(rows["submodule"][-1]) if len(rows) else None
