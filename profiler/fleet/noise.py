"""How noisy runs are, and how many are needed to tell a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiler.metrics import median_interval

__all__ = ["FEWEST_RUNS", "TOLD_APART", "ratio_interval", "relative_noise", "runs_needed"]

FEWEST_RUNS = 6
"""Runs below which a median has no 95 % interval."""
TOLD_APART = 0.05
"""The relative difference of two medians that enough runs tell from noise."""

_SCALE = 1.4826  # the MAD times this estimates the standard deviation of normal data
_MEDIAN = 1.2533  # standard error of a median of normal data against that of the mean
_Z = 1.96 + 0.84  # 5 % two-sided, power of 80 %
_MOST = 1000


def relative_noise(values: Sequence[float]) -> float | None:
    """Standard deviation over the median, by the median absolute deviation; by the range where
    there are fewer than four; None for fewer than two, or a median of 0."""
    if len(values) < 2:
        return None
    middle = median_interval(values)[0]
    if middle <= 0:
        return None
    if len(values) < 4:  # range over d2 of two and three (Shewhart)
        return (max(values) - min(values)) / (1.128 if len(values) == 2 else 1.693) / middle
    return _SCALE * median_interval([abs(value - middle) for value in values])[0] / middle


def runs_needed(values: Sequence[float], told_apart: float = TOLD_APART) -> int:
    """How many runs more it takes until a difference of `told_apart` between this median and
    another one of as many runs is told in four cases of five; at least until a median has an
    interval, and 1,000 at most."""
    noise = relative_noise(values)
    needed = FEWEST_RUNS
    if noise is not None:
        told = 2 * (_Z * _MEDIAN * noise / told_apart) ** 2
        needed = max(math.ceil(min(told, _MOST)), FEWEST_RUNS)
    return max(needed - len(values), 0)


def ratio_interval(
    values: Sequence[float], base: Sequence[float]
) -> tuple[float | None, float | None, float | None]:
    """The ratio of the medians, and its 95 % interval: relative half-widths of both medians'
    intervals, added in quadrature. The interval is None where either has too few values."""
    mine, theirs = median_interval(values), median_interval(base)
    if theirs[0] <= 0 or mine[0] <= 0:
        return None, None, None
    ratio = mine[0] / theirs[0]
    if None in (*mine, *theirs):
        return ratio, None, None
    down = math.hypot(1 - _of(mine, 1), _of(theirs, 2) - 1)
    up = math.hypot(_of(mine, 2) - 1, 1 - _of(theirs, 1))
    return ratio, ratio * max(1 - down, 0.0), ratio * (1 + up)


def _of(interval: tuple[float, float | None, float | None], end: int) -> float:
    bound = interval[end]
    assert bound is not None
    return bound / interval[0]
