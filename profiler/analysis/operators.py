"""Operators: the commands of one layer and call folded into one row, with parallelism.

Host commands are folded separately from device commands, so a launch never lengthens an
operator. With w the union of a fold, T its total, n its compute tracks, b_t the busy time of
track t and b their sum,

    parallelism = sum T / sum w
    parallel_utilization = sum b / sum (w n)     imbalance = sum max_t b_t / sum (b / n)

The sums are over the folds of a row. Tracks that only move data lengthen w and do not count in
n.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.commands import (
    LAYER,
    OP_TYPES,
    CommandArrays,
    place_of,
    ratio,
    rows_of,
    timelines_of,
)
from profiler.analysis.context import Inputs, shared
from profiler.analysis.question import Table
from profiler.analysis.roles import corrected, kind_cells, texts_by_time
from profiler.analysis.timeline import call_groups
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    FACTOR,
    FLOAT64,
    INT64,
    NS,
    RATIO,
    SHARE,
    STRING,
    Adds,
    Column,
    col,
    typed,
)
from profiler.run.intervals import (
    Codes,
    Times,
    batches,
    group_heads,
    is_sorted,
    order_by,
    stretches,
    text_codes,
    union_sorted,
)
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES

# --- Words of the tables of operators: closed sets.


class SplitPart(StrEnum):
    """Which of a split operator's commands a row is about."""

    WHOLE = "whole"
    COMPUTE = "compute"
    MOVEMENT = "movement"
    DEVICE = "device"


# --- The columns of folded operators, and of the parts of those that were split.


_PARALLELISM = "how many of its commands ran at a time on average: total_ns / wall_ns"
_UTILIZATION = (
    "working time / (wall time * tracks), over the tracks that compute, else over all tracks"
)
_IMBALANCE = (
    "busiest track / mean of the tracks, over the tracks that compute, else over all tracks"
)

OPERATORS: tuple[Column, ...] = (
    col(
        "submodule", STRING, "submodule of its calls; null for host work in no call", True, key=True
    ),
    LAYER,
    col(
        "host",
        BOOL,
        "true for commands of the host: work, runtime calls, waits for accelerators",
        importance=DATA_ONLY,
        key=True,
    ),
    replace(OP_TYPES, importance=5),
    col("devices", STRING, "devices it ran on, joined with commas", kind="list", importance=8),
    col("tracks", INT64, "different tracks it ran on", importance=17),
    col("track_names", STRING, "names of these tracks, joined with commas", importance=DATA_ONLY),
    col(
        "calls",
        INT64,
        "calls it ran in; for host work in no call, steps of pipeline calls",
        importance=6,
    ),
    col("commands", INT64, "its commands over all calls", adds=Adds("commands")),
    col("commands_per_call", FLOAT64, "commands / calls", importance=DATA_ONLY),
    col(
        "wall_ns",
        NS,
        "sum over calls of the time in which any of its commands ran",
        label="wall sum",
    ),
    col("total_ns", NS, "sum of its commands' durations", adds=Adds("total_ns")),
    col(
        "self_ns",
        NS,
        "total_ns; for host commands, without other host commands that ran within them",
        label="self",
        importance=DATA_ONLY,
    ),
    col(
        "waited_ns",
        NS,
        "part of self_ns in which the host waited for a device, in synchronizations and copies; of "
        "devices' commands those that wait (category sync), or are in flight beside others",
        label="waited",
        importance=DATA_ONLY,
        hide_if_zero=True,
    ),
    col(
        "gap_ns",
        NS,
        "time between its commands of a call in which none of them ran",
        importance=DATA_ONLY,
    ),
    col("parallelism", FACTOR, _PARALLELISM, True, importance=DATA_ONLY),
    col("parallel_utilization", RATIO, _UTILIZATION, True, label="parallel utilization"),
    col("imbalance", FACTOR, _IMBALANCE, True, importance=13),
    col(
        "share",
        SHARE,
        "self_ns / self_ns of all rows with the same `host`; if parts were recorded one by "
        "one, of its own part",
        True,
    ),
    col("first_ns", NS, "wall time of the first call in which it ran", importance=DATA_ONLY),
    col(
        "median_ns",
        NS,
        "median wall time of later calls; first_ns if there are none",
        label="median a call",
        importance=18,
    ),
    col("corrected_ns", NS, "total_ns * overhead_ratio of its submodule", True, importance=2),
)


# --- The commands of one call that share a layer, folded into one: see `operators`.


SUMS = (
    *("key", "call", "group", "commands", "wall", "extent", "busy"),
    *("tracks", "working_tracks", "working_busy", "busiest"),
)
_COMPUTE = CATEGORIES.index("compute")
_OPERATOR = ("submodule", "layer", "host")


class Folds(Struct, frozen=True, eq=False):
    """The operators of single calls, in order of `key` and call.

    `key` numbers the `operators`, which have submodule, layer and host; `call` is a row of the
    frame of calls, -1 for work of no call, `group` its number in `pipelines.call_groups`. The rest
    are int64 sums over the fold's commands; `extent` is from the first's start to the last's end.
    The working tracks are those on which its compute commands ran, all of its tracks if nothing
    took time on these; `working_busy` is the sum over them of the time in which a command ran,
    `busiest` that of the busiest. `of_command` is the key of each command, `of_kind` that of each
    kind.
    """

    key: Codes
    call: Codes
    group: Codes
    commands: Times
    wall: Times
    extent: Times
    busy: Times
    tracks: Times
    working_tracks: Times
    working_busy: Times
    busiest: Times
    operators: pl.DataFrame
    of_command: Codes
    of_kind: Codes


@shared
def folds(of: Inputs) -> Folds:
    """The selected commands, folded into operators of single calls."""
    kinds = of.kinds.table.select(_OPERATOR)
    operators = kinds.unique().sort(_OPERATOR, nulls_last=True).with_row_index("key")
    numbered = kinds.join(
        operators, on=_OPERATOR, how="left", nulls_equal=True, maintain_order="left"
    )
    of_kind = numbered["key"].cast(pl.Int32).to_numpy()
    key: Codes = np.empty(len(of.kinds.of_command), dtype=np.int32)
    for rows in batches(len(key)):
        key[rows] = of_kind[of.kinds.of_command[rows]]
    sums = fold_by(key, len(operators), of.calls, of.frame, of.commands)
    return Folds(**sums, operators=operators, of_command=key, of_kind=of_kind)


def fold_by(
    key: Codes, keys: int, calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays
) -> dict[str, Any]:
    """Fold `commands`, the arrays of `frame`, that share a call and a `key` below `keys`: the sums
    of `Folds` by name, in order of key and call."""
    group = call_groups(calls, frame, commands)
    track, names = text_codes(frame["track"])
    places = (len(commands.devices) + 1) * (len(names) + 1)
    parts: list[tuple[Codes, ...]] = [(np.zeros(0, dtype=np.int64),) * len(SUMS)]
    for rows, heads in _batches_of_folds(key, keys, group, commands.start):
        start, end = commands.start[rows], commands.end[rows]
        duration = end - start
        busy = np.add.reduceat(duration, heads)
        place = commands.device[rows] * np.int64(len(names) + 1) + track[rows]
        first, count = rows[heads], np.diff(heads, append=len(rows))
        computes = commands.category[rows] == _COMPUTE
        extent = np.maximum.reduceat(end, heads) - start[heads]
        wall = union_sorted(start.copy(), end.copy(), heads)
        per_track = _per_track(place, places, (start, end), computes, heads, wall)
        of_fold = key[first], commands.call[first], group[first]
        parts.append((*of_fold, count, wall, extent, busy, *per_track))
    sums: dict[str, Any] = {
        name: np.concatenate(column)
        for name, column in zip(SUMS, zip(*parts, strict=True), strict=True)
    }
    order = order_by(sums["key"], keys)
    return {name: column[order] for name, column in sums.items()}


def _batches_of_folds(
    key: Codes, keys: int, group: Codes, start: Times
) -> Iterator[tuple[Times, Times]]:
    """Rows of whole folds, a batch at a time, and where in them each fold begins.

    Rows are by key, group and start; folds of one key follow each other in order of their group.
    """
    order = None if _is_sorted_by(group, start) else np.lexsort((start, group))
    ordered = group if order is None else group[order]
    groups = group_heads(ordered) if len(group) else np.zeros(0, dtype=np.int64)
    for some, others in stretches(groups, len(group)):
        first, last = groups[some], np.append(groups, len(group))[others]
        rows = np.arange(first, last) if order is None else order[first:last]
        rows = rows[order_by(key[rows], keys)]
        heads = group_heads(key[rows], group[rows])
        bounds = np.append(heads, len(rows))
        for one, another in stretches(heads, len(rows)):
            begin = bounds[one]
            yield rows[begin : bounds[another]], heads[one:another] - begin


def _is_sorted_by(group: Codes, start: Times) -> bool:
    """Whether the rows are in order of their group and, within one, of their start."""
    if not is_sorted(group):
        return False
    return all(
        bool(((start[rows][1:] >= start[rows][:-1]) | (group[rows][1:] > group[rows][:-1])).all())
        for rows in batches(len(group), overlap=1)
    )


def _per_track(
    place: Times,
    places: int,
    spans: tuple[Times, Times],
    computes: npt.NDArray[np.bool_],
    heads: Times,
    wall: Times,
) -> tuple[Times, Times, Times, Times]:
    """Return for each fold its tracks, its working tracks, how long these worked together and how
    long the busiest did.

    `place` is device and track of each row, below `places`; `spans` its start and end; `computes`
    whether it is a compute command; `heads` are the first rows of the folds, whose rows are by
    start, `wall` their unions.
    """
    ones = np.ones(len(heads), dtype=np.int64)
    tracks, working, working_busy, busiest = ones, ones.copy(), wall.copy(), wall.copy()
    split = np.minimum.reduceat(place, heads) != np.maximum.reduceat(place, heads)
    fold = np.repeat(np.arange(len(heads)), np.diff(heads, append=len(place)))
    rows = np.flatnonzero(split[fold])
    if not len(rows):
        return tracks, working, working_busy, busiest
    rows = rows[order_by(place[rows], places)]
    rows = rows[order_by(fold[rows], len(heads))]
    cells = group_heads(fold[rows], place[rows])
    folds = group_heads(fold[rows][cells])
    sizes = np.diff(folds, append=len(cells))
    works = np.logical_or.reduceat(computes[rows], cells)
    of_cell = union_sorted(spans[0][rows], spans[1][rows], cells)
    nothing = np.add.reduceat(np.where(works, of_cell, 0), folds) == 0
    works |= np.repeat(nothing, sizes)
    of_cell[~works] = 0
    tracks[split] = sizes
    working[split] = np.add.reduceat(works.astype(np.int64), folds)
    working_busy[split] = np.add.reduceat(of_cell, folds)
    busiest[split] = np.maximum.reduceat(of_cell, folds)
    return tracks, working, working_busy, busiest


# --- Commands by their position in a call: the same work of every call of a submodule, added up.
#
# A trace of a graph may name only the modules of its nodes. But calls of one graph run the same
# commands in the same order, so the n-th command of a place and op type is the same node in each.


POSITION_KEYS = ("layer", "op_type", "of", "position")


def command_positions(run: Run, submodule: str) -> pl.DataFrame:
    """Return the device commands of the traced calls of a submodule, one row per position.

    Columns: `layer` (Utf8, the place in the model, as graphs use the word), `op_type` (Utf8, "" if
    unknown); `position`, from 0, among the `of` commands of that layer and op type in a call, in
    order of their start (Int64); `calls` that have it; `duration_ns`, `bytes_read` and
    `bytes_written` summed over these calls (Int64, null if unknown); `role` (Utf8, null if
    unknown). In order of their first start in a call.
    """
    calls = run.calls.filter(
        (pl.col("submodule").cast(pl.String) == submodule) & pl.col("ops_traced")
    )
    keys = ["call", "layer", "op_type"]
    commands = (
        run.commands.filter(
            pl.col("call").is_in(calls["call"].implode()) & (pl.col("category") != "host")
        )
        .select(
            "call",
            place_of(pl.col("layer").cast(pl.String), pl.col("module").cast(pl.String)).alias(
                "layer"
            ),
            pl.col("role").cast(pl.String),
            pl.col("op_type").cast(pl.String).fill_null(""),
            "start_ns",
            pl.col("duration_ns").clip(lower_bound=0),
            "bytes_read",
            "bytes_written",
        )
        .sort("call", "start_ns", maintain_order=True)
        .with_columns(
            of=pl.len().over(keys).cast(pl.Int64),
            position=pl.int_range(pl.len(), dtype=pl.Int64).over(keys),
        )
    )
    sizes = ("bytes_read", "bytes_written")
    return commands.group_by(POSITION_KEYS, maintain_order=True).agg(
        pl.col("call").n_unique().cast(pl.Int64).alias("calls"),
        pl.col("duration_ns").sum(),
        *(pl.when(one.null_count() == 0).then(one.sum()) for one in map(pl.col, sizes)),
        pl.col("role").drop_nulls().first(),
    )


# --- Operators: the commands of one call that share a layer, folded back into one.
#
# A command is folded with those of its call and layer; the host's commands (its own work, what
# launched the layer's, waits for accelerators: `Kinds`) are folded apart from what ran on devices,
# so that a launch never lengthens an operator. Work of no call is folded by pipeline call and step
# instead. The folds of one submodule, layer and `host` then add up to one row. With w the union of
# a fold, T its total, n the tracks on which its compute commands ran (all of its tracks if it has
# none, or nothing took time there), b_t the time in which such a track t worked (the union of what
# it ran: commands may lie within others) and b their sum:
#
#     parallelism = Σ T / Σ w
#     parallel_utilization = Σ b / Σ (w n)     imbalance = Σ max_t b_t / Σ (b / n)
#
# sums over the folds. One track: the last two are 1. Tracks that only move data lengthen w and are
# no part of n: while they alone work, the computing ones wait.


_SUMMED = ("commands", "busy", "gap", "working_busy", "possible", "busiest", "even")


def _operators(of: Inputs) -> pl.DataFrame:
    """Return one row per submodule, layer and host, longest total first.

    `share` is the part of the own time of all rows with the same `host` and timeline
    (`timelines_of`): of all device time for operators of devices, of all host time for host
    commands; each of the two adds up to 1.
    """
    overhead_ratio = of.table("submodules").select("submodule", "overhead_ratio")
    table = (
        _sums(folds(of))
        .join(folds(of).operators, on="key")
        .join(_places(of), on="key")
        .join(_own(of), on="key")
        .join(overhead_ratio, on="submodule", how="left")
        .join(timelines_of(of.run.calls, of.run.drops), on="submodule", how="left")
        .with_columns(pl.col("timeline").fill_null(0))
        .with_columns(
            total_ns=pl.col("busy"),
            gap_ns=pl.col("gap"),
            self_ns=pl.col("busy") - pl.col("within_ns"),
            commands_per_call=pl.col("commands") / pl.col("calls"),
            parallelism=ratio(pl.col("busy"), pl.col("wall_ns")),
            parallel_utilization=ratio(pl.col("working_busy"), pl.col("possible")),
            imbalance=ratio(pl.col("busiest"), pl.col("even")),
            corrected_ns=corrected(pl.col("busy")),
        )
        .with_columns(
            share=ratio(pl.col("self_ns"), pl.col("self_ns").sum().over("host", "timeline"))
        )
        .sort(["total_ns", "submodule", "layer", "host"], descending=[True, False, False, False])
    )
    return table.select(typed(OPERATORS))


def _own(of: Inputs) -> pl.DataFrame:
    """Return for each key how long other host commands ran within its own, and how long it
    waited."""
    own, keys = of.host_times, len(folds(of).operators)
    key = folds(of).of_command[own.row]
    sums = (np.bincount(key, values, keys) for values in (own.within_ns, own.waited_ns))
    within, waited = (found.astype(np.int64) for found in sums)  # exact to 2^53
    kinds = of.kinds.table
    rows = rows_of(of.kinds, ~kinds["host"] & (kinds["category"] == "sync"))
    np.add.at(waited, folds(of).of_command[rows], of.commands.end[rows] - of.commands.start[rows])
    return pl.DataFrame({"within_ns": within, "waited_ns": waited}).with_row_index("key")


def _sums(folds: Folds) -> pl.DataFrame:
    """Return for each key its number of calls, and sums of their times."""
    return (
        pl.DataFrame(
            {
                "key": folds.key,
                "commands": folds.commands,
                "wall": folds.wall,
                "busy": folds.busy,
                "working_busy": folds.working_busy,
                "possible": folds.wall * folds.working_tracks,
                "gap": folds.extent - folds.wall,
                "busiest": folds.busiest,
                "even": folds.working_busy / folds.working_tracks,
            }
        )
        .group_by("key", maintain_order=True)
        .agg(
            pl.len().alias("calls"),
            pl.col(*_SUMMED).sum(),
            wall_ns=pl.col("wall").sum(),
            first_ns=pl.col("wall").first(),
            median_ns=pl.coalesce(pl.col("wall").slice(1).median(), pl.col("wall").first()),
        )
        .with_columns(pl.col("key").cast(pl.UInt32))
    )


def _places(of: Inputs) -> pl.DataFrame:
    """Return for each key its op types by time, its devices and its number of tracks."""
    cells, op_type = kind_cells(of), of.kinds.table["op_type"]
    kind = cells["kind"].cast(pl.UInt32)
    found = cells.select(
        "device",
        "track",
        key=pl.Series(folds(of).of_kind).gather(kind).cast(pl.UInt32),
        op_type=op_type.gather(kind),
        duration="total_ns",
    )
    types = texts_by_time(found, ["key"], "op_type", "op_types", "duration")
    places = found.group_by("key").agg(
        devices=pl.col("device").drop_nulls().unique().sort().str.join(", "),
        tracks=pl.struct("device", "track").n_unique(),
        track_names=pl.col("track").unique().sort().str.join(", "),
    )
    return places.join(types, on="key", how="left").with_columns(pl.col("op_types").fill_null(""))


# --- The table of operators.


TABLES = (
    Table(
        name="operators",
        row="one operator of a submodule, its commands aggregated",
        section="roofline",
        columns=OPERATORS,
        make=_operators,
        title="Operators",
        about="All operators are listed, longest `total_ns` first. Commands of the host (its own "
        "work, launches of operators, waits for accelerators) have rows apart from those of "
        "devices, as `host` says. The shares of all rows with `host` false add up to 1, and so "
        "do those with `host` true; if parts were recorded one by one, they add up to 1 in "
        "each part. [operators.md](operators.md) has details.",
        reads=("submodules",),
        rank=("-total_ns",),
        shown=15,
    ),
)
