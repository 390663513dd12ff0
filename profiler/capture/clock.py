"""The clock of a run: monotonic while it lasts, CLOCK_REALTIME's epoch in its numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Clock", "RunClock"]


class Clock(Protocol):
    """Anything that tells ns since the epoch; tests inject one that they move by hand."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    @property
    def monotonic_offset_ns(self) -> int:
        """What to add to CLOCK_MONOTONIC to get this clock."""
        ...


@dataclass(frozen=True, slots=True)
class RunClock:
    """CLOCK_MONOTONIC plus an offset fixed when the run began, so that a clock step during the
    run cannot bend durations."""

    monotonic_offset_ns: int

    @classmethod
    def start(cls) -> RunClock:
        """Relate the two clocks: the tightest of several paired readings wins."""
        best_width, best_offset = 1 << 62, 0
        for _ in range(16):
            before = time.monotonic_ns()
            realtime = time.time_ns()
            after = time.monotonic_ns()
            if after - before < best_width:
                best_width, best_offset = after - before, realtime - (before + after) // 2
        return cls(best_offset)

    def now_ns(self) -> int:
        return time.monotonic_ns() + self.monotonic_offset_ns
