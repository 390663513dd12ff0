"""Operators: the commands of one call that share a layer, folded back into one.

A command is folded with those of its call and layer; the layer's host commands (what launched
the work) are folded apart from what ran on devices, so that a launch never lengthens an operator.
Work of no call is folded by step instead. The folds of one submodule, layer and `host` then add
up to one row. With w the wall union of a fold, b its busy sum, b_t its busy sum on track t and n
the tracks it ran on:

    parallel_efficiency = Σ b / Σ (w n)     imbalance = Σ max_t b_t / Σ (b / n)

sums over the folds. One track: both are 1. Commands that lie within others on the same track
count twice in the busy sum and can raise the efficiency above 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from profiler.analysis.arrays import HOST, CommandArrays, dense_codes, text_codes
from profiler.analysis.columns import OPERATORS
from profiler.analysis.intervals import Codes, Times, group_heads, narrow, union_sorted
from profiler.table.columns import schema

__all__ = ["Folds", "fold", "operator_table"]

_BATCH = 1 << 20  # commands and sums that are worked on at once: bounds the memory


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """The operators of single calls, in order of `key` and call.

    `key` numbers submodule, layer and host together and indexes `submodules`, `layers` and
    `host`; `call` is a row of the frame of calls, -1 for work of no call. The rest are int64 sums
    over the fold's commands. `of_command` is the key of each command.
    """

    key: Codes
    call: Codes
    commands: Times
    wall: Times
    busy: Times
    tracks: Times
    busiest: Times
    submodules: list[str | None]
    layers: list[str]
    host: list[bool]
    of_command: Codes


def fold(calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays) -> Folds:
    """Fold `commands`, the arrays of `frame`, into the operators of single calls."""
    key, submodules, layers, host = _keys(calls, frame, commands)
    behind = np.int32(len(calls) + 1)
    group = np.where(commands.call >= 0, commands.call, behind + commands.step)
    order = np.lexsort((commands.start, group, narrow(key, len(layers))))
    if not len(order):
        none = np.zeros(0, dtype=np.int64)
        return Folds(none, none, none, none, none, none, none, submodules, layers, host, key)
    heads = group_heads(key[order], group[order])
    del group
    start, end = commands.start[order], commands.end[order]
    busy = np.add.reduceat(end - start, heads)
    wall = union_sorted(start, end, heads)
    del start, end
    tracks, busiest = _per_track(frame, commands, order, heads, busy)
    first = order[heads]
    return Folds(
        key=key[first],
        call=commands.call[first],
        commands=np.diff(heads, append=len(order)),
        wall=wall,
        busy=busy,
        tracks=tracks,
        busiest=busiest,
        submodules=submodules,
        layers=layers,
        host=host,
        of_command=key,
    )


def _keys(
    calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays
) -> tuple[Codes, list[str | None], list[str], list[bool]]:
    """Key of each command, and submodule, layer and host of each key."""
    submodule, submodules = text_codes(calls["submodule"])
    of_call = np.append(submodule, len(submodules))  # a call of -1 takes the last: no submodule
    layer, layers = text_codes(frame["layer"])
    wide = (of_call[commands.call] * len(layers) + layer) * 2 + (commands.category == HOST)
    values, key = dense_codes(wide, (len(submodules) + 1) * len(layers) * 2)
    pairs, host = values // 2, (values % 2).astype(bool)
    named: list[str | None] = [*submodules, None]
    return (
        key,
        [named[i] for i in (pairs // max(len(layers), 1)).tolist()],
        [layers[i] for i in (pairs % max(len(layers), 1)).tolist()],
        host.tolist(),
    )


def _per_track(
    frame: pl.DataFrame, commands: CommandArrays, order: Times, heads: Times, busy: Times
) -> tuple[Times, Times]:
    """Number of tracks of each fold, and the busy sum of its busiest track.

    `order` sorts the commands by fold, `heads` are the first of each, `busy` the folds' sums.
    """
    track, names = text_codes(frame["track"])
    place = (commands.device * (len(names) + 1) + track)[order]
    split = np.minimum.reduceat(place, heads) != np.maximum.reduceat(place, heads)
    tracks, busiest = np.ones(len(heads), dtype=np.int64), busy.copy()
    places = (len(commands.devices) + 1) * (len(names) + 1)
    bounds = np.append(heads, len(order))
    for folds in _batches(np.flatnonzero(split), np.diff(bounds) + places):
        sizes = bounds[folds + 1] - bounds[folds]
        offsets = np.repeat(bounds[folds] - np.cumsum(sizes) + sizes, sizes)
        rows = offsets + np.arange(len(offsets))
        cell = np.repeat(np.arange(len(folds)) * places, sizes) + place[rows]
        command = order[rows]
        duration = commands.end[command] - commands.start[command]
        shape = (len(folds), places)
        count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        total = np.bincount(cell, duration, minlength=shape[0] * shape[1]).reshape(shape)
        tracks[folds] = np.count_nonzero(count, axis=1)
        busiest[folds] = total.max(axis=1).astype(np.int64)
    return tracks, busiest


def _batches(folds: Times, costs: Times) -> list[Times]:
    """`folds` in batches whose `costs`, by fold, hardly exceed `_BATCH`."""
    if not len(folds):
        return []
    done = np.cumsum(costs[folds])
    return np.split(folds, np.searchsorted(done, np.arange(_BATCH, done[-1], _BATCH)))


def operator_table(
    folds: Folds, frame: pl.DataFrame, commands: CommandArrays, calibration: pl.DataFrame
) -> pl.DataFrame:
    """One row a submodule, layer and host (`columns.OPERATORS`), longest busy sum first.

    `frame` holds the commands, `commands` their arrays; `calibration` has the columns `submodule`
    and `calibration`. `share` is the part of the busy sum of all rows with the same `host`: of
    all device time for operators of devices, of all host time for host commands; each of the two
    adds up to 1.
    """
    sums = (
        pl.DataFrame(
            {
                "key": folds.key,
                "commands": folds.commands,
                "wall": folds.wall,
                "busy": folds.busy,
                "possible": folds.wall * folds.tracks,
                "busiest": folds.busiest,
                "even": folds.busy / folds.tracks,
            }
        )
        .group_by("key", maintain_order=True)
        .agg(
            pl.len().alias("calls"),
            pl.col("commands", "busy", "possible", "busiest", "even").sum(),
            wall_union_ns=pl.col("wall").sum(),
            first_ns=pl.col("wall").first(),
            median_ns=pl.coalesce(pl.col("wall").slice(1).median(), pl.col("wall").first()),
        )
    )
    keys = pl.DataFrame(
        {"submodule": folds.submodules, "layer": folds.layers, "host": folds.host},
        schema={"submodule": pl.String, "layer": pl.String, "host": pl.Boolean},
    ).with_row_index("key")
    table = (
        sums.with_columns(pl.col("key").cast(pl.UInt32))
        .join(keys, on="key")
        .join(_places(folds, frame, commands), on="key")
        .join(calibration, on="submodule", how="left")
        .with_columns(
            busy_sum_ns=pl.col("busy"),
            commands_per_call=pl.col("commands") / pl.col("calls"),
            parallel_efficiency=_ratio(pl.col("busy"), pl.col("possible")),
            imbalance=_ratio(pl.col("busiest"), pl.col("even")),
            share=_ratio(pl.col("busy"), pl.col("busy").sum().over("host")),
            calibrated_ns=(pl.col("busy") * pl.col("calibration")).round(),
        )
        .sort(
            ["busy_sum_ns", "submodule", "layer", "host"],
            descending=[True, False, False, False],
        )
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(OPERATORS).items())


def _ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part / whole`, null where the whole is 0."""
    return pl.when(whole > 0).then(part / whole)


def _places(folds: Folds, frame: pl.DataFrame, commands: CommandArrays) -> pl.DataFrame:
    """For each key its op types by time, its devices and its number of tracks."""
    found = (
        frame.lazy()
        .select(
            "op_type",
            "device",
            "track",
            key=pl.Series(folds.of_command).cast(pl.UInt32),
            duration=pl.Series(commands.end - commands.start),
        )
        .group_by("key", "op_type", "device", "track")
        .agg(pl.col("duration").sum())
        .with_columns(pl.col("op_type", "device", "track").cast(pl.String))
        .collect()
    )
    types = (
        found.drop_nulls("op_type")
        .group_by("key", "op_type")
        .agg(pl.col("duration").sum())
        .sort(["duration", "op_type"], descending=[True, False])
        .group_by("key", maintain_order=True)
        .agg(op_types=pl.col("op_type").str.join(", "))
    )
    places = found.group_by("key").agg(
        devices=pl.col("device").drop_nulls().unique().sort().str.join(", "),
        tracks=pl.struct("device", "track").n_unique(),
    )
    return places.join(types, on="key", how="left").with_columns(pl.col("op_types").fill_null(""))
