"""The commands of each kind by where they ran and in which kernel: few sums that stand for many.

What a table says of devices, tracks and kernels follows from them without another look at the
commands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.run.intervals import Codes, Times, batches, codes_of_text

__all__ = ["kind_cells", "sums_of"]

_FEW = 1 << 18  # combinations that are counted in an array
_Column = tuple[Callable[[slice], Codes], int]


@shared
def kind_cells(of: Inputs) -> pl.DataFrame:
    """One row a `kind` (Int32), `device`, `track` and `kernel` (texts, null for none) of the
    selected commands: how many `commands` it has, and their `total_ns` (Int64 each)."""
    commands, kinds = of.commands, of.kinds
    track, tracks = codes_of_text(of.frame["track"])
    kernel, kernels = codes_of_text(of.frame["kernel"])
    columns: list[_Column] = [
        (kinds.of_command.__getitem__, len(kinds)),
        (commands.device.__getitem__, len(commands.devices) + 1),
        (track, len(tracks) + 1),
        (kernel, len(kernels) + 1),
    ]
    codes, count, total = sums_of(columns, commands.start, commands.end)
    names = (commands.devices, tracks, kernels)
    texts = [
        pl.Series([*known, None], dtype=pl.String).gather(column)
        for known, column in zip(names, codes[1:], strict=True)
    ]
    return pl.DataFrame(
        {
            "kind": codes[0].astype(np.int32),
            **dict(zip(("device", "track", "kernel"), texts, strict=True)),
            "commands": count,
            "total_ns": total,
        }
    )


def sums_of(
    columns: Sequence[_Column], start: Times, end: Times
) -> tuple[list[Times], Times, Times]:
    """Each combination of codes that rows from `start` to `end` have, in order: the code of each
    column, the number of rows and their time, int64 each.

    A column gives the codes of some rows, from 0, and says how many there may be.
    """
    if math.prod(size for _, size in columns) <= _FEW:
        return _counted(columns, start, end)
    return _grouped(columns, start, end)


def _counted(
    columns: Sequence[_Column], start: Times, end: Times
) -> tuple[list[Times], Times, Times]:
    combinations = math.prod(size for _, size in columns)
    count, total = np.zeros((2, combinations), dtype=np.int64)
    for rows in _batches(len(start)):
        code = np.zeros(rows.stop - rows.start, dtype=np.int64)
        for codes, size in columns:
            code *= size
            code += codes(rows)
        count += np.bincount(code, minlength=combinations)
        took = np.bincount(code, end[rows] - start[rows], combinations)
        total += took.astype(np.int64)  # exact to 2^53
    some = np.flatnonzero(count)
    found = (
        np.unravel_index(some, [size for _, size in columns])
        if len(some)
        else [some] * len(columns)
    )
    return [*found], count[some], total[some]


def _grouped(
    columns: Sequence[_Column], start: Times, end: Times
) -> tuple[list[Times], Times, Times]:
    keys = [f"key {number}" for number in range(len(columns))]
    parts = [
        pl.DataFrame(
            {
                key: codes(rows).astype(np.int64)
                for key, (codes, _) in zip(keys, columns, strict=True)
            }
        )
        .with_columns(total=pl.Series(end[rows] - start[rows]))
        .group_by(keys)
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("total").sum())
        for rows in _batches(len(start))
    ]
    found = pl.concat(parts).group_by(keys).agg(pl.col("count", "total").sum()).sort(keys)
    codes = [found[key].to_numpy() for key in keys]
    return codes, found["count"].to_numpy(), found["total"].to_numpy()


def _batches(rows: int) -> Iterator[slice]:
    """Slices that end with the rows."""
    return (slice(batch.start, min(batch.stop, rows)) for batch in batches(rows))
