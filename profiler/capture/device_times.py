"""When devices worked on calls, as they noted it themselves.

A call on a device that works through a queue returns once its work is launched. Where operators are
traced, these tell when the device worked; for all other calls two marks in its queue do, one ahead
of the call and one behind it.

Marks tell how far they lie apart, not when they were passed. On the run's clock they are placed by
a mark that was put into an empty queue, or waited for: it was passed when the host said so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from profiler.capture.clock import Clock
from profiler.capture.invocations import Invocation

__all__ = ["DeviceMarks", "DeviceTimes", "Mark", "Noting"]

_STALE_NS = 1_000_000_000  # clocks of devices run a little faster or slower than the host's
_FAR_NS = 5_000_000_000  # how far marks lie apart is told with seven digits


class Mark(Protocol):
    """A mark in the queue of a device."""

    def passed(self) -> bool:
        """Whether the device has come to it; nothing waits for that."""

    def wait(self) -> None:
        """Return when it has."""

    def since_ns(self, earlier: Mark) -> int:
        """How long after another mark of its device it was passed, in ns; both have been."""


class DeviceMarks(Protocol):
    """Puts marks into the queues of devices."""

    def mark(self, device: str) -> Mark | None:
        """A mark behind all that this thread has asked of the device so far; None where it has no
        queue that is known, or may not be given any now."""

    def empty(self, device: str) -> bool:
        """Whether the device has done all that this thread has asked of it."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A mark that was passed at `at_ns` of the run's clock, by what the host said at `told_ns`."""

    mark: Mark
    at_ns: int
    told_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Noting:
    """A call that a device notes: the mark ahead of it, and the one that it is told by."""

    marks: DeviceMarks
    invocation: Invocation
    device: str
    begin: Mark
    anchor: _Anchor


class DeviceTimes:
    """Has the devices of one run note calls, whose `device_lag_ns` and `device_duration_ns` are set
    once both marks have been passed: `noting` is True until then. Nothing waits for that before
    `finish`; `on_noted` is told of each.

    Devices are only asked on threads that call submodules, for what one thread asks may spoil a
    graph that another is capturing. It takes no locks, as its `Recorder`.
    """

    def __init__(self, clock: Clock) -> None:
        self.on_noted: Callable[[Invocation], None] | None = None
        self._clock = clock
        self._anchors: dict[str, _Anchor] = {}
        self._open: deque[tuple[Noting, Mark]] = deque()  # and the marks behind them

    def begin(self, marks: DeviceMarks, invocation: Invocation) -> Noting | None:
        """The invocation is about to begin on this thread: hand what this returns to `end`. None
        where its device notes nothing."""
        device = invocation.device
        anchor = self._anchors.get(device)
        stale = anchor is None or self._clock.now_ns() - anchor.told_ns > _STALE_NS
        empty = stale and marks.empty(device)
        begin = marks.mark(device)
        if begin is None:
            return None
        if anchor is None or empty:
            if not empty:
                begin.wait()  # once in a run
            now_ns = self._clock.now_ns()
            anchor = self._anchors[device] = _Anchor(begin, now_ns, now_ns)
        return Noting(marks, invocation, device, begin, anchor)

    def end(self, noting: Noting) -> None:
        """It has returned, on this thread."""
        end = noting.marks.mark(noting.device)
        if end is not None:
            noting.invocation.noting = True
            self._open.append((noting, end))

    def collect(self) -> None:
        """Set the times of those that have been passed by now."""
        while self._open:
            try:
                noting, end = self._open.popleft()
            except IndexError:  # another thread has
                return
            if not end.passed():
                self._open.appendleft((noting, end))
                return
            self._note(noting, end)

    def finish(self) -> None:
        """Wait for all of them, when nothing is called any more. Where a device has failed, its
        calls have the times that the host knows."""
        last, self._open = self._open, deque()
        try:
            for noting, end in last:
                end.wait()
                self._note(noting, end)
        finally:
            for noting, _ in last:
                noting.invocation.noting = False

    def _note(self, noting: Noting, end: Mark) -> None:
        invocation, anchor = noting.invocation, noting.anchor
        try:
            begin_ns = anchor.at_ns + noting.begin.since_ns(anchor.mark)
            duration_ns = max(end.since_ns(noting.begin), 0)
            invocation.device_lag_ns = max(begin_ns - invocation.start_ns, 0)
            invocation.device_duration_ns = duration_ns
        finally:
            invocation.noting = False
        if begin_ns - anchor.at_ns > _FAR_NS and self._anchors.get(noting.device) is anchor:
            self._anchors[noting.device] = _Anchor(end, begin_ns + duration_ns, anchor.told_ns)
        if self.on_noted is not None and invocation.index >= 0:
            self.on_noted(invocation)
