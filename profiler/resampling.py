"""How far two medians differ, and how far they would by noise alone: a seeded bootstrap.

    Bootstrap().compare([100, 102, 99], [110, 113, 109])  # medians, and the interval between them

It is the one of comparisons, predictions and of what tracing costs; what draws by other rules than
medians of units takes its parts from here: `draws`, `ends`, `mean_widening`, `t_ratio`.

Each side has one value a unit: a run, a pipeline call, a step. Units are drawn with replacement,
as many as there are, and the median of each draw is kept (Efron 1979, Ann. Statist. 7(1), 1-26).
Percentiles of the draws of few units are too narrow (Hesterberg 2015, Am. Stat. 69(4), 371-386).
For a mean they would be widened by t(n - 1) / z, the quantiles of Student's and the normal
distribution; the median of few draws scatters more than their mean, and by simulation the root of
that keeps false calls of equal sides below 5 %: 1.5 for three units, 1.2 for five, 1.0 for twenty.
Two units need all of it, 6.5. `docs/diff.md` has the rates.

Times scatter by shares of themselves, so deviations are logarithms of ratios; differences, where a
time is 0.

A side of one unit borrows the scatter of the other: single values of it, relative to its median,
are drawn, smoothed by a normal kernel of the usual width (Silverman 1986, Density Estimation,
3.4.2) and widened by sqrt(n / (n - 1)) t(n - 1) / z.

The median of n drawn units depends on ranks alone. Their middle ranks are drawn directly: the
k-th of n uniform draws has the distribution Beta(k, n - k + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "CONFIDENCE",
    "RESAMPLES",
    "SEED",
    "Bootstrap",
    "Interval",
    "draws",
    "ends",
    "mean_widening",
    "t_ratio",
]

CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 0
_Z = 1.959964
_FURTHEST = 20.0  # e-folds; what scatters by more has no interval to speak of
# Quantiles of Student's t at 0.975 for 1 to 30 degrees of freedom.
_T = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)

_Reals = npt.NDArray[np.float64]
_Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """Medians of both sides and the interval of their difference `new - base`; None where
    neither side was measured more than once."""

    base: float
    new: float
    low: float | None
    high: float | None

    @property
    def exceeds_noise(self) -> bool:
        """Whether the interval leaves out no difference at all."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class Bootstrap:
    """Intervals of differences; the same values always have the same interval."""

    def __init__(self, resamples: int = RESAMPLES, seed: int = SEED) -> None:
        self._resamples = resamples
        self._seed = seed
        self._ranks: dict[tuple[int, int], tuple[_Ranks, _Ranks]] = {}

    def compare(self, base: Sequence[float], new: Sequence[float]) -> Interval:
        """The interval of the difference of the medians of two sides, each at least one value.

        A side with a single value is taken to scatter as the other does, relative to its median.
        """
        sides = [np.sort(np.asarray(values, dtype=np.float64)) for values in (base, new)]
        of_base, of_new = (float(np.median(values)) for values in sides)
        if max(map(len, sides)) < 2:
            return Interval(of_base, of_new, None, None)
        logs = bool(min(values[0] for values in sides) > 0)
        spread = self._deviations(1, sides[1], sides[0], logs=logs)
        spread -= self._deviations(0, sides[0], sides[1], logs=logs)
        low, high = ends(spread)
        if logs:
            low, high = np.exp(np.clip((low, high), -_FURTHEST, _FURTHEST)) * of_new - of_base
            return Interval(of_base, of_new, float(low), float(high))
        difference = of_new - of_base
        return Interval(of_base, of_new, float(difference + low), float(difference + high))

    def _deviations(self, side: int, values: _Reals, other: _Reals, *, logs: bool) -> _Reals:
        """How far the medians of the draws lie from the median of `values`, widened."""
        if len(values) == 1:
            shares = self._borrowed(side, other, logs=logs)
            return shares if logs else shares * values[0]
        lower, upper = self._middle(side, len(values))
        medians, median = (values[lower] + values[upper]) / 2, np.median(values)
        apart: _Reals = np.log(medians / median) if logs else medians - median
        return apart * _widening(len(values))

    def _borrowed(self, side: int, other: _Reals, *, logs: bool) -> _Reals:
        """Deviations of a single value, relative to it, as those of the single values of the other
        side, smoothed: the next value may lie beyond all of them."""
        n, median = len(other), float(np.median(other))
        if median == 0:
            return np.zeros(self._resamples)
        generator = np.random.default_rng((self._seed, side, n, 1))
        shares: _Reals = np.log(other / median) if logs else other / median - 1
        drawn = shares[generator.integers(0, n, self._resamples)]
        width = 1.06 * n**-0.2 * shares.std(ddof=1)
        smooth: _Reals = drawn + width * generator.standard_normal(self._resamples)
        return smooth * mean_widening(n)

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


def _widening(n: int) -> float:
    """By how much deviations of the median of n units are widened."""
    return t_ratio(n) if n == 2 else math.sqrt(t_ratio(n))


def mean_widening(n: int) -> float:
    """By how much deviations of single values, or of their mean, are widened that were drawn from
    `n` values, at least 2."""
    return math.sqrt(n / (n - 1)) * t_ratio(n)


def t_ratio(n: int) -> float:
    """t(n - 1) / z at 0.975 for `n` values, at least 2."""
    freedom = n - 1
    return (_T[freedom - 1] if freedom <= len(_T) else _Z + 2.4 / freedom) / _Z


def draws(n: int, resamples: int, generator: np.random.Generator) -> _Ranks:
    """Numbers of units, drawn from `n` with replacement, as many: int64 [resamples, n]."""
    return generator.integers(n, size=(resamples, n))


def ends(values: _Reals) -> tuple[float, float]:
    """Between which `CONFIDENCE` of what was drawn lies."""
    low, high = np.quantile(values, (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    return float(low), float(high)
