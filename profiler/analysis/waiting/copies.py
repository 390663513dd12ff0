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
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.codes import CopyDirection
from profiler.analysis.waiting.coverage import InOrder, union_and_shared
from profiler.analysis.waiting.gap_columns import COPIES
from profiler.run.columns import schema
from profiler.run.intervals import batches, physical_codes
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES

__all__ = ["copy_table"]

_COMPUTES = np.array([name in ("compute", "other") for name in CATEGORIES])
_MOVES = np.array([name in ("dma", "copy") for name in CATEGORIES])
_DMA = CATEGORIES.index("dma")
_NONE = len(CopyDirection)
_NO_COPY = re.compile(r"memset|fill|nccl|rccl|collective", re.IGNORECASE)
_NAMED = (
    (re.compile(r"HtoD|HostToDevice|FromHost", re.IGNORECASE), CopyDirection.HOST_TO_DEVICE),
    (re.compile(r"DtoH|DeviceToHost|ToHost", re.IGNORECASE), CopyDirection.DEVICE_TO_HOST),
    (re.compile(r"HtoH|HostToHost", re.IGNORECASE), CopyDirection.HOST_TO_HOST),
)


def copy_table(run: Run, commands: CommandArrays) -> pl.DataFrame:
    """One row a device and direction (`columns.COPIES`), the longest of each device first;
    `commands` are those of `run`."""
    found: list[tuple[object, ...]] = []
    direction = _directions(run, commands)
    if direction is not None:
        for device, name in enumerate(commands.devices):
            found += _of_device(run, commands, device, name, direction)
    table = pl.DataFrame(found, schema=schema(COPIES), orient="row")
    return table.sort("device", "wall_ns", descending=[False, True], maintain_order=True)


def _directions(run: Run, commands: CommandArrays) -> npt.NDArray[np.uint8] | None:
    """The direction of each command as its place in `CopyDirection`, `_NONE` for what is no copy or
    takes no time, uint8 [n]; None where there is none."""
    rows = len(commands.start)
    if not any(_MOVES[commands.category[part]].any() for part in batches(rows)):
        return None
    names = [_NameMarks.of(run.commands[column]) for column in ("op_type", "kernel", "track")]
    found = np.full(rows, _NONE, dtype=np.uint8)
    for part in batches(rows):
        moves = _MOVES[commands.category[part]] & (commands.end[part] > commands.start[part])
        if moves.any():
            marks = names[0].marks(part) | names[1].marks(part) | names[2].marks(part)
            marks |= np.where(commands.category[part] == _DMA, _IS_DMA, np.uint8(0))
            found[part] = np.where(moves, _MEANING[marks], _NONE)
    return found


class _NameMarks(Struct, frozen=True, eq=False):
    """What the names in a column of categories tell, a bit each: the patterns of `_PATTERNS` that
    are found in it. `table` has them by the column's code, nothing for null."""

    column: pl.Series
    table: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, column: pl.Series) -> _NameMarks:
        present = column.unique().drop_nulls()
        codes = present.to_physical().to_numpy()
        table = np.zeros(int(codes.max(initial=0)) + 2, dtype=np.uint8)
        table[codes] = [_marks(name) for name in present.cast(pl.String)]
        return cls(column, table)

    def marks(self, rows: slice) -> npt.NDArray[np.uint8]:
        found: npt.NDArray[np.uint8] = self.table[
            physical_codes(self.column, rows, len(self.table) - 1)
        ]
        return found


def _marks(name: str) -> int:
    return sum(1 << bit for bit, pattern in enumerate(_PATTERNS) if pattern.search(name))


def _meaning(marks: int) -> int:
    """The place in `CopyDirection` of a copy whose names and category have these marks."""
    no_copy, *named = (bool(marks >> bit & 1) for bit in range(len(_PATTERNS)))
    if no_copy:
        return _NONE
    otherwise = CopyDirection.DEVICE_TO_DEVICE
    if marks & _IS_DMA:
        otherwise = CopyDirection.HOST_AND_DEVICE
    told = [code for there, (_, code) in zip(named, _NAMED, strict=True) if there]
    return [*CopyDirection].index(next(iter(told), otherwise))


_PATTERNS = (_NO_COPY, *(pattern for pattern, _ in _NAMED))
_IS_DMA = np.uint8(1 << len(_PATTERNS))
_MEANING = np.array([_meaning(marks) for marks in range(2 * int(_IS_DMA))], dtype=np.uint8)


def _of_device(
    run: Run, commands: CommandArrays, device: int, name: str, direction: npt.NDArray[np.uint8]
) -> Iterator[tuple[object, ...]]:
    here = commands.device == device
    directions = np.bincount(direction[here], minlength=_NONE + 1)[:_NONE]
    if not directions.any():
        return
    work = InOrder.of(commands.start, commands.end, here & _COMPUTES[commands.category])
    for place, code in enumerate(CopyDirection):
        if not directions[place]:
            continue
        copies = InOrder.of(commands.start, commands.end, here & (direction == place))
        wall, hidden = union_and_shared(copies, work)
        total, took, size = _sums(run, copies)
        yield (
            name,
            code.value,
            len(copies),
            size,
            total,
            wall,
            size / took if size is not None and took else None,
            hidden,
            hidden / wall,
        )


def _sums(run: Run, copies: InOrder) -> tuple[int, int, int | None]:
    """How long copies took, how long those whose size is known, and that size: None where none
    is."""
    total, took, size, known = 0, 0, 0, 0
    moved = run.commands.select("bytes_read", "bytes_written")
    told = any(column.null_count() < len(column) for column in moved)
    for places in batches(len(copies)):
        length = copies.ends(places) - copies.starts(places)
        total += int(length.sum())
        if told:
            rows = places if copies.rows is None else copies.rows[places]
            own = moved[rows].select(pl.max_horizontal(pl.all())).to_series()
            there = own.is_not_null().to_numpy()
            took += int(length[there].sum())
            size += int(own.sum())
            known += int(np.count_nonzero(there))
    return total, took, size if known else None
