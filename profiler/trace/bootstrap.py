"""Confidence intervals of timing differences: a seeded bootstrap of medians.

    Bootstrap().compare([100, 102, 99], [110, 113, 109])  # medians and their interval

Comparisons, predictions and profiling overhead all use it. Each side has one value per unit: a run,
a pipeline call or a step. Deviations are logarithms of ratios, or differences if any time is 0.
Percentiles of few units are too narrow, so they are widened to keep false positives below 5 %;
`docs/diff.md` has the rates. A side of one unit uses the spread of the other side. If the units are
(nearly) equal, a spread of `LEAST_SPREAD` (0.5 %) is assumed, and the interval has `assumed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

# --- Words of comparisons: closed sets.


class Resampled(StrEnum):
    """The units from which an interval is computed."""

    RUNS = "runs"
    PIPELINE_CALLS = "pipeline_calls"
    STEPS = "steps"
    CALLS = "calls"


# --- How far two medians differ, and how far they would by noise alone: a seeded bootstrap.
#
#     Bootstrap().compare([100, 102, 99], [110, 113, 109])  # medians and their interval
#
# Comparisons, predictions and profiling overhead use it. Code that draws by other rules than
# medians of units uses its parts: `draws`, `ends`, `mean_widening`, `t_ratio`.
#
# Each side has one value per unit: a run, a pipeline call, a step. Units are drawn with
# replacement, as many as there are, and the median of each draw is kept (Efron 1979, Ann. Statist.
# 7(1), 1-26). Percentiles of the draws of few units are too narrow (Hesterberg 2015, Am. Stat.
# 69(4), 371-386). For a mean they would be widened by t(n - 1) / z, the quantiles of Student's and
# the normal distribution; the median of few draws scatters more than their mean, and by simulation
# the root of that keeps false calls of equal sides below 5 %: 1.5 for three units, 1.2 for five,
# 1.0 for twenty. Two units need all of it, 6.5. `docs/diff.md` has the rates.
#
# Times scatter by shares of themselves, so deviations are logarithms of ratios; differences, if a
# time is 0.
#
# A side of one unit borrows the scatter of the other: single values of it, relative to its median,
# are drawn, smoothed by a normal kernel of the usual width (Silverman 1986, Density Estimation,
# 3.4.2) and widened by sqrt(n / (n - 1)) t(n - 1) / z.
#
# Units that are all equal show the resolution of a clock or a simulator, not noise, and two may
# be close by chance. Their interval must not have zero width: their spread is taken to be
# `LEAST_SPREAD` of the median, a standard deviation of 0.5 %. NVBench takes a time as measured
# when its relative deviation falls below that (`--max-noise`); three steps of one SD3.5 run on an
# MI300X have 0.13 %.
#
# - Two units: the deviations of both are scaled until theirs is at least that, so half of the
#   interval is 6.5 * 0.5 % / sqrt(2), 2.3 %.
# - Three and more that are equal: normal deviations of it, widened as above but not less for more
#   units, since what rounds one rounds all: half of the interval is 1.96 * 0.5 % * 1.5 for three,
#   1 % for many.
# - A single unit borrows that of the other side; if all of those are 0 nothing is known.
#
# An interval that needed it has `assumed`.
#
# The median of n drawn units depends on ranks alone. Their middle ranks are drawn directly: the
# k-th of n uniform draws has the distribution Beta(k, n - k + 1).


CONFIDENCE = 0.95  # of comparisons and of profiling overhead
PREDICTED_CONFIDENCE = 0.90  # of predictions
RESAMPLES = 2000
SEED = 0
LEAST_SPREAD = 0.005  # standard deviation of units, relative, if none can be observed
_FURTHEST = 20.0  # e-folds; intervals are clipped to this
_Z = {CONFIDENCE: 1.959964, PREDICTED_CONFIDENCE: 1.644854}  # two-sided, of a normal distribution
# Quantiles of Student's t, two-sided as well, for 1 to 30 degrees of freedom. For more degrees,
# `_FURTHER` divided by them is the distance from z.
_T = {
    CONFIDENCE: (
        *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
        *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
        *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
    ),
    PREDICTED_CONFIDENCE: (
        *(6.3138, 2.9200, 2.3534, 2.1318, 2.0150, 1.9432, 1.8946, 1.8595, 1.8331, 1.8125),
        *(1.7959, 1.7823, 1.7709, 1.7613, 1.7531, 1.7459, 1.7396, 1.7341, 1.7291, 1.7247),
        *(1.7207, 1.7171, 1.7139, 1.7109, 1.7081, 1.7056, 1.7033, 1.7011, 1.6991, 1.6973),
    ),
}
_FURTHER = {CONFIDENCE: 2.4, PREDICTED_CONFIDENCE: 1.55}

_Reals = npt.NDArray[np.float64]
_Ranks = npt.NDArray[np.int64]


class Interval(Struct, frozen=True):
    """Medians of both sides and the interval of their difference `new - base`. The interval is None
    if both sides have a single value, or if one does and the other's values are all 0.

    `assumed`: `LEAST_SPREAD` was used as the spread of a side, because its values show none.
    """

    base: float
    new: float
    low: float | None
    high: float | None
    assumed: bool = False

    @property
    def exceeds_noise(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class Bootstrap:
    """Computes intervals of differences; the same values always have the same interval."""

    def __init__(self, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        self._resamples = resamples
        self._seed = seed
        self._ranks: dict[tuple[int, int], tuple[_Ranks, _Ranks]] = {}

    def compare(self, base: Sequence[float], new: Sequence[float]) -> Interval:
        """The interval of the difference of the medians of two sides, each at least one value.

        A side with a single value is assumed to have the relative spread of the other side.
        """
        sides = [np.sort(np.asarray(values, dtype=np.float64)) for values in (base, new)]
        of_base, of_new = (float(np.median(values)) for values in sides)
        if max(map(len, sides)) < 2:
            return Interval(of_base, of_new, None, None)
        assumed = any(_is_unobserved(values) for values in sides if len(values) > 1)
        lengths = [len(values) for values in sides]
        if min(lengths) == 1 and not sides[lengths.index(max(lengths))].any():
            return Interval(of_base, of_new, None, None, assumed)
        logs = bool(min(values[0] for values in sides) > 0)
        unit = 1.0 if logs else max(of_base, of_new)
        spread = self._deviations(1, sides[1], sides[0], unit, logs=logs)
        spread -= self._deviations(0, sides[0], sides[1], unit, logs=logs)
        low, high = ends(spread)
        if logs:
            low, high = np.exp(np.clip((low, high), -_FURTHEST, _FURTHEST)) * of_new - of_base
            return Interval(of_base, of_new, float(low), float(high), assumed)
        difference = of_new - of_base
        return Interval(of_base, of_new, float(difference + low), float(difference + high), assumed)

    def _deviations(
        self, side: int, values: _Reals, other: _Reals, unit: float, *, logs: bool
    ) -> _Reals:
        """Deviations of the draws' medians from the median of `values`, widened: logarithms, or
        differences, as multiples of `unit`."""
        n = len(values)
        if n == 1:
            shares = self._borrowed(side, other, logs=logs)
            return shares if logs else shares * values[0]
        apart = _apart(values, unit, logs=logs)
        if not apart.any():
            return unit * self._least(side, n) * _widening(n)
        lower, upper = self._middle(side, n)
        if logs:  # the logarithm of the mean of the middle values
            drawn = np.log((np.exp(apart[lower]) + np.exp(apart[upper])) / 2)
        else:
            drawn = (apart[lower] + apart[upper]) / 2
        return drawn * _widening(n)

    def _borrowed(self, side: int, other: _Reals, *, logs: bool) -> _Reals:
        """Relative deviations of a single value: those of the other side's values, smoothed,
        because the next value may lie beyond all of them."""
        n, median = len(other), float(np.median(other))
        if median == 0:
            return np.zeros(self._resamples)
        unit = 1.0 if logs else median
        shares = _apart(other, unit, logs=logs) / unit
        if not shares.any():
            return self._least(side, n) * mean_widening(n)
        generator = np.random.default_rng((self._seed, side, n, 1))
        drawn = shares[generator.integers(0, n, self._resamples)]
        width = 1.06 * n**-0.2 * shares.std(ddof=1)
        smooth: _Reals = drawn + width * generator.standard_normal(self._resamples)
        return smooth * mean_widening(n)

    def _least(self, side: int, n: int) -> _Reals:
        """Normal deviations of `LEAST_SPREAD`, for `n` units that show no spread."""
        generator = np.random.default_rng((self._seed, side, n, 2))
        return LEAST_SPREAD * generator.standard_normal(self._resamples)

    def _middle(self, side: int, n: int) -> tuple[_Ranks, _Ranks]:
        """The lower and upper middle rank, from 0, of n draws from n units, for each resample."""
        known = self._ranks.get((side, n))
        if known is None:
            generator = np.random.default_rng((self._seed, side, n))
            k = (n + 1) // 2
            lower = generator.beta(k, n - k + 1, self._resamples)
            upper = lower
            if n % 2 == 0:  # the next one is the least of the n - k draws above
                upper = lower + (1 - lower) * generator.beta(1, n - k, self._resamples)
            ranks = [np.minimum((part * n).astype(np.int64), n - 1) for part in (lower, upper)]
            known = self._ranks[side, n] = (ranks[0], ranks[1])
        return known


def _is_unobserved(values: _Reals) -> bool:
    """Whether sorted values show no spread: all are equal, or they are two that differ by less than
    `LEAST_SPREAD` implies."""
    apart = float(values[-1] - values[0])
    return apart == 0 or (
        len(values) == 2 and apart < math.sqrt(2) * LEAST_SPREAD * float(values.mean())
    )


def _apart(values: _Reals, unit: float, *, logs: bool) -> _Reals:
    """Differences of sorted values, at least two, from their median, or logarithms of ratios. Two
    values that show no spread get `LEAST_SPREAD`. Zeros if three or more are equal."""
    median = np.median(values)
    if len(values) == 2 and _is_unobserved(values):
        return unit * LEAST_SPREAD / math.sqrt(2) * np.array((-1.0, 1.0))
    return np.log(values / median) if logs else values - median


def _widening(n: int) -> float:
    """By how much deviations of the median of n units are widened."""
    return t_ratio(n) if n == 2 else math.sqrt(t_ratio(n))


def mean_widening(n: int, confidence: float = CONFIDENCE) -> float:
    """The factor by which deviations of single values, or of their mean, are widened if they were
    drawn from `n` values, at least 2."""
    return math.sqrt(n / (n - 1)) * t_ratio(n, confidence)


def t_ratio(n: int, confidence: float = CONFIDENCE) -> float:
    """t(n - 1) / z of a two-sided interval for `n` values, at least 2."""
    freedom, z, known = n - 1, _Z[confidence], _T[confidence]
    further = z + _FURTHER[confidence] / freedom
    return (known[freedom - 1] if freedom <= len(known) else further) / z


def draws(n: int, resamples: int, generator: np.random.Generator) -> _Ranks:
    """Numbers of units, drawn from `n` with replacement, as many: int64 [resamples, n]."""
    return generator.integers(n, size=(resamples, n))


def ends(values: _Reals, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The bounds of the central `confidence` share of the drawn values."""
    low, high = np.quantile(values, (0.5 - confidence / 2, 0.5 + confidence / 2))
    return float(low), float(high)
