"""What recording one event costs, from runs with and without recording in turn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EventCost"]

_BEYOND = 2.0  # of `bounds`


@dataclass(frozen=True, slots=True)
class EventCost:
    """The median in ns an event, and the quartiles of the pairs, None where nobody knows them."""

    ns: float
    low_ns: float | None = None
    high_ns: float | None = None

    @classmethod
    def of_pairs(cls, pairs_s: Sequence[float], events: int) -> EventCost | None:
        """From differences in s, at least two, of runs that recorded so many `events`. None where
        noise exceeds the cost."""
        low, median, high = (
            quartile * 1e9 / events
            for quartile in statistics.quantiles(pairs_s, n=4, method="inclusive")
        )
        return cls(median, max(low, 0.0), high) if median > 0 else None

    @property
    def bounds(self) -> tuple[float, float]:
        """Between what a run's events may have cost each: a run is not the chain that was measured,
        so they reach as far beyond the quartiles as `_BEYOND` says. Where these are not known, for
        a busy machine left time for one pair alone, between nothing and as far once more.
        """
        if self.low_ns is None or self.high_ns is None:
            return 0.0, self.ns * _BEYOND**2
        return self.low_ns / _BEYOND, self.high_ns * _BEYOND

    @property
    def noisy(self) -> bool:
        """Whether half of the pairs lie further apart than the cost itself."""
        return (
            self.low_ns is not None
            and self.high_ns is not None
            and (self.high_ns - self.low_ns > self.ns)
        )
