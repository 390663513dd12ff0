"""Detect changes, drift and bimodality in the history of a metric.

    history = change_points(values)
    history.changes        # steps, in the order of time
    history.drifts         # intervals that move a little with each run: no change
    history.modes          # of the runs since the last change, if they take one of two times

The method is E-divisive on medians with a permutation test: screen, divide, test (p < 0.001),
then separate drift by BIC. Deviations are logarithms of ratios. NumPy suffices; SciPy is not
needed. `newest` tests the last few runs and sees a change earlier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiler.tools.metrics import median_interval

# --- The noise of runs, and the number of runs needed to detect a difference.


FEWEST_RUNS = 6
"""Runs below which a median has no 95 % interval."""
TOLD_APART = 0.05
"""The relative difference of two medians that enough runs can distinguish from noise."""

_SCALE = 1.4826  # the MAD times this estimates the standard deviation of normal data
_MEDIAN = 1.2533  # standard error of a median of normal data against that of the mean
_Z = 1.96 + 0.84  # 5 % two-sided, power of 80 %
_MOST = 1000


def relative_noise(values: Sequence[float]) -> float | None:
    """Compute the standard deviation over the median, from the median absolute deviation, or from
    the range of fewer than four; None for fewer than two, or a median of 0."""
    if len(values) < 2:
        return None
    middle = median_interval(values)[0]
    if middle <= 0:
        return None
    if len(values) < 4:  # range over d2 of two and three (Shewhart)
        return (max(values) - min(values)) / (1.128 if len(values) == 2 else 1.693) / middle
    return _SCALE * median_interval([abs(value - middle) for value in values])[0] / middle


def runs_needed(values: Sequence[float]) -> int:
    """How many runs more it takes until a difference of `TOLD_APART` between this median and
    another one of as many runs is told in four cases of five; at least until a median has an
    interval, and 1,000 at most."""
    noise = relative_noise(values)
    needed = FEWEST_RUNS
    if noise is not None:
        runs = 2 * (_Z * _MEDIAN * noise / TOLD_APART) ** 2
        needed = max(math.ceil(min(runs, _MOST)), FEWEST_RUNS)
    return max(needed - len(values), 0)


def ratio_interval(
    values: Sequence[float], base: Sequence[float]
) -> tuple[float | None, float | None, float | None]:
    """The ratio of the medians, and its 95 % interval: relative half-widths of both medians'
    intervals, added in quadrature. The interval is None if either has too few values."""
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


# --- The scatter of one metric's runs: relative deviations, a robust spread, Student's test.
#
# Times scatter in proportion to themselves, so deviations are logarithms of ratios (as in
# `resampling`). NumPy suffices: SciPy is no dependency, and the required quantiles have closed
# approximations.


Reals = npt.NDArray[np.float64]

LEAST_SPREAD = 0.0005
"""The smallest standard deviation that is plausible: 0.05 % of a value. Values that agree more
closely show the resolution of a clock."""

_NORMAL = 1.4826  # standard deviations in a median absolute deviation of a normal distribution
_FAR = 5.0  # robust standard deviations beyond which a value is clipped
_DIFFERENCES = 2 / math.sqrt(math.pi)  # mean |a - b| of normal a, b, in standard deviations


def relative(values: Reals) -> Reals:
    """Values on a scale on which a difference is a ratio: logarithms if all are above 0, else
    shares of the median magnitude. float64 [n], in and out."""
    if not len(values):
        return values
    if values.min() > 0:
        return np.log(values)
    unit = float(np.median(np.abs(values))) or float(np.abs(values).max()) or 1.0
    return values / unit


def clipped(values: Reals) -> Reals:
    """Move outliers in `values` to a distance of 5 robust standard deviations."""
    middle = float(np.median(values))
    reach = _FAR * _NORMAL * float(np.median(np.abs(values - middle)))
    if reach == 0:
        return values
    return np.clip(values, middle - reach, middle + reach)


def spread_of(residuals: Reals, freedom: int) -> float:
    """Compute the standard deviation of residuals about 0 with `freedom` degrees of freedom,
    outliers clipped; at least `LEAST_SPREAD`."""
    if freedom < 1:
        return LEAST_SPREAD
    kept = clipped(residuals)
    return max(math.sqrt(float(kept @ kept) / freedom), LEAST_SPREAD)


def step_spread(values: Reals) -> float:
    """Estimate the standard deviation of noise from differences of consecutive values, which
    steps and slopes hardly affect (von Neumann 1941, Ann. Math. Stat. 12(4), with absolute
    differences)."""
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
    """Compute the probability that a standard normal variable is further from 0 than `z`."""
    return math.erfc(abs(z) / math.sqrt(2))


# --- Drift: values that move a little with each run, by least squares.


@dataclass(frozen=True, slots=True)
class Line:
    """A line fitted to runs: `level` at their middle, `slope` per run, the spread about it, the p
    value of the slope, and what a prediction needs of the fit."""

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
    """Fit a line to at least three values in order of time, with outliers clipped."""
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


# --- Two modes: runs that take one of two times, in no order, as with a warm or cold cache.
#
# found = two_modes(relative(values))      # None if one mode explains them


_APART = 4.5  # standard deviations within a mode between two modes
_LEAST_RUNS = 3  # of a mode
_LEAST_SHARE = 0.1
_LEAST_SWITCHES = 4  # from run to run between modes: a step has one


@dataclass(frozen=True, slots=True)
class Modes:
    """Two modes: the centres of the lower and the upper one, on the scale of the values; the share
    of runs in the upper one, and which runs these are (bool [n])."""

    low: float
    high: float
    border: float
    share: float
    is_high: np.typing.NDArray[np.bool_]

    def residuals(self, values: Reals) -> Reals:
        """Return each value minus the centre of its nearest mode."""
        return np.where(values > self.border, values - self.high, values - self.low)


def two_modes(values: Reals) -> Modes | None:
    """Find two modes in at least six values in order of time; None for one mode.

    The split with the smallest sum of squares within both parts (Otsu 1979; exact in one dimension)
    is accepted if its centres are 4.5 standard deviations within a part from each other (halves of
    a normal distribution: 2.7), each part has a tenth of the runs and at least three, and runs
    alternate between them, because a step has two parts as well.
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


# --- Change points of a history: E-divisive on medians with a permutation test, looking back.
#
#     found = change_points(values)
#     found.changes          # steps, in order of time
#     found.drifts           # intervals that move a little with each run: no change
#     found.modes            # of the runs since the last change, if they take one of two times
#
# 1. Screen: at each position the medians of up to 30 runs on both sides, in units of the noise from
#    run to run. Local maxima beyond 3 standard errors are candidates, so that long histories take
#    linear time.
# 2. Divide: a candidate is placed where the energy distance with medians (James, Kejariwal,
#    Matteson 2016, "Leveraging cloud data to mitigate user experience from breaking bad", EDM) of
#    its window is largest: `l r / (l + r) (2 med|x - y| - med|x - x'| - med|y - y'|)`.
# 3. Test: the largest standardised difference of means of clipped values over all positions of the
#    window, against that of permuted windows (2,000, seeded, fewer if it is clear). If runs are
#    exchangeable, also with two modes, this is exact. The weakest candidate is dropped and its
#    neighbours are tested again, until all have p below 0.001.
# 4. Drift: steps in one direction that a line through the same runs explains as well (BIC) are one
#    drift. Steps that beat a line by less than 6 are neither, until there are more runs.
#
# `newest` tests the last few runs, and detects a change before it can be placed here.


_SIDE = 30  # runs of a side of a window
_LEAST = 4  # runs per side: fewer are not placed
_SCREEN = 3.0  # standard errors
_LEVEL = 0.001  # p of a change
_PERMUTATIONS = 2000
_EFFICIENCY = 1.2533  # standard error of a median over that of a mean, normal noise
_BETTER = 6.0  # BIC by which steps must beat a line: strong evidence (Kass and Raftery 1995)
_DRIFT_P = 1e-4  # p of a slope that is reported
_LEAST_OF_MODES = 24  # runs: 4 in 1,000 histories of one mode look like two; of 10 runs: 46
_ROUNDS = 3
_SEED = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level. `at`: position of the first run after it. `before`, `after`: medians of
    the runs between it and its neighbours, in the unit of the values. `change`: their ratio minus
    1. `p` of the permutation test."""

    at: int
    before: float
    after: float
    change: float
    p: float


@dataclass(frozen=True, slots=True)
class Drift:
    """A drift: runs from `first` to before `end` move by the ratio `slope` per run."""

    first: int
    end: int
    slope: float


@dataclass(frozen=True, slots=True)
class Found:
    """The changes, drifts and modes of a history. `since`: position of the first run after the last
    change."""

    changes: tuple[Change, ...]
    drifts: tuple[Drift, ...]
    modes: Modes | None

    @property
    def since(self) -> int:
        return self.changes[-1].at if self.changes else 0


def change_points(values: Reals) -> Found:
    """Find changes, drifts and modes in a metric's values, in order of time. float64 [n], any n."""
    n = len(values)
    scale = relative(values)
    points = dict.fromkeys(_candidates(scale), 0.0)
    _drop_chance(scale, points, {})
    drifts = _without_drifts(scale, points)  # before placing: a long drift has many steps
    _placed_and_tested(scale, points)
    drifts += _without_drifts(scale, points)
    changes = []
    edges = [0, *sorted(points), n]
    for left, at, right in zip(edges, edges[1:], edges[2:], strict=False):
        before = float(np.median(values[max(left, at - 2 * _SIDE) : at]))
        after = float(np.median(values[at : min(right, at + 2 * _SIDE)]))
        change = after / before - 1 if before else math.copysign(math.inf, after)
        changes.append(Change(at, before, after, change, points[at]))
    last = scale[edges[-2] :]
    if len(last) >= 2 * _LEAST and not any(drift.end == n for drift in drifts):
        drifts.extend(_of_line(line_of(last[-2 * _SIDE :]), n - len(last[-2 * _SIDE :]), n))
    modes = two_modes(last[-2 * _SIDE :]) if len(last) >= _LEAST_OF_MODES else None
    return Found(tuple(changes), _merged(drifts), modes)


def _merged(drifts: list[Drift]) -> tuple[Drift, ...]:
    """Merge overlapping drifts of one direction, with the slope of the longest."""
    found: list[Drift] = []
    for each in sorted(drifts, key=lambda drift: drift.first):
        last = found[-1] if found else None
        if last is not None and each.first < last.end and each.slope * last.slope > 0:
            longest = max(last, each, key=lambda drift: drift.end - drift.first)
            found[-1] = Drift(last.first, max(last.end, each.end), longest.slope)
        else:
            found.append(each)
    return tuple(found)


def _of_line(line: Line, first: int, end: int) -> Iterator[Drift]:
    if line.p < _DRIFT_P and abs(line.slope) * (end - first) > 2 * LEAST_SPREAD:
        yield Drift(first, end, math.expm1(line.slope))


def _candidates(scale: Reals) -> list[int]:
    """Find positions whose two sides differ by more than noise: the local maxima."""
    n = len(scale)
    if n < 2 * _LEAST:
        return []
    noise = step_spread(scale)
    found: dict[int, float] = {}
    for side in (_LEAST, 8, 15, _SIDE):
        if n < 2 * side:
            break
        medians = np.median(np.lib.stride_tricks.sliding_window_view(scale, side), axis=1)
        apart = np.abs(medians[side:] - medians[:-side])
        apart /= noise * _EFFICIENCY * math.sqrt(2 / side)
        for left in np.flatnonzero(apart > _SCREEN).tolist():
            found[left + side] = max(found.get(left + side, 0.0), float(apart[left]))
    kept: list[int] = []
    for at in sorted(found, key=lambda each: (-found[each], each)):
        if all(abs(at - other) > _LEAST for other in kept):
            kept.append(at)
    return sorted(kept)


def _placed_and_tested(scale: Reals, points: dict[int, float]) -> None:
    """Drop the points that chance explains, and move the others to their best place. Points that
    move to the same place are merged, which widens windows, so these are tested again."""
    tested: dict[tuple[int, int], float] = {}
    for _ in range(_ROUNDS):
        _drop_chance(scale, points, tested)
        places: dict[int, float] = {}
        for first, at, end in _windows(sorted(points), len(scale)):
            place = first + _place(scale[first:end])
            if all(abs(place - other) >= _LEAST for other in places):
                places[place] = points[at]
        unmoved = places.keys() == points.keys()
        points.clear()
        points.update(places)
        if unmoved:
            return
    _drop_chance(scale, points, tested)


def _windows(points: list[int], n: int) -> Iterator[tuple[int, int, int]]:
    """Yield each point with the start and end of its window: its neighbours, or 60 runs."""
    edges = [0, *points, n]
    for left, at, right in zip(edges, edges[1:], edges[2:], strict=False):
        yield max(left, at - 2 * _SIDE), at, min(right, at + 2 * _SIDE)


def _drop_chance(
    scale: Reals, points: dict[int, float], tested: dict[tuple[int, int], float]
) -> None:
    """Take out the point with the largest p, until none is above the level."""
    while points:
        for first, at, end in _windows(sorted(points), len(scale)):
            if (first, end) not in tested:
                tested[first, end] = _p(scale[first:end])
            points[at] = tested[first, end]
        worst = max(points, key=lambda at: (points[at], at))
        if points[worst] <= _LEVEL:
            return
        del points[worst]


def _p(window: Reals) -> float:
    """Compute the p value of the largest difference of means over all positions."""
    n = len(window)
    if n < 2 * _LEAST:
        return 1.0
    kept = clipped(window)
    kept = kept - kept.mean()
    sizes = np.arange(_LEAST, n - _LEAST + 1)
    scales = np.sqrt(n / (sizes * (n - sizes)))

    def largest(rows: Reals) -> Reals:
        sums = np.cumsum(rows, axis=1)[:, sizes - 1]
        of_rows: Reals = np.abs(sums * scales).max(axis=1)
        return of_rows

    seen = float(largest(kept[None])[0]) * (1 - 1e-12)
    generator = np.random.default_rng((_SEED, n))
    as_large = done = 0
    for batch in (50, 350, _PERMUTATIONS - 400):
        drawn = generator.permuted(np.broadcast_to(kept, (batch, n)), axis=1)
        as_large += int(np.count_nonzero(largest(drawn) >= seen))
        done += batch
        if as_large > 1:
            break
    return (as_large + 1) / (done + 1)


def _place(window: Reals) -> int:
    """Find the split with the largest energy distance with medians: the size of the left side."""
    n = len(window)
    if n < 2 * _LEAST:
        return n // 2
    apart = np.abs(window[:, None] - window[None, :])
    best, place = -math.inf, n // 2
    for size in range(_LEAST, n - _LEAST + 1):
        across = float(np.median(apart[:size, size:]))
        within = float(np.median(apart[:size, :size])) + float(np.median(apart[size:, size:]))
        energy = size * (n - size) / n * (2 * across - within)
        if energy > best:
            best, place = energy, size
    return _refined(window, place)


def _refined(window: Reals, place: int) -> int:
    """Move the split by a few runs to where both sides deviate least from their medians: medians of
    distances hardly notice one run on the wrong side, but the split names a commit."""
    near = range(max(_LEAST, place - _LEAST), min(len(window) - _LEAST, place + _LEAST) + 1)

    def apart(size: int) -> float:
        sides = (window[:size], window[size:])
        return sum(float(np.abs(side - np.median(side)).sum()) for side in sides)

    return min(near, key=lambda size: (apart(size), abs(size - place)))


def _without_drifts(scale: Reals, points: dict[int, float]) -> list[Drift]:
    """Remove points of one-directional steps that a line explains as well; return the drifts."""
    edges = [0, *sorted(points), len(scale)]
    levels = [float(np.median(scale[a:b])) for a, b in pairwise(edges)]
    drifts: list[Drift] = []
    start = 1
    while start < len(edges) - 1:
        up = levels[start] > levels[start - 1]
        stop = start
        while stop + 1 < len(edges) - 1 and (levels[stop + 1] > levels[stop]) == up:
            stop += 1
        group = edges[start : stop + 1]
        first = max(edges[start - 1], group[0] - 2 * _SIDE)
        end = min(edges[stop + 1], group[-1] + 2 * _SIDE)
        better = _beats_line(scale[first:end], [at - first for at in group])
        if better < _BETTER:
            for at in group:
                del points[at]
        if better <= 0:
            drifts.append(Drift(first, end, math.expm1(line_of(scale[first:end]).slope)))
        start = stop + 1
    return drifts


def _beats_line(values: Reals, steps: list[int]) -> float:
    """Compute by how much constant levels between `steps` beat a line in BIC."""
    n = len(values)
    line = line_of(values)
    along = values - line.at(np.arange(n, dtype=np.float64))
    levels = np.concatenate(
        [part - np.median(part) for part in np.split(values, steps) if len(part)]
    )
    least = n * LEAST_SPREAD**2

    def bic(residuals: Reals, parameters: int) -> float:
        kept = clipped(residuals)
        return n * math.log(max(float(kept @ kept), least) / n) + parameters * math.log(n)

    return bic(along, 2) - bic(levels, 2 * len(steps) + 1)
