"""The work of every kind of command of a run: by formula, else as its producer recorded it."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.work.formulas import work_of
from profiler.analysis.work.registry import Work
from profiler.analysis.work.shapes import parse_shapes
from profiler.run.intervals import Codes, Times, batches

__all__ = ["UNRATED", "WORK", "KindWork", "kind_work"]

WORK = pl.Schema(
    {
        "kind": pl.Int32(),
        "family": pl.String(),
        "dtype": pl.String(),
        "flops": pl.Int64(),
        "bytes_read": pl.Int64(),
        "bytes_written": pl.Int64(),
    }
)
"""The columns of `KindWork.table`: sums over all commands of a kind, null where not known."""

_RECORDED = ("flops", "bytes_read", "bytes_written")
# The shapes of these are those of the operator that asked for them.
_MOVES = ("dma", "copy", "collective")
UNRATED = ("host", "sync", "dma", "collective")
"""Categories of commands that no roofline of a device bounds: links have their own."""
_LARGEST = (1 << 63) - 1


class KindWork(Struct, frozen=True, eq=False):
    """The work of k kinds: `table` has the columns of `WORK`, one row a kind; `works` what the
    formula of one command gave, None where there is none or its shapes do not fit."""

    table: pl.DataFrame
    works: list[Work | None]


def kind_work(kinds: Kinds, commands: pl.DataFrame) -> KindWork:
    """What the kinds of `commands` compute and move.

    FLOPs that the producer recorded for every command of a kind stand before those of a formula;
    bytes only where no formula knows them (ONNX Runtime's leave out packed weights), and for
    transfers.
    """
    table = kinds.table
    known: dict[tuple[str | None, str | None], Work | None] = {}
    values: dict[tuple[str | None, str | None], tuple[int | None, ...]] = {}
    works: list[Work | None] = []
    sums: dict[str, list[int | None]] = {name: [] for name in _RECORDED}
    rows = zip(table["op_type"], table["shapes"], table["category"], table["commands"], strict=True)
    for op_type, shapes, category, count in rows:
        key = (op_type, shapes)
        if key not in known:
            known[key] = made = work_of(op_type, parse_shapes(shapes))
            values[key] = tuple(getattr(made, name) if made else None for name in _RECORDED)
        work = None if category in ("host", "sync", *_MOVES) else known[key]
        works.append(work)
        for name, value in zip(_RECORDED, values[key], strict=True):
            sums[name].append(_sum_of(work, value, count))
    for name in _RECORDED:
        needed = np.array([name == "flops" or value is None for value in sums[name]], dtype=bool)
        needed &= (table["category"] != "host").to_numpy()
        recorded = _recorded(kinds, commands[name], needed)
        sums[name] = [
            value if found is None else found
            for value, found in zip(sums[name], recorded, strict=True)
        ]
    found_table = pl.DataFrame(
        {
            "kind": table["kind"],
            "family": [work.family.value if work else None for work in works],
            "dtype": [work.dtype if work else None for work in works],
            **sums,
        },
        schema=WORK,
    )
    return KindWork(found_table, works)


def _sum_of(work: Work | None, value: int | None, commands: int) -> int | None:
    """What `commands` commands of a kind have of `value`, which `work` has of all its parts."""
    if work is None or value is None:
        return None
    total = value * commands // work.parts
    return total if total <= _LARGEST else None


def _recorded(kinds: Kinds, column: pl.Series, needed: np.ndarray) -> list[int | None]:
    """Sums over the `needed` kinds of what was recorded for each of their commands."""
    size = len(kinds)
    if not needed.any() or column.null_count() == len(column):
        return [None] * size
    known, sums = np.zeros(size, dtype=np.int64), np.zeros(size)  # sums are exact to 2^53
    for rows in batches(len(column)):
        code, values = _needed(kinds.of_command[rows], column[rows], needed)
        known += np.bincount(code, minlength=size)
        sums += np.bincount(code, values, size)
    complete = known == kinds.table["commands"].to_numpy()
    return [
        min(max(int(s), 0), _LARGEST) if k and c else None
        for s, k, c in zip(sums.tolist(), known, complete, strict=True)
    ]


def _needed(codes: Codes, column: pl.Series, needed: np.ndarray) -> tuple[Codes, Times]:
    """Codes and values of the rows that are needed and have a value."""
    keep = needed[codes]
    if column.null_count():
        keep &= column.is_not_null().to_numpy()
    rows = np.flatnonzero(keep)
    return codes[rows], column.gather(rows).to_numpy()
