"""The finest level at which two sides can be compared: that where most of both has a counterpart.

Producers know different things of a model: some its modules, some its operators, some the names of
kernels alone. A level is used where at least half of either side's time lies in what both sides
have there; below it all would be "only in one side".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from profiler.analysis.comparison.align import REST
from profiler.analysis.comparison.codes import ComparisonNote, Level, Side
from profiler.analysis.comparison.inferences import AVERAGED
from profiler.analysis.comparison.measure import Measurement
from profiler.text import Note

__all__ = ["Common", "Sides", "by_sorts", "common_levels", "compared_by", "finest"]

Sides = tuple[Sequence[Measurement], Sequence[Measurement]]
_ENOUGH = 0.5  # of the time of either side
_OTHER = "other"
_IN_MODULE = r"[./]"  # of a path that names a module around the operation


@dataclass(frozen=True, slots=True)
class Common:
    """How much of the time of the baseline and of the new runs lies in what both have at a level;
    None for a side that knows nothing there."""

    base: float | None
    new: float | None

    @property
    def least(self) -> float:
        """The share of the side that has less in common."""
        return min(self.base or 0.0, self.new or 0.0)

    @property
    def enough(self) -> bool:
        """Whether the sides can be compared by it."""
        return self.least >= _ENOUGH

    @property
    def lacking(self) -> tuple[Side, ...]:
        """The sides that know nothing."""
        shares = ((Side.BASE, self.base), (Side.NEW, self.new))
        return tuple(side for side, share in shares if share is None)


def common_levels(
    sides: Sides,
    modules: tuple[pl.DataFrame, pl.DataFrame],
    tables: Mapping[Level, pl.DataFrame],
    totals: tuple[float, float],
) -> dict[Level, Common]:
    """What the sides have in common at each level, from the finest. `modules` are what
    `align_modules` made of them; `tables` have a row a shape, kernel or node, of sides whose
    operations take the `totals` in ns."""
    work = [_work(side) for side in sides]
    paths = [
        own.join(names.filter(pl.col("level") == "module"), on=["submodule", "role", "module"])
        .filter(~pl.col("as").is_in(["", REST]))
        .filter(pl.col("module").str.contains(_IN_MODULE))
        for own, names in zip(work, modules, strict=True)
    ]
    named = [own.filter(pl.col("role") != _OTHER) for own in work]
    found = {
        Level.MODULE: _joined(paths, ("submodule", "role", "as")),
        Level.ROLE: _joined(named, ("submodule", "role")),
        Level.SORT: _joined(work, ("submodule", _sort(work))),
        Level.SUBMODULE: _joined(work, ("submodule",)),
        **tables,
    }
    of_work = tuple(float(own["total_ns"].sum()) for own in work)
    shares = {
        level: _common(table, totals if level in tables else of_work)
        for level, table in found.items()
    }
    found_modules = shares[Level.MODULE]
    base, new = (
        (share or 0.0) if own["module"].str.contains(_IN_MODULE).any() else None
        for own, share in zip(work, (found_modules.base, found_modules.new), strict=True)
    )
    shares[Level.MODULE] = Common(base, new)
    engine = any(run.info.producer == AVERAGED for side in sides for run in side)
    return {one: shares[one] for one in Level if one in shares and (one != Level.NODE or engine)}


def finest(levels: Mapping[Level, Common]) -> Level:
    """The first level at which most of both sides is in common."""
    return next((one for one, common in levels.items() if common.enough), Level.SUBMODULE)


def compared_by(levels: Mapping[Level, Common]) -> Note:
    """At which level, and why at none that is finer."""
    level = finest(levels)
    why = tuple(_why(levels, level))
    if not why:
        return Note.of(ComparisonNote.COMPARED_BY_FINEST, level=level)
    return Note.of(ComparisonNote.COMPARED_BY, level=level, why=why)


def by_sorts(sides: Sides) -> Sides:
    """The sides with what commands do, as kernels or operators tell it, in place of their roles."""
    sort = _sort([_work(side) for side in sides])
    base, new = (
        [replace(run, work=run.work.with_columns(role=pl.col(sort))) for run in side]
        for side in sides
    )
    return base, new


def _work(side: Sequence[Measurement]) -> pl.DataFrame:
    return pl.concat([run.work for run in side])


def _sort(work: Sequence[pl.DataFrame]) -> str:
    """Kernels tell what is done where both sides have them."""
    told = [float(own.filter(pl.col("by_kernel") != "")["total_ns"].sum()) for own in work]
    enough = [
        some >= _ENOUGH * float(own["total_ns"].sum()) for some, own in zip(told, work, strict=True)
    ]
    return "by_kernel" if all(enough) else "by_operator"


def _joined(work: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Times of both sides by what is compared, null where one has none."""
    base, new = (own.group_by(keys).agg(pl.col("total_ns").sum()) for own in work)
    both = base.join(new, on=keys, how="full", coalesce=True, suffix="_of_new")
    return both.select(base_ns="total_ns", new_ns="total_ns_of_new")


def _common(table: pl.DataFrame, totals: Sequence[float]) -> Common:
    both = table.drop_nulls(["base_ns", "new_ns"])
    shares = [
        None if not table[name].count() else float(both[name].sum()) / total if total else 0.0
        for name, total in zip(("base_ns", "new_ns"), totals, strict=True)
    ]
    return Common(*shares)


def _why(levels: Mapping[Level, Common], chosen: Level) -> Iterator[Note]:
    """Why each finer level was not taken."""
    for level, common in levels.items():
        if level is chosen:
            return
        lacking = common.lacking
        if len(lacking) > 1:
            yield Note.of(ComparisonNote.NEITHER, level=level)
        elif lacking:
            yield Note.of(ComparisonNote.NOT_IN, level=level, side=lacking[0])
        elif not common.base and not common.new:
            yield Note.of(ComparisonNote.NONE_IN_COMMON, level=level)
        else:
            yield Note.of(
                ComparisonNote.FEW_IN_COMMON,
                level=level,
                base_share=common.base or 0.0,
                new_share=common.new or 0.0,
            )
