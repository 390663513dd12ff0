"""How runs of one metric scatter: relative deviations, a robust spread, Student's test.

Times scatter by shares of themselves, so deviations are logarithms of ratios (as in `resampling`).
NumPy alone: SciPy is no dependency, and the quantiles that are needed have closed approximations.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "LEAST_SPREAD",
    "Reals",
    "clipped",
    "relative",
    "spread_of",
    "step_spread",
    "student",
    "two_sided",
]

Reals = npt.NDArray[np.float64]

LEAST_SPREAD = 0.0005
"""The least standard deviation that is believed: 0.05 % of a value. Values that agree more closely
tell the grain of a clock."""

_NORMAL = 1.4826  # standard deviations in a median absolute deviation of a normal distribution
_FAR = 5.0  # robust standard deviations beyond which a value is clipped
_DIFFERENCES = 2 / math.sqrt(math.pi)  # mean |a - b| of normal a, b, in standard deviations


def relative(values: Reals) -> Reals:
    """Values on a scale on which a difference is a ratio: logarithms where all are above 0, else
    shares of the median magnitude. float64 [n], in and out."""
    if not len(values):
        return values
    if values.min() > 0:
        logs: Reals = np.log(values)
        return logs
    unit = float(np.median(np.abs(values))) or float(np.abs(values).max()) or 1.0
    shares: Reals = values / unit
    return shares


def clipped(values: Reals) -> Reals:
    """`values` with those far out (5 robust standard deviations) moved to that distance."""
    middle = float(np.median(values))
    reach = _FAR * _NORMAL * float(np.median(np.abs(values - middle)))
    if reach == 0:
        return values
    return np.clip(values, middle - reach, middle + reach)


def spread_of(residuals: Reals, freedom: int) -> float:
    """The standard deviation of residuals about 0 with so many degrees of freedom, those far out
    clipped; at least `LEAST_SPREAD`."""
    if freedom < 1:
        return LEAST_SPREAD
    kept = clipped(residuals)
    return max(math.sqrt(float(kept @ kept) / freedom), LEAST_SPREAD)


def step_spread(values: Reals) -> float:
    """The standard deviation of noise from one value to the next, which steps and slopes of the
    values hardly touch (von Neumann 1941, Ann. Math. Stat. 12(4), with absolute differences)."""
    if len(values) < 2:
        return LEAST_SPREAD
    apart = np.abs(np.diff(values))
    return max(float(clipped(apart).mean()) / _DIFFERENCES, LEAST_SPREAD)


def student(t: float, freedom: int) -> float:
    """The two-sided p value of Student's `t`, by Wallace's approximation (1959, Ann. Math. Stat.
    30(4), 1124-1130, formula 3.2): within 3 % from 5 degrees of freedom on, down to 1e-5."""
    if freedom < 1:
        return 1.0
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return two_sided(scale * math.sqrt(freedom * math.log1p(t * t / freedom)))


def two_sided(z: float) -> float:
    """The probability that a standard normal variable lies further from 0 than `z`."""
    return math.erfc(abs(z) / math.sqrt(2))
