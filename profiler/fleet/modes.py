"""Two modes: runs that take one of two times, in no order, as with a cache that is warm or not.

found = two_modes(relative(values))      # None where one mode explains them
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from profiler.fleet.scatter import LEAST_SPREAD, Reals

__all__ = ["Modes", "two_modes"]

_APART = 4.5  # standard deviations within a mode between two modes
_LEAST_RUNS = 3  # of a mode
_LEAST_SHARE = 0.1
_LEAST_SWITCHES = 4  # from run to run between modes: a step has one


@dataclass(frozen=True, slots=True)
class Modes:
    """Centres of the lower and the upper mode, on the scale of what was given; how many runs are in
    the upper one, and which (bool [n])."""

    low: float
    high: float
    border: float
    share: float
    is_high: np.typing.NDArray[np.bool_]

    def residuals(self, values: Reals) -> Reals:
        """Each value less the centre of the mode that it is nearest to."""
        return np.where(values > self.border, values - self.high, values - self.low)


def two_modes(values: Reals) -> Modes | None:
    """The modes of values in the order of time, at least six of them; None for one mode.

    The split with the least squares within both parts (Otsu 1979; exact in one dimension) is
    believed where its centres are 4.5 standard deviations within a part from each other (halves
    of a normal distribution: 2.7), each part has a tenth of the runs and three, and runs go to
    and fro: a step has two parts as well.
    """
    n = len(values)
    least = max(_LEAST_RUNS, math.ceil(_LEAST_SHARE * n))
    if n < 2 * least:
        return None
    ordered = np.sort(values)
    centred = ordered - ordered.mean()
    sums, squares = np.cumsum(centred), np.cumsum(centred**2)
    sizes = np.arange(least, n - least + 1)
    low, high = sums[sizes - 1] / sizes, (sums[-1] - sums[sizes - 1]) / (n - sizes)
    within = squares[-1] - sizes * low**2 - (n - sizes) * high**2
    best = int(np.argmin(within))
    spread = max(math.sqrt(max(float(within[best]), 0.0) / (n - 2)), LEAST_SPREAD)
    if high[best] - low[best] < _APART * spread:
        return None
    size = int(sizes[best])
    border = float(ordered[size - 1] + ordered[size]) / 2
    is_high = values > border
    if int(np.count_nonzero(np.diff(is_high))) < _LEAST_SWITCHES:
        return None
    middle = float(ordered.mean())
    return Modes(
        float(low[best]) + middle, float(high[best]) + middle, border, 1 - size / n, is_high
    )
