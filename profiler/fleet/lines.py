"""Drift: values that move a little with each run, by least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from profiler.fleet.scatter import LEAST_SPREAD, Reals, clipped, spread_of, student

__all__ = ["Line", "line_of"]


@dataclass(frozen=True, slots=True)
class Line:
    """`level` at the middle of the runs it was fitted to, `slope` a run, the spread about it, how
    likely such a slope is without drift, and what a prediction needs of the fit."""

    level: float
    slope: float
    spread: float
    p: float
    middle: float
    squares: float
    runs: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the spread."""
        return self.runs - 2

    def at(self, positions: Reals) -> Reals:
        """The values of the line at positions, from 0 at the first run."""
        return self.level + self.slope * (positions - self.middle)

    def error(self, position: float) -> float:
        """The standard error of the line at a position, in units of the spread."""
        return math.sqrt(1 / self.runs + (position - self.middle) ** 2 / self.squares)


def line_of(values: Reals) -> Line:
    """The line through values in the order of time, at least three, those far out clipped."""
    n = len(values)
    positions = np.arange(n, dtype=np.float64)
    middle = (n - 1) / 2
    squares = n * (n * n - 1) / 12
    rough = float((positions - middle) @ values) / squares
    kept = clipped(values - rough * (positions - middle)) + rough * (positions - middle)
    level = float(kept.mean())
    slope = float((positions - middle) @ kept) / squares
    spread = spread_of(values - level - slope * (positions - middle), n - 2)
    t = slope / (spread / math.sqrt(squares))
    return Line(level, slope, max(spread, LEAST_SPREAD), student(t, n - 2), middle, squares, n)
