"""Copies by direction: how fast they were, and how much of their time computation hid.

With |A| the length of the union of A, T the copies of one direction on a device and C what it
computed (commands of category compute or other),

    hidden = |T and C|        hidden_share = hidden / |T|

Collectives and fills (memset) are no copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.codes import CopyDirection
from profiler.analysis.waiting.coverage import InOrder, covered_before
from profiler.analysis.waiting.gap_columns import COPIES
from profiler.events import CATEGORIES
from profiler.table.batches import Times
from profiler.table.columns import schema
from profiler.table.run import Run
from profiler.table.tiles.stretches import Stretches

__all__ = ["copy_table"]

_COMPUTES = np.array([name in ("compute", "other") for name in CATEGORIES])
_MOVES = np.array([name in ("dma", "copy") for name in CATEGORIES])
_DMA = CATEGORIES.index("dma")
_NO_COPY = re.compile(r"memset|fill|nccl|rccl|collective", re.IGNORECASE)
_NAMED = (
    (re.compile(r"HtoD|HostToDevice|FromHost", re.IGNORECASE), CopyDirection.HOST_TO_DEVICE),
    (re.compile(r"DtoH|DeviceToHost|ToHost", re.IGNORECASE), CopyDirection.DEVICE_TO_HOST),
    (re.compile(r"HtoH|HostToHost", re.IGNORECASE), CopyDirection.HOST_TO_HOST),
)


def copy_table(run: Run, commands: CommandArrays) -> pl.DataFrame:
    """One row a device and direction (`columns.COPIES`), the longest of each device first;
    `commands` are those of `run`."""
    rows = np.flatnonzero(_MOVES[commands.category] & (commands.end > commands.start))
    rows = rows[commands.device[rows] < len(commands.devices)]
    direction = _directions(run, commands, rows)
    found = [
        row
        for device, name in enumerate(commands.devices)
        for row in _of_device(run, commands, device, name, rows, direction)
    ]
    table = pl.DataFrame(found, schema=schema(COPIES), orient="row")
    return table.sort("device", "wall_ns", descending=[False, True], maintain_order=True)


def _directions(run: Run, commands: CommandArrays, rows: Times) -> pl.Series:
    """The direction of each of some copies, null for what is none."""
    names = ("op_type", "kernel", "track")
    frame = run.commands.select(
        pl.concat_str(
            [pl.col(name).gather(rows).cast(pl.String) for name in names],
            separator=" ",
            ignore_nulls=True,
        ).alias("name")
    ).with_columns(dma=pl.Series(commands.category[rows] == _DMA))
    known = frame.unique()
    found = [_direction(name, dma=dma) for name, dma in known.iter_rows()]
    known = known.with_columns(direction=pl.Series(found, dtype=pl.String))
    return frame.join(known, on=["name", "dma"], how="left", maintain_order="left")["direction"]


def _direction(name: str, *, dma: bool) -> CopyDirection | None:
    if _NO_COPY.search(name):
        return None
    for pattern, direction in _NAMED:
        if pattern.search(name):
            return direction
    return CopyDirection.HOST_AND_DEVICE if dma else CopyDirection.DEVICE_TO_DEVICE


def _of_device(
    run: Run,
    commands: CommandArrays,
    device: int,
    name: str,
    rows: Times,
    direction: pl.Series,
) -> Iterator[tuple[object, ...]]:
    here = commands.device[rows] == device
    if not here.any():
        return
    computes = (commands.device == device) & _COMPUTES[commands.category]
    work = InOrder.of(commands.start, commands.end, computes)
    for code in CopyDirection:
        own = rows[here & (direction == code.value).fill_null(value=False).to_numpy()]
        if not len(own):
            continue
        start, end = commands.start[own], commands.end[own]
        union = Stretches.union(start, end)
        moments = np.stack((union.start, union.end), axis=1).ravel()
        covered = covered_before(work, moments)
        hidden = int((covered[1::2] - covered[::2]).sum())
        moved = pl.max_horizontal("bytes_read", "bytes_written")
        size = run.commands[own].select(moved.alias("bytes"))["bytes"]
        known = size.is_not_null().to_numpy()
        took = int((end - start)[known].sum())
        total = int(size.sum()) if known.any() else None
        yield (
            name,
            code.value,
            len(own),
            total,
            int((end - start).sum()),
            union.length,
            total / took if total is not None and took else None,
            hidden,
            hidden / union.length,
        )
