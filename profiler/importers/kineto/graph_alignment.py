"""Which captured graph a replay is of, and which of its kernels is which: a replay fits where 98 %
of its kernels are the capture's, in the same order.

A capture of exactly the replay's kernels is looked up. Others are compared, first the one that has
most of the kernels in any order. Comparing takes steps, of which there are so many for each kernel
of a replay or a capture: where they are used up, replays are left uncompared, and that is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate

import numpy as np
from msgspec import Struct, field, structs

from profiler.trace.columns import Int64s

__all__ = ["Alignments", "Fit", "Sequences"]

_ALIGNED = 0.98  # of a replay's kernels
_STEPS = 50  # for each kernel; holding one against another of the same name is one, of 0.1 µs
_LEAST_STEPS = 10_000_000


class Sequences(Struct, frozen=True):
    """What a graph runs, in order: `kinds` are `kernel`, `copy` and `fill`, `names` those of
    kernels, else the kind; `named` is whether kernels have names."""

    kinds: tuple[str, ...]
    names: tuple[str, ...]
    named: bool = True


class Fit(Struct, frozen=True, eq=False):
    """How large a `share` of a replay's kernels a capture has in order; where it is enough,
    `captures` are the numbers of those that have it, of equal kernels, and `places` the place there
    of each of the replay's kernels, -1 for none. `compared` is False where some were not."""

    share: float
    captures: Sequence[int] = ()
    places: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    compared: bool = True

    @property
    def fits(self) -> bool:
        """Whether the share is enough."""
        return self.share >= _ALIGNED


class _Alike(Struct, frozen=True):
    """Captures of equal kernels, by their numbers: what they run, and how often each name."""

    captures: list[int]
    sequence: tuple[str, ...]
    named: bool
    counts: Counter[str]


class Alignments:
    """The fits of replays, which have `kernels` kernels in all, to captures."""

    def __init__(self, captures: Sequence[Sequences], kernels: int) -> None:
        self._alike: dict[tuple[bool, tuple[str, ...]], _Alike] = {}
        for number, one in enumerate(captures):
            sequence = one.names if one.named else one.kinds
            new = _Alike([], sequence, one.named, Counter())
            alike = self._alike.setdefault((one.named, sequence), new)
            alike.captures.append(number)
        for alike in self._alike.values():
            alike.counts.update(alike.sequence)
        self._known: dict[Sequences, Fit] = {}
        self._steps = _Steps(kernels + sum(len(one.kinds) for one in captures))
        self.best = 0.0  # share of a replay that nothing fits

    def fit(self, replay: Sequences) -> Fit:
        """The captures that fit a replay, or how far the best one does."""
        known = self._known.get(replay)
        if known is None:
            known = self._known[replay] = self._same(replay) or self._compared(replay)
        return known

    def _same(self, replay: Sequences) -> Fit | None:
        """The captures of the replay's kernels and no others."""
        same = self._alike.get((True, replay.names)) or self._alike.get((False, replay.kinds))
        return Fit(1.0, same.captures, np.arange(len(replay.names))) if same else None

    def _compared(self, replay: Sequences) -> Fit:
        found = Fit(0.0)
        try:
            for most, alike in self._likely(replay):
                if most <= found.share or (most < _ALIGNED and most <= self.best):
                    break
                places = self._places(replay, alike)
                share = int(np.count_nonzero(places >= 0)) / len(places)
                if share > found.share:
                    found = Fit(share, alike.captures, places)
        except _UsedUpError:
            found = structs.replace(found, compared=False)
        if found.fits:
            return found
        self.best = max(self.best, found.share)
        return Fit(found.share, compared=found.compared)

    def _likely(self, replay: Sequences) -> list[tuple[float, _Alike]]:
        """Captures with the share of a replay's kernels that they have in any order, the largest
        first, and of equal ones that of the fewest kernels."""
        counts = {True: Counter(replay.names), False: Counter(replay.kinds)}
        size = len(replay.names)
        found = []
        for alike in self._alike.values():
            fewer, more = sorted((counts[alike.named], alike.counts), key=len)
            self._steps.take(1 + len(fewer))
            common = sum(min(count, more[name]) for name, count in fewer.items())
            if common and (alike.named or len(alike.sequence) == size):
                found.append((common / size, alike))
        return sorted(found, key=lambda one: (-one[0], len(one[1].sequence)))

    def _places(self, replay: Sequences, alike: _Alike) -> Int64s:
        """The place in a capture of each of a replay's kernels, -1 for none: most captures have the
        replay's order, and those without names are compared by kinds, as a whole."""
        ours, theirs = replay.names if alike.named else replay.kinds, alike.sequence
        self._steps.take(len(ours) + len(theirs))
        pairs = zip(ours, theirs, strict=False)
        same = [place if one == other else -1 for place, (one, other) in enumerate(pairs)]
        places = np.full(len(ours), -1, dtype=np.int64)
        places[: len(same)] = same
        if alike.named and np.count_nonzero(places >= 0) < _ALIGNED * len(ours):
            return _matching(ours, theirs, self._steps)
        return places


class _UsedUpError(Exception):
    """Comparing on would take too long."""


class _Steps:
    """What comparing so many kernels may still take."""

    def __init__(self, kernels: int) -> None:
        self._left = max(_LEAST_STEPS, _STEPS * kernels)

    def take(self, count: int) -> None:
        """Raises _UsedUpError where fewer are left."""
        if count > self._left:
            raise _UsedUpError
        self._left -= count


def _matching(ours: Sequence[str], theirs: Sequence[str], steps: _Steps) -> Int64s:
    """The place in one sequence of each of another one, -1 for none: by the longest run that both
    have, and so on before and behind it."""
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    often = Counter(theirs)
    cost = [0, *accumulate(1 + often[name] for name in ours)]
    places = np.full(len(ours), -1, dtype=np.int64)
    left = [(0, len(ours), 0, len(theirs))]
    while left:
        first, last, begin, end = left.pop()
        if first == last or begin == end:
            continue
        steps.take(cost[last] - cost[first])
        run = matcher.find_longest_match(first, last, begin, end)
        if run.size:
            places[run.a : run.a + run.size] = np.arange(run.b, run.b + run.size)
            left.append((first, run.a, begin, run.b))
            left.append((run.a + run.size, last, run.b + run.size, end))
    return places
