"""What tests of programs that use profile-sd3 need: a clock that is moved by hand.

clock = FakeClock(1_000)
clock.advance(5)
clock.now_ns()   # 1_005
"""

from __future__ import annotations


class FakeClock:
    """A clock that stands still until it is told to move; `step_ns` is added at each reading."""

    monotonic_offset_ns = 0

    def __init__(self, now_ns: int = 0, step_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._step_ns = step_ns

    def now_ns(self) -> int:
        """The present, in ns; each reading moves on by `step_ns`."""
        now = self._now_ns
        self._now_ns += self._step_ns
        return now

    def advance(self, duration_ns: int) -> None:
        """Let `duration_ns` pass."""
        self._now_ns += duration_ns
