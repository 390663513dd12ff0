"""Are the newest runs outside their history? A sequential test, for the gate.

    newest(values).outside      # of the last run, and up to five before it

The newest one to six runs are each held against the runs before them: Student's t of their mean,
the spread taken from the history. It asks another question than `change_points`, which looks back
at the whole history and finds where it changed; a change is seen here first, and confirmed there.

- Where the history drifts (p below 0.05), the runs are held against the line, continued, with the
  error of that. Elsewhere a step has to explain them better than a line through all of it would,
  for a drift that 30 runs still hide looks like a step to a mean of several: four and five runs
  have the power for a large margin, and their level is decided by it more than by p.
- Levels and margins were chosen together, on generated histories, so that at most `alpha / family`
  of the runs of an unchanged or a drifting history are outside, `family` being the number of
  metrics that are gated together. They are no bound that holds for all histories, as the sum of the
  levels would be.
- Where it has two modes, a run is held against the mode that it is nearest to, and a run of newest
  runs all in one mode against that mode's share.
- The newest run must itself lie well out to the same side, and in means of several each counts
  with at most four standard deviations: neither does one run that is far out colour those after it,
  nor does a mean that is outside by chance stay so for six runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from profiler.fleet.lines import line_of
from profiler.fleet.modes import Modes, two_modes
from profiler.fleet.scatter import (
    LEAST_SPREAD,
    Reals,
    clipped,
    relative,
    spread_of,
    student,
)

__all__ = ["ALPHA", "LEAST_RUNS", "Newest", "history_needed", "newest"]

ALPHA = 0.01
LEAST_RUNS = 8
"""The fewest runs of history: below, their own spread is hardly known."""

_WINDOWS = 6  # newest runs that are looked at together
_REFERENCE = 60  # runs of history that are looked at
_DRIFTS = 0.05  # p of a slope, below which the history may drift
_PARTS = (0.067, 0.047, 0.032, 1.24, 0.51, 0.047)  # of the level, by the number of newest runs
_BETTER = (3.0, 3.0, 3.0, 7.0, 5.0, 0.0)
"""Squares, in variances of a run, that a step explains beyond what a line does; by their number."""
_OF_LINE = (0.047,) * _WINDOWS  # parts where the history drifts
_OF_MODES = (0.107,) * _WINDOWS  # and where it has two modes
_FURTHEST = 4.0  # standard deviations that a run counts with in a mean of several
_SAME_SIDE = 1.7  # standard deviations by which the newest run has to deviate as well
_OF_SHARES = 0.2  # the part of alpha that the shares of modes are tested with


@dataclass(frozen=True, slots=True)
class Newest:
    """What the newest runs say.

    `runs`: how many newest runs tell most. `change`: their mean over what was expected, less 1, a
    ratio. `p`: the probability of that or more without a change, corrected for the windows and the
    family. `expected`, `low`, `high`: what the history expects of the newest run, and the interval
    of one run at the level asked, in the unit of the values. `spread`: the standard deviation of
    the history, a ratio.
    """

    outside: bool
    runs: int
    change: float
    p: float
    expected: float
    low: float
    high: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Expected:
    """Residuals of the newest runs, the spread of one, the standard error of their expectation in
    units of it, degrees of freedom, and the parts of the level that tests of one to six runs
    have."""

    residuals: Reals
    spread: float
    error: float
    freedom: int
    expectation: float
    parts: tuple[float, ...] = _PARTS


def newest(
    values: Reals, *, alpha: float = ALPHA, family: int = 1, earlier: Reals | None = None
) -> Newest | None:
    """Hold the last of `values`, in the order of time, against those before it; None where there
    are fewer than `LEAST_RUNS` before it.

    `earlier` are relative residuals of runs before the last change, each about its own level: they
    tell the spread where the level itself is known from few runs.
    """
    scale = relative(values)
    known = np.empty(0) if earlier is None else earlier
    level = alpha / family
    found: tuple[float, int, _Expected] | None = None
    shares = 1.0
    for m in range(1, _WINDOWS + 1):
        history = scale[:-m][-_REFERENCE:]
        if len(history) + len(known) < LEAST_RUNS or len(history) < 1:
            break
        modes = two_modes(history) if len(history) >= LEAST_RUNS else None
        expected = _expected(history, scale[-m:], known, modes)
        p = _p(expected, m) / expected.parts[m - 1]
        if modes is not None:
            shares = min(shares, _share_p(modes, scale[-m:]) * _WINDOWS / _OF_SHARES)
        elif expected.parts is _PARTS:
            margin = _BETTER[m - 1] + 2 * math.log(ALPHA / level)
            if _beats_line(history, scale[-m:], expected.spread) < margin:
                p = 1.0
        if found is None or p < found[0]:
            found = p, m, expected
    return None if found is None else _newest(values, scale, found, shares, level, family)


def _newest(
    values: Reals,
    scale: Reals,
    found: tuple[float, int, _Expected],
    shares: float,
    level: float,
    family: int,
) -> Newest:
    p, m, expected = found
    p = min(p, shares, 1.0)
    reach = _quantile(level * expected.parts[0], expected.freedom) * expected.spread
    reach *= math.sqrt(1 + expected.error**2)
    is_log = bool(values.min() > 0)
    unit = 1.0 if is_log or not scale[-1] else float(values[-1] / scale[-1])

    def back(at: float) -> float:
        return math.exp(min(at, 700.0)) if is_log else at * unit

    middle = expected.expectation
    change = float(np.mean(scale[-m:] - middle))
    return Newest(
        outside=p <= level,
        runs=m,
        change=math.expm1(min(change, 700.0)) if is_log else change,
        p=min(p * family, 1.0),
        expected=back(middle),
        low=back(middle - reach),
        high=back(middle + reach),
        spread=expected.spread,
    )


def _expected(history: Reals, last: Reals, known: Reals, modes: Modes | None) -> _Expected:
    n, m = len(history), len(last)
    if modes is not None:
        spread = spread_of(modes.residuals(history), n - 2)
        level = float(clipped(history).mean())
        rest = min(modes.share, 1 - modes.share) * n
        residuals = modes.residuals(last)
        return _Expected(residuals, spread, 1 / math.sqrt(rest), n - 2, level, _OF_MODES)
    if n >= LEAST_RUNS:
        line = line_of(history)
        if line.p < _DRIFTS:
            positions = np.arange(n, n + m, dtype=np.float64)
            error = line.error(n + (m - 1) / 2)
            ahead = line.at(positions)
            return _Expected(last - ahead, line.spread, error, n - 2, float(ahead[-1]), _OF_LINE)
    level = float(clipped(history).mean())
    residuals = np.concatenate((known[-_REFERENCE:], history - level))
    freedom = len(residuals) - 1 - bool(len(known))
    spread = spread_of(residuals, freedom)
    return _Expected(last - level, spread, 1 / math.sqrt(n), freedom, level)


def _p(expected: _Expected, m: int) -> float:
    """The two-sided p of the mean of the newest runs; 1 where the last of them is no part of it."""
    shares = expected.residuals / expected.spread
    if m > 1:
        shares = np.clip(shares, -_FURTHEST, _FURTHEST)
    mean = float(shares.mean())
    if m > 1 and float(shares[-1]) * math.copysign(1.0, mean) < _SAME_SIDE:
        return 1.0
    return student(mean / math.sqrt(1 / m + expected.error**2), expected.freedom)


def _beats_line(history: Reals, last: Reals, spread: float) -> float:
    """The squares, in variances of a run, by which a step before `last` explains more of the values
    than a line through all of them."""
    n, m = len(history), len(last)
    together = np.concatenate((history, last))
    reach = _FURTHEST * spread  # what is far out is no sign of a line
    together = np.clip(together, history.mean() - reach, history.mean() + reach)
    step = n * m / (n + m) * float(together[n:].mean() - together[:n].mean()) ** 2
    positions = np.arange(n + m) - (n + m - 1) / 2
    line = float(positions @ together) ** 2 / float(positions @ positions)
    return (step - line) / spread**2


def _share_p(modes: Modes, last: Reals) -> float:
    """How likely it is that all newest runs are in one mode by chance; 1 where they are not."""
    n = len(modes.is_high)
    high = last > modes.border
    if high.all():
        share = (modes.share * n + 1) / (n + 2)
    elif not high.any():
        share = ((1 - modes.share) * n + 1) / (n + 2)
    else:
        return 1.0
    return float(share ** len(last))


def _quantile(p: float, freedom: int) -> float:
    """Student's t whose two-sided p value is `p`, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, freedom) > p else (low, middle)
    return high


def history_needed(values: Reals, limit: float, *, alpha: float = ALPHA, family: int = 1) -> int:
    """How many more runs of history the gate needs to see one run that is slower by `limit`, a
    ratio; 0 where it has enough, -1 where no number of runs would do, because single runs scatter
    by too much."""
    n = len(values)
    if n < LEAST_RUNS:
        return LEAST_RUNS - n
    history = relative(values)[-_REFERENCE:]
    spread = max(
        spread_of(history - float(clipped(history).mean()), len(history) - 1), LEAST_SPREAD
    )
    for more in range(_REFERENCE):
        runs = n + more
        reach = _quantile(alpha / family * _PARTS[0], runs - 1) * spread * math.sqrt(1 + 1 / runs)
        if reach <= math.log1p(limit):
            return more
    return -1
