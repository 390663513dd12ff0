"""The commands of one call that share a layer, folded into one: see `operators`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.pipelines import call_groups
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
from profiler.trace.events import CATEGORIES

__all__ = ["SUMS", "Folds", "fold", "fold_by"]

SUMS = (
    *("key", "call", "group", "commands", "wall", "extent", "busy"),
    *("tracks", "working_tracks", "working_busy", "busiest"),
)
_COMPUTE = CATEGORIES.index("compute")
_OPERATOR = ("submodule", "layer", "host")


class Folds(Struct, frozen=True, eq=False):
    """The operators of single calls, in order of `key` and call.

    `key` numbers submodule, layer and host together and indexes `submodules`, `layers` and
    `host`; `call` is a row of the frame of calls, -1 for work of no call, `group` its number in
    `pipelines.call_groups`. The rest are int64 sums over the fold's commands; `extent` is from the
    first's begin to the last's end. The working tracks are those on which its compute commands ran,
    all of its tracks where nothing took time on these; `working_busy` is the sum over them of the
    time in which a command ran, `busiest` that of the busiest. `of_command` is the key of each
    command, `of_kind` that of each kind.
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
    submodules: list[str | None]
    layers: list[str]
    host: list[bool]
    of_command: Codes
    of_kind: Codes


def fold(calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays, kinds: Kinds) -> Folds:
    """Fold `commands`, the arrays of `frame`, whose kinds are `kinds`, into the operators of single
    calls."""
    operators, of_kind = _operators(kinds)
    key: Codes = np.empty(len(kinds.of_command), dtype=np.int32)
    for rows in batches(len(key)):
        key[rows] = of_kind[kinds.of_command[rows]]
    sums = fold_by(key, len(operators), calls, frame, commands)
    submodules, layers, host = (operators[name].to_list() for name in _OPERATOR)
    return Folds(
        **sums, submodules=submodules, layers=layers, host=host, of_command=key, of_kind=of_kind
    )


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


def _operators(kinds: Kinds) -> tuple[pl.DataFrame, Codes]:
    """Submodule, layer and host of each operator, in their order, and the operator of each
    kind."""
    operators = kinds.table.select(_OPERATOR).unique().sort(_OPERATOR, nulls_last=True)
    numbered = operators.with_row_index("key")
    of_kind = kinds.table.select(_OPERATOR).join(
        numbered, on=_OPERATOR, how="left", nulls_equal=True, maintain_order="left"
    )
    return operators, of_kind["key"].cast(pl.Int32).to_numpy()


def _per_track(
    place: Times,
    places: int,
    spans: tuple[Times, Times],
    computes: npt.NDArray[np.bool_],
    heads: Times,
    wall: Times,
) -> tuple[Times, Times, Times, Times]:
    """Tracks, working tracks, how long these worked together and the busiest of them, of each fold.

    `place` is device and track of each row, below `places`; `spans` its begin and end; `computes`
    whether it is a compute command; `heads` are the first rows of the folds, whose rows are by
    begin, `wall` their unions.
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
