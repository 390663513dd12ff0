"""Submodules, their branches and calls: durations, device time and overhead ratios.

Device time is the union of the calls' work, so concurrent calls do not count twice; the times of
several devices add up, as elapsed times do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import HOST, SYNC, CommandArrays, are_single
from profiler.analysis.context import Inputs, shared
from profiler.analysis.end_to_end import accounting
from profiler.analysis.host_activity import before_first_kernels
from profiler.analysis.idle import gaps_of, kernels_of
from profiler.analysis.operators import folds
from profiler.analysis.question import Table
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    FLOAT64,
    INT64,
    NS,
    SHARE,
    STEP,
    STRING,
    Adds,
    Column,
    col,
    column_of,
    schema,
    typed,
)
from profiler.run.device_timeline import TILES
from profiler.run.intervals import Codes, Times, batches, counts, group_heads, positions, union_by
from profiler.text import Said, said
from profiler.trace import events
from profiler.trace.manifest_fields import OverheadRatio, Submodule

# --- The columns of submodules, their branches and their calls.


_OF_BRANCH = ", ".join(events.BRANCHES)


def _sum(name: str, **changes: Any) -> Column:
    """A column of tiles, summed over calls."""
    whole = column_of(TILES, name).meaning
    return column_of(TILES, name, meaning=f"sum over its calls: {whole}", **changes)


SPAN = col(
    "span_ns",
    NS,
    "from the start of its first work, or its own, to the end of its last, also beneath other "
    "calls; its host range if nothing is known of its work",
    label="begin to end",
    importance=16,
)

SUBMODULES: tuple[Column, ...] = (
    col("submodule", STRING, "named part of the pipeline, in order of its first call", key=True),
    col("stage", STRING, "stages that call it, joined with commas", importance=15),
    col("device", STRING, "devices that its calls are placed on, joined with commas", importance=1),
    col("calls", INT64, "its calls"),
    col("traced_calls", INT64, "calls whose commands were recorded", importance=DATA_ONLY),
    col("elapsed_ns", NS, "sum of its calls' elapsed_ns, on the device's axis"),
    replace(SPAN, meaning="sum of its calls' span_ns"),
    col("first_ns", NS, "elapsed_ns of its first call", label="first call"),
    col("min_ns", NS, "shortest steady call", label="shortest steady", importance=12),
    col(
        "median_ns",
        NS,
        "median of the steady calls, of all if fewer than two are: of their elapsed_ns, as the "
        "shortest and the longest; of their span_ns, if half of them or more were hidden beneath "
        "other calls",
    ),
    col("max_ns", NS, "longest steady call", label="longest steady", importance=2),
    col("share", SHARE, "union of its calls / end-to-end time", True),
    col("commands", INT64, "commands of its calls", importance=4, adds=Adds("commands")),
    col("operators", INT64, "different operators that devices ran in its calls", importance=15),
    column_of(
        TILES,
        "busy_ns",
        meaning="device time: union of its calls' kernels and copies; the sum of several devices",
        importance=3,
    ),
    _sum("idle_inside_ns", importance=16),
    _sum("launch_bound_ns", importance=4),
    column_of(TILES, "queue_lead_ns", meaning="median queue_lead_ns of its calls"),
    _sum("hidden_ns"),
    _sum("unrecorded_ns"),
    col(
        "duration_ns",
        NS,
        "sum of its calls' ranges on the host, in which their callers waited",
        label="host range",
        importance=16,
    ),
    Column(
        "overhead_ratio",
        FLOAT64,
        "ratio",
        "untraced / traced median of steady calls; 1 within noise; null with fewer than 3 of "
        "either kind",
        True,
        kind="overhead_ratio",
        importance=13,
    ),
)

BRANCHES: tuple[Column, ...] = (
    column_of(SUBMODULES, "submodule"),
    col("branch", STRING, _OF_BRANCH, True, key=True),
    column_of(SUBMODULES, "calls", meaning="calls of the submodule for this branch"),
    *(
        column_of(SUBMODULES, name)
        for name in (
            *("elapsed_ns", "span_ns", "first_ns", "min_ns", "median_ns", "max_ns"),
            *("busy_ns", "duration_ns", "share"),
        )
    ),
)
"""Times of a branch are as those of a submodule, but only of its own calls."""

CALLS: tuple[Column, ...] = (
    column_of(TILES, "call", key=True),
    col(
        "pipeline",
        STEP,
        "number of its pipeline call; -1 outside every pipeline call, or if unknown",
        label="pipeline call",
        importance=1,
    ),
    col("submodule", STRING, "named part of the pipeline that was invoked"),
    col("stage", STRING, "phase of the pipeline", importance=4),
    col("branch", STRING, _OF_BRANCH, True),
    col("step", STEP, "denoising step; -1 outside denoise"),
    col(
        "iteration",
        STEP,
        "pass of a loop other than denoising (a token, a profiler step), from 0; -1 outside of "
        "such loops",
    ),
    col("rank", STEP, "process of the job, from 0; -1 in a run of a single process"),
    col("device", STRING, "where the submodule is placed", importance=2),
    col("start_ns", NS, "begin, on the run's clock", importance=3),
    column_of(TILES, "elapsed_ns"),
    SPAN,
    col("share", SHARE, "elapsed_ns in its pipeline call / end-to-end time", True),
    col("commands", INT64, "commands of the call", importance=4, adds=Adds("commands")),
    col("operators", INT64, "operators that devices ran in the call", importance=5),
    column_of(TILES, "busy_ns"),
    column_of(TILES, "idle_inside_ns"),
    column_of(TILES, "launch_bound_ns"),
    col(
        "before_kernel_ns",
        NS,
        "part of launch_bound_ns before its first kernel; null if the work of its device is "
        "not known",
        True,
        label="before first kernel",
        importance=13,
        hide_if_zero=True,
    ),
    column_of(TILES, "queue_lead_ns"),
    column_of(TILES, "hidden_ns"),
    column_of(TILES, "unrecorded_ns"),
    col(
        "duration_ns",
        NS,
        "wall time, as the caller saw it; 0 if unknown",
        label="host range",
        importance=16,
    ),
    column_of(TILES, "begin_ns"),
    column_of(TILES, "end_ns"),
    col(
        "first",
        BOOL,
        "true for a call that is not steady: the first of its submodule in the run, one that "
        "overlapped with that, or one that compiled",
        importance=15,
    ),
    col("ops_traced", BOOL, "whether commands were recorded for it", label="traced", importance=15),
)


def are_hidden(rows: pl.DataFrame) -> bool:
    """Whether some calls, or submodules, worked on a device but added nothing to the run, so that a
    reader needs their start and end."""
    return not rows.filter((pl.col("elapsed_ns") == 0) & (pl.col("busy_ns") > 0)).is_empty()


def hidden_notes(rows: pl.DataFrame) -> tuple[Said, ...]:
    """Return the note why some of these calls, or submodules, have device time but took no time."""
    note = said(
        "Elapsed is 0 if all of the work ran while the device worked for other calls, to whose "
        "elapsed time that belongs. Hidden is the device time of such work."
    )
    return (note,) if are_hidden(rows) else ()


# --- Calls and the submodules they are calls of.


MEASURING_CALLS = 3  # steady traced, and untraced, of a submodule; fewer differ by chance


Share = Callable[[Codes], float | None]
"""The share of the end-to-end time that some calls take: the union of their tiles."""
DeviceTime = Callable[[list[Codes]], list[int]]
"""The device time of calls, for each of several lists of rows of calls."""
_SUMS = ("idle_inside_ns", "launch_bound_ns", "hidden_ns", "unrecorded_ns")


def call_table(
    calls: pl.DataFrame,
    tiles: pl.DataFrame,
    commands: Codes,
    operators: Codes,
    first: pl.Series,
    before_kernels: pl.Series,
    work: tuple[Times, Times],
    share: pl.Series,
) -> pl.DataFrame:
    """Return one row per call (`CALLS`), in the order of `calls`.

    `tiles` are those of the run, `before_kernels` how long each of its calls was launch-bound
    before its first kernel, and `work` when its first work began and its last ended
    (`work_extents`), in their order. `commands` and `operators` hold the row in `calls` of
    every command and of every operator of every call, -1 for none; `first` the numbers of the
    calls that are not steady in the whole run (`unsteady_calls`).
    """
    groups = len(calls)
    names = [name for name, dtype in schema(CALLS).items() if dtype == pl.String()]
    return (
        calls.with_columns(pl.col(names).cast(pl.String), pl.col("duration_ns").clip(0))
        .with_columns(
            commands=counts(commands, groups),
            operators=counts(operators, groups),
            first=pl.col("call").is_in(first.to_list()),
        )
        .join(
            tiles.with_columns(
                before_kernel_ns=before_kernels, span_ns=_spans(tiles, work), share=share
            ),
            on="call",
            how="left",
            maintain_order="left",
        )
        .with_columns(span_ns=pl.col("span_ns").fill_null(pl.col("duration_ns")))
        .select(typed(CALLS))
    )


def _spans(tiles: pl.DataFrame, work: tuple[Times, Times]) -> pl.Series:
    """Return how long it is from the start of each call's tile or work to the end of both, null if
    it has neither, in ns."""
    begin, end = tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy()
    (first, last), tiled = work, end > begin
    worked = last > first
    first = np.where(worked & tiled, np.minimum(first, begin), np.where(worked, first, begin))
    last = np.where(worked & tiled, np.maximum(last, end), np.where(worked, last, end))
    return pl.Series(last - first).set(pl.Series(~worked & ~tiled), None)


def submodule_table(
    calls: pl.DataFrame,
    operators: pl.DataFrame,
    share: Share,
    device_time: DeviceTime,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> pl.DataFrame:
    """Return one row per submodule (`SUBMODULES`), in order of first calls.

    `calls` is the call table, `operators` has a row `submodule, layer` for every operator; `share`
    and `device_time` are of rows of `calls`. Steady calls are all but the first, if there are
    more than one: the first pays for initialization. `overhead_ratio` is that in `measured`, by
    submodule, else compares steady traced with steady untraced calls, if there are
    `MEASURING_CALLS` of each.
    """
    count = operators.drop_nulls("submodule").group_by("submodule").agg(operators=pl.len())
    table = (
        calls.with_row_index("row")
        .group_by("submodule", maintain_order=True)
        .agg(
            stage=pl.col("stage").unique(maintain_order=True).str.join(", "),
            device=pl.col("device").unique().sort().str.join(", "),
            calls=pl.len(),
            traced_calls=pl.col("ops_traced").sum(),
            **_durations(),
            commands=pl.col("commands").sum(),
            **{name: pl.col(name).sum() for name in _SUMS},
            queue_lead_ns=pl.col("queue_lead_ns").median(),
            overhead_ratio=_overhead_ratio(),
            rows=pl.col("row"),
        )
        .join(count, on="submodule", how="left", maintain_order="left")
        .with_columns(
            pl.col("operators").fill_null(0),
            share=_shares(share),
            busy_ns=_device_times(device_time),
            overhead_ratio=pl.col("submodule")
            .replace_strict(dict(measured), default=None, return_dtype=pl.Float64)
            .fill_null(pl.col("overhead_ratio")),
        )
    )
    return table.select(typed(SUBMODULES))


def _shares(share: Share) -> pl.Expr:
    return pl.col("rows").map_batches(
        lambda rows: pl.Series([share(own.to_numpy()) for own in rows], dtype=pl.Float64),
        return_dtype=pl.Float64,
    )


def _device_times(device_time: DeviceTime) -> pl.Expr:
    return pl.col("rows").map_batches(
        lambda rows: pl.Series(device_time([own.to_numpy() for own in rows]), dtype=pl.Int64),
        return_dtype=pl.Int64,
    )


def branch_table(calls: pl.DataFrame, share: Share, device_time: DeviceTime) -> pl.DataFrame:
    """One row per submodule and branch (`BRANCHES`), both in order of their first calls. `calls` is
    the call table; steady calls are those of `submodule_table`, and so are `share` and
    `device_time`."""
    order = {
        name: number for number, name in enumerate(calls["submodule"].unique(maintain_order=True))
    }
    table = (
        calls.with_row_index("row")
        .group_by("submodule", "branch", maintain_order=True)
        .agg(calls=pl.len(), **_durations(), rows=pl.col("row"))
        .with_columns(
            share=_shares(share),
            busy_ns=_device_times(device_time),
            order=pl.col("submodule").replace_strict(order, return_dtype=pl.Int64),
        )
        .sort("order", maintain_order=True)
    )
    return table.select(typed(BRANCHES))


_FEWEST_STEADY = 2  # calls: one has no median


def _durations() -> dict[str, pl.Expr]:
    """Sum, first and statistics of the steady ones of a group's calls; of all, if fewer than two
    are steady."""
    elapsed, steady = pl.col("elapsed_ns"), ~pl.col("first")
    kept = steady | (steady.sum() < _FEWEST_STEADY)
    hidden = elapsed.filter(kept).median() < 1
    steady = pl.when(hidden).then(pl.col("span_ns")).otherwise(elapsed).filter(kept)
    return {
        "elapsed_ns": elapsed.sum(),
        "span_ns": pl.col("span_ns").sum(),
        "duration_ns": pl.col("duration_ns").sum(),
        "first_ns": elapsed.sort_by("start_ns", "call").first(),
        "min_ns": steady.min(),
        "median_ns": steady.median(),
        "max_ns": steady.max(),
    }


def _overhead_ratio() -> pl.Expr:
    """The ratio of untraced to traced time, by the medians of steady calls. Null if these are too
    few, if one is 0 (unknown), or if the device worked on untraced calls for longer than the host:
    for traced calls that is not known."""
    behind = pl.col("elapsed_ns") > pl.col("duration_ns")
    partly_traced = (behind & ~pl.col("ops_traced")).any()
    duration, steady = pl.col("duration_ns"), ~pl.col("first")
    untraced = duration.filter(steady & ~pl.col("ops_traced"))
    traced = duration.filter(steady & pl.col("ops_traced"))
    enough = pl.min_horizontal(untraced.len(), traced.len()) >= MEASURING_CALLS
    known = (untraced.median() > 0) & (traced.median() > 0)
    return pl.when(enough & known & ~partly_traced).then(untraced.median() / traced.median())


def overhead_ratios(submodules: Mapping[str, Submodule]) -> dict[str, float]:
    """Return what capture measured (`RunInfo.submodules`): untraced over traced time by submodule.
    It is 1 if the measured interval contains 1: the overhead is then not significant, and the
    middle of the interval would add noise."""
    return {
        name: 1.0 if _holds_one(known.overhead_ratio) else known.overhead_ratio.factor
        for name, known in submodules.items()
        if known.overhead_ratio is not None
    }


def _holds_one(overhead_ratio: OverheadRatio) -> bool:
    low, high = overhead_ratio.low, overhead_ratio.high
    return low is not None and high is not None and low <= 1 <= high


# --- How long the work of several calls ran on devices: the union of theirs, however they overlap.


_Flags = npt.NDArray[np.bool_]


@shared
def work_extents(of: Inputs) -> tuple[Times, Times]:
    """Start of the first and end of the last work of each call of the run on devices, int64 [calls]
    each; the end is before the start if there is none."""
    commands, calls = of.everything, len(of.run.calls)
    first = np.full(calls + 1, np.iinfo(np.int64).max)
    last = np.full(calls + 1, np.iinfo(np.int64).min)
    for rows in batches(len(commands.call)):
        call, start, end = commands.call[rows], commands.start[rows], commands.end[rows]
        worked = _worked(commands, rows)
        if not worked.all():
            call, start, end = call[worked], start[worked], end[worked]
        if len(call):
            heads = group_heads(call)
            np.minimum.at(first, call[heads], np.minimum.reduceat(start, heads))
            np.maximum.at(last, call[heads], np.maximum.reduceat(end, heads))
    return first[:-1], last[:-1]


def device_time(of: Inputs, groups: Codes, count: int) -> Times:
    """The union of the kernels and copies of each group of calls, int64 [count] in ns; the devices
    on which the calls have their tiles add up, as elapsed times do.

    `groups` has the group of each call of the run, -1 for none. If a call's work lies in its
    tile on the run's only device, or all of a group's calls on a device ran one after the other,
    the times of the calls add up; the work of others is united.
    """
    tiles, commands = of.run.tiles, of.everything
    devices, of_call = np.unique(
        tiles.calls["tile_device"].cast(pl.String).fill_null("").to_numpy(), return_inverse=True
    )
    parts = len(devices) * count
    part = np.where(groups >= 0, len(devices) * groups + of_call, -1)
    busy, found = tiles.calls["busy_ns"].to_numpy(), np.zeros(parts, dtype=np.int64)
    kept = part >= 0
    np.add.at(found, part[kept], busy[kept])
    mixed = np.zeros(parts, dtype=np.bool_)
    mixed[part[kept & (tiles.calls["hidden_ns"].to_numpy() > 0)]] = True
    mixed |= len(tiles.devices) > 1
    if mixed.any():
        mixed &= _beside(work_extents(of), part, parts)
    if mixed.any():
        code = np.append(np.where(kept & mixed[part], part, -1), -1)[commands.call]
        code[~_worked(commands, slice(None))] = -1
        found[mixed] = union_by(commands.start, commands.end, code, parts)[mixed]
    united: Times = found.reshape(count, len(devices)).sum(axis=1)
    return united


def _worked(commands: CommandArrays, rows: slice) -> _Flags:
    """Which commands are work of a device in a call."""
    category = commands.category[rows]
    found: _Flags = (category != HOST) & (category != SYNC)
    found &= commands.call[rows] >= 0
    found &= commands.device[rows] < len(commands.devices)
    return found


def _beside(extents: tuple[Times, Times], groups: Codes, count: int) -> _Flags:
    """Whether work of one call of a group starts before that of another has ended, bool [count]."""
    first, last = extents
    own = np.flatnonzero((groups >= 0) & (last > first))
    own = own[np.lexsort((first[own], groups[own]))]
    found = np.zeros(count, dtype=np.bool_)
    same = groups[own][1:] == groups[own][:-1]
    found[groups[own][1:][same & (first[own][1:] < last[own][:-1])]] = True
    return found


# --- Submodules as a run has them, without its commands.


def recorded_submodules(calls: pl.DataFrame) -> pl.DataFrame:
    """A row for each submodule and device of `calls` (those of a run), in order of first
    calls: `calls`, `duration_ns`, `first_ns` and `median_ns` (of all but the first if there are
    several) as in `SUBMODULES`, by what their device noted if it did."""
    duration = pl.coalesce("device_duration_ns", "duration_ns")
    return (
        calls.group_by("submodule", "device", maintain_order=True)
        .agg(
            calls=pl.len(),
            duration_ns=duration.sum(),
            first_ns=duration.first(),
            median_ns=duration.slice(
                pl.when(pl.len() > _FEWEST_STEADY).then(1).otherwise(0)
            ).median(),
        )
        .with_columns(pl.col("submodule", "device").cast(pl.String), pl.col("median_ns").round())
        .cast({"median_ns": pl.Int64})
    )


# --- The tables of submodules, of their branches and of their calls.


def _submodules(of: Inputs) -> pl.DataFrame:
    operators = folds(of).operators
    submodule = operators.filter(~pl.col("host")).select("submodule")
    factors = overhead_ratios(of.run.info.submodules)
    return submodule_table(of.table("calls"), submodule, _share(of), _device_time(of), factors)


def _whole_ns(of: Inputs) -> int:
    """The time that shares of calls refer to, 0 if calls have no common time."""
    return 0 if are_single(of.run.drops) else accounting(of).end_to_end_ns


def _share(of: Inputs) -> Share:
    """Return a function: the share of the end-to-end time that calls take, by their rows in the
    table."""
    axis, total = of.axis, _whole_ns(of)
    rows = positions(of.calls["call"].to_numpy(), of.run.calls["call"].to_numpy())
    separate = of.pipelines.apart

    def share(own: Codes) -> float | None:
        return axis.taken(rows[own], separate=separate) / total if total else None

    return share


def _device_time(of: Inputs) -> DeviceTime:
    """Return a function: the device time of calls, by their rows in the table."""
    rows = positions(of.calls["call"].to_numpy(), of.run.calls["call"].to_numpy())
    calls = len(of.run.calls)

    def times(groups: list[Codes]) -> list[int]:
        code = np.full(calls, -1)
        for number, own in enumerate(groups):
            code[rows[own]] = number
        found: list[int] = device_time(of, code, len(groups)).tolist()
        return found

    return times


def _calls(of: Inputs) -> pl.DataFrame:
    first = of.unsteady
    tiles, commands = of.run.tiles.calls, of.commands.call
    before = before_first_kernels(gaps_of(of), of.run, kernels_of(of))
    found = folds(of)
    on_device = ~found.operators["host"].to_numpy()[found.key]
    operators, work, share = found.call[on_device], work_extents(of), _call_shares(of)
    return call_table(of.calls, tiles, commands, operators, first, before, work, share)


def _call_shares(of: Inputs) -> pl.Series:
    """The share of the end-to-end time in the tile of each call of the run."""
    axis, total = of.axis, _whole_ns(of)
    inside = np.zeros(len(axis.begin), dtype=np.int64)
    separate = of.pipelines.apart
    for code in range(len(axis.first)) if separate else (None,):
        own = np.flatnonzero(axis.code == code) if separate else np.arange(len(inside))
        inside[own] = axis.counted_in(code).within(axis.begin[own], axis.end[own])
    return pl.Series(inside / total if total else [None] * len(inside), dtype=pl.Float64)


TABLES = (
    Table(
        name="submodules",
        row="one submodule",
        section="time",
        columns=SUBMODULES,
        make=_submodules,
        title="Submodules",
        about="Rows are in order of first calls. If a submodule has more than one call, its "
        "steady calls are all except the first, which pays for initialization. Calls that "
        "another thread started while the first one ran, and calls that compiled "
        "([compilations](#compilations)), are not steady either. `overhead_ratio` is the factor "
        "in the manifest if capture measured one. It is 1, and times count as traced, if "
        "the measured interval contains 1.",
        reads=("calls",),
    ),
    Table(
        name="branches",
        row="one branch of a submodule",
        section="time",
        columns=BRANCHES,
        make=lambda of: branch_table(of.table("calls"), _share(of), _device_time(of)),
        title="Submodules by branch",
        about="A denoiser works for `cond`, `uncond`, `skip_layers` or `batched`, an encoder for "
        "one of the prompts. Steady calls are those of [submodules](#submodules).",
        reads=("calls",),
    ),
    Table(
        name="calls",
        row="one call, with what its commands add up to",
        section="calls",
        columns=CALLS,
        make=_calls,
        title="Calls",
        about="Rows are in order of calls.",
        shown=15,
    ),
)
