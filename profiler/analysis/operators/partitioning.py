"""Operators that were split: over tracks, over devices, into computing and moving data.

Each is shown as a whole, then its computing and its data movement (categories dma and copy) by
themselves, then its part on each device. Numbers are those of `operators`, of the commands of the
part; `gap_ns` is the time between a part's first command in a call and its last in which none of
it ran. A stream of a GPU does one thing after the other, kernels, copies and fills: an operator
that has all of its commands on one is not split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.arrays import CommandArrays, queue_codes
from profiler.analysis.expressions import ratio
from profiler.analysis.operators.codes import SplitPart
from profiler.analysis.operators.columns import PARTITIONING
from profiler.analysis.operators.folds import SUMS, Folds, fold_by
from profiler.run.columns import schema
from profiler.run.intervals import Codes, batches
from profiler.trace.events import CATEGORIES

__all__ = ["partitioning_table"]

_MOVES = np.isin(CATEGORIES, ("dma", "copy", "collective"))
_PARTS = tuple(part.value for part in SplitPart)
_Flags = npt.NDArray[np.bool_]


def partitioning_table(
    folds: Folds, calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays
) -> pl.DataFrame:
    """One row an operator that was split, and each of its parts (`columns.PARTITIONING`).

    Operators are in order of their total, longest first. Arguments are those of `fold`, and what
    it gave.
    """
    moves, device = _MOVES[commands.category], commands.device
    devices = len(commands.devices) + 1
    moving = _varies(folds, 2, lambda rows: moves[rows])
    several = _varies(folds, devices, lambda rows: device[rows])
    split = moving.copy()
    split[folds.key[folds.tracks > 1]] = True
    if split.any():
        queue, queues = queue_codes(frame["track"])
        split &= _varies(
            folds, devices * queues, lambda rows: device[rows] * np.int64(queues) + queue[rows]
        )
        moving &= split
    split |= several
    on_device = ~np.array(folds.host, dtype=np.bool_)
    whole = pl.DataFrame({name: getattr(folds, name) for name in SUMS})
    kept = whole.filter(pl.Series((split & on_device)[folds.key]))
    parts = [_row_of(kept.with_columns(pl.lit(-1, pl.Int64).alias("code")), part=0)]
    by_device = _refolded(several & on_device, device, folds, calls, frame, commands)
    by_category = _refolded(moving & on_device, moves.view(np.int8), folds, calls, frame, commands)
    parts.append(_row_of(by_category, part=pl.col("code") + 1))
    parts.append(_row_of(by_device, part=3))
    return _table(pl.concat(parts), by_device, folds, commands.devices)


def _varies(folds: Folds, width: int, codes: Callable[[slice], Codes | _Flags]) -> _Flags:
    """Which operators have commands of different codes below `width`; `codes` has those of some
    rows."""
    found = np.zeros(len(folds.layers) * width, dtype=np.bool_)
    for rows in batches(len(folds.of_command)):
        found[folds.of_command[rows] * np.int64(width) + codes(rows)] = True
    several: _Flags = found.reshape(len(folds.layers), width).sum(axis=1) > 1
    return several


def _refolded(
    marked: _Flags,
    codes: Codes,
    folds: Folds,
    calls: pl.DataFrame,
    frame: pl.DataFrame,
    commands: CommandArrays,
) -> pl.DataFrame:
    """The `marked` operators of single calls, folded by code: the sums of `Folds` and `code`."""
    width = int(codes.max(initial=0)) + 1
    limit = len(marked) * width
    columns, key = frame.select("pipeline", "track"), folds.of_command
    if not marked.all():
        rows = np.flatnonzero(marked[key]) if marked.any() else np.zeros(0, dtype=np.int64)
        names = ("call", "step", "start", "end", "device", "category")
        commands = replace(commands, **{name: getattr(commands, name)[rows] for name in names})
        columns, key, codes = columns[rows], key[rows], codes[rows]
    dtype = np.dtype(np.int32 if limit < 1 << 31 else np.int64)
    key = key.astype(dtype) * dtype.type(width) + codes
    sums: dict[str, Any] = fold_by(key, limit, calls, columns, commands)
    found = pl.DataFrame({name: sums[name].astype(np.int64) for name in SUMS})
    return found.with_columns(key=pl.col("key") // width, code=pl.col("key") % width)


def _row_of(folded: pl.DataFrame, part: int | pl.Expr) -> pl.DataFrame:
    """The folds of single calls added up: one row a key and code, numbered as a `part`."""
    even = pl.col("working_busy") / pl.col("working_tracks")
    possible = (pl.col("wall") * pl.col("working_tracks")).sum()
    number = part if isinstance(part, pl.Expr) else pl.lit(part, pl.Int64)
    return (
        folded.with_columns(pl.col(name).cast(pl.Int64) for name in SUMS)
        .group_by("key", "code")
        .agg(
            calls=pl.len().cast(pl.Int64),
            commands=pl.col("commands").sum(),
            tracks=pl.col("tracks").max(),
            wall_ns=pl.col("wall").sum(),
            total_ns=pl.col("busy").sum(),
            gap_ns=(pl.col("extent") - pl.col("wall")).sum(),
            parallelism=ratio(pl.col("busy").sum(), pl.col("wall").sum()),
            parallel_utilization=ratio(pl.col("working_busy").sum(), possible),
            imbalance=ratio(pl.col("busiest").sum(), even.sum()),
        )
        .with_columns(part=number)
    )


def _table(
    parts: pl.DataFrame, by_device: pl.DataFrame, folds: Folds, devices: tuple[str, ...]
) -> pl.DataFrame:
    """Keys and codes replaced by names, in order."""
    most = pl.col("busy").max().over("key", "call")
    mean = pl.col("busy").mean().over("key", "call")
    uneven = (
        by_device.with_columns(most=most, mean=mean)
        .group_by("key")
        .agg(device_imbalance=ratio(pl.col("most").sum(), pl.col("mean").sum()))
    )
    keys = pl.DataFrame(
        {"submodule": folds.submodules, "layer": folds.layers},
        schema={"submodule": pl.String, "layer": pl.String},
    ).with_row_index("key")
    names = dict(enumerate(devices))
    of_device = pl.when(pl.col("part") == 3).then(pl.col("code"))
    whole = pl.col("total_ns").filter(pl.col("part") == 0).sum().over("key")
    table = (
        parts.join(keys.with_columns(pl.col("key").cast(pl.Int64)), on="key")
        .join(uneven, on="key", how="left")
        .with_columns(
            whole=whole,
            device=of_device.replace_strict(names, default=None, return_dtype=pl.String),
            device_imbalance=pl.when(pl.col("part") == 0).then(pl.col("device_imbalance")),
        )
        .sort(
            ["whole", "submodule", "layer", "part", "device"],
            descending=[True, False, False, False, False],
        )
    )
    named = table.with_columns(
        pl.col("part").replace_strict(dict(enumerate(_PARTS)), return_dtype=pl.String)
    )
    return named.select(pl.col(n).cast(t) for n, t in schema(PARTITIONING).items())
