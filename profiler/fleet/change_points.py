"""Where a history changed: E-divisive on medians with a permutation test, looking back.

    found = change_points(values)
    found.changes          # steps, in the order of time
    found.drifts           # stretches that move a little with each run: no change
    found.modes            # of the runs since the last change, where they take one of two times

1. Screen: at each position the medians of up to 30 runs on both sides, in units of the noise from
   run to run. Local maxima beyond 3 standard errors are candidates, so long histories take linear
   time.
2. Divide: a candidate is placed where the energy distance with medians (James, Kejariwal, Matteson
   2016, "Leveraging cloud data to mitigate user experience from breaking bad", EDM) of its window
   is largest: `l r / (l + r) (2 med|x - y| - med|x - x'| - med|y - y'|)`.
3. Test: the largest standardised difference of means of clipped values over all positions of the
   window, against the same of permuted windows (2,000, seeded, fewer where it is clear). Under
   exchangeable runs, also of two modes, that is exact. The weakest is dropped, and those beside it
   are tested again, until all have p below 0.001.
4. Drift: steps of one direction that a line through the same runs explains as well (BIC) are one
   drift. Steps that are better than a line by less than 6 are neither, until more runs tell.

`newest` asks about the last few runs, and sees a change before it can be placed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profiler.fleet.lines import Line, line_of
from profiler.fleet.modes import Modes, two_modes
from profiler.fleet.scatter import LEAST_SPREAD, Reals, clipped, relative, step_spread

__all__ = ["Change", "Drift", "Found", "change_points"]

_SIDE = 30  # runs of a side of a window
_LEAST = 4  # runs of a side: fewer are not placed
_SCREEN = 3.0  # standard errors
_LEVEL = 0.001  # p of a change
_PERMUTATIONS = 2000
_EFFICIENCY = 1.2533  # standard error of a median over that of a mean, normal noise
_BETTER = 6.0  # BIC by which steps have to beat a line: strong evidence (Kass and Raftery 1995)
_DRIFT_P = 1e-4  # p of a slope that is told of
_LEAST_OF_MODES = 24  # runs, of which 4 in 1,000 histories of one mode look like two; 10: 46
_ROUNDS = 3
_SEED = 0


@dataclass(frozen=True, slots=True)
class Change:
    """`at`: position of the first run after it. `before`, `after`: medians of the runs between it
    and its neighbours, in the unit of the values. `change`: their ratio less 1. `p` of the
    permutation test."""

    at: int
    before: float
    after: float
    change: float
    p: float


@dataclass(frozen=True, slots=True)
class Drift:
    """Runs from `first` to before `end` move by `slope` a run, a ratio."""

    first: int
    end: int
    slope: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a history shows. `since`: position of the first run after the last change."""

    changes: tuple[Change, ...]
    drifts: tuple[Drift, ...]
    modes: Modes | None

    @property
    def since(self) -> int:
        return self.changes[-1].at if self.changes else 0


def change_points(values: Reals) -> Found:
    """Look back at the values of one metric, in the order of time. float64 [n], any n."""
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
    """Drifts of one direction that overlap are one, with the slope of the longest."""
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
    """Positions at which both sides differ by more than noise, the largest of its neighbourhood."""
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
    """Drop the points that chance explains, and move the others to where they belong. Points that
    belong to one place become one, which widens windows: those are tested once more."""
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
    """Begin of each point's window, the point, the window's end: its neighbours, or 60 runs."""
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
    """How likely chance lets the means of both sides of some position differ by that much."""
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
    """Where the energy distance with medians is largest: the size of the left side."""
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
    """The place within a few runs whose sides deviate least from their medians: medians of
    distances hardly notice one run on the wrong side, and a commit is named by it."""
    near = range(max(_LEAST, place - _LEAST), min(len(window) - _LEAST, place + _LEAST) + 1)

    def apart(size: int) -> float:
        sides = (window[:size], window[size:])
        return sum(float(np.abs(side - np.median(side)).sum()) for side in sides)

    return min(near, key=lambda size: (apart(size), abs(size - place)))


def _without_drifts(scale: Reals, points: dict[int, float]) -> list[Drift]:
    """Take out the points of steps of one direction that a line explains as well; the drifts."""
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
    """By how much the BIC of constant levels between `steps` is below that of a line."""
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
