"""Several runs beside a first one, each compared with it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler.analysis.comparison.compare import Comparison, compare
from profiler.analysis.comparison.gate import Gate
from profiler.analysis.comparison.measure import Measurement
from profiler.errors import InputError

__all__ = ["Compared", "compare_each"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A side by its name, compared with the first one, and the gates that it was held against."""

    name: str
    comparison: Comparison
    gates: Sequence[Gate] = ()


def compare_each(sides: Sequence[Sequence[Measurement]]) -> tuple[Comparison, ...]:
    """Compare each of `sides` but the first with the first, in order.

    Times are scaled to untraced calls where that can be done in all of them, so that the first side
    has the same times in every comparison. Raises InputError for less than two sides, or one
    without a run.
    """
    if len(sides) < 2:
        raise InputError("a comparison needs two sides: give at least two runs")
    base, *others = sides
    among = [run for side in sides for run in side]
    return tuple(compare(base, new, among=among) for new in others)
