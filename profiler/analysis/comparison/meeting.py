"""Where two sides meet: under which names, at which level, and what they have there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from profiler.analysis.comparison.align import align_modules
from profiler.analysis.comparison.codes import Level
from profiler.analysis.comparison.levels import (
    Common,
    by_sorts,
    common_levels,
    compared_by,
    finest,
)
from profiler.analysis.comparison.measure import Measurement
from profiler.analysis.comparison.operations import by_kernel, by_node, by_shape, sums_of
from profiler.analysis.comparison.pairs import paired
from profiler.text import Note

__all__ = ["Meeting", "meeting"]

_OF_MODEL = (Level.MODULE, Level.ROLE)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Both sides as they are compared; `modules` for `samples_of`; `tables` by their name in a
    `Comparison`; `renamed` where submodules had no names in common."""

    base: Sequence[Measurement]
    new: Sequence[Measurement]
    modules: tuple[pl.DataFrame, pl.DataFrame]
    tables: Mapping[str, pl.DataFrame]
    level: Level
    notes: tuple[Note, ...]
    renamed: bool


def meeting(base: Sequence[Measurement], new: Sequence[Measurement]) -> Meeting:
    """Bring two sides together; what they are compared by is said where it is not the modules."""
    pair = paired(base, new)
    sides = (pair.base, pair.new)
    modules = align_modules(*sides)
    sums = (sums_of(pair.base), sums_of(pair.new))
    tables = {
        Level.SHAPE: by_shape(*sums),
        Level.KERNEL: by_kernel(*sums),
        Level.NODE: by_node(*sides),
    }
    totals = tuple(float(one["total_ns"].sum()) for one in sums)
    levels = common_levels(sides, modules, tables, (totals[0], totals[1]))
    if not _of_model(levels):
        sides = by_sorts(sides)
        modules = (modules[0].clear(), modules[1].clear())
    elif not levels[Level.MODULE].enough and pair.note is not None:
        modules = (modules[0].clear(), modules[1].clear())
    shown = {
        f"{level}s": table if level in levels and levels[level].enough else table.clear()
        for level, table in tables.items()
    }
    level = finest(levels)
    producers = {run.info.producer for side in sides for run in side}
    said = level is not Level.MODULE or len(producers) > 1
    notes = [pair.note, compared_by(levels) if said else None]
    return Meeting(
        sides[0],
        sides[1],
        modules,
        shown,
        level,
        tuple(note for note in notes if note is not None),
        pair.note is not None,
    )


def _of_model(levels: Mapping[Level, Common]) -> bool:
    """Whether roles of both sides are told in the same words: those of the model."""
    if any(levels[level].enough for level in _OF_MODEL):
        return True
    return levels[Level.SORT].least <= levels[Level.ROLE].least
