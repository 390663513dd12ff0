"""When devices worked on calls, as they noted it themselves.

A call on a device that works through a queue returns once its work is launched. Where operators are
traced, these tell when the device worked; for all other calls two marks in its queue do, one ahead
of the call and one behind it.

Marks tell how far they lie apart, not when they were passed. On the run's clock they are placed by
an anchor: a mark that was put into an empty queue was passed when the host put it there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from profiler.capture.clock import Clock
from profiler.capture.invocations import Invocation

__all__ = ["DeviceMarks", "DeviceTimes", "Mark", "Noting"]

_STALE_NS = 1_000_000_000  # clocks of devices run a little faster or slower than the host's
_FAR_NS = 5_000_000_000  # how far marks lie apart is told with seven digits
_AT_ONCE_NS = 200_000  # longer, and something else ran while the host put the mark there
_NAP_S = 0.001
_NAPS = 5_000  # without any progress of a device, when the run is closed


class Mark(Protocol):
    """A mark in the queue of a device."""

    def passed(self) -> bool:
        """Whether the device has come to it; nothing waits for that."""

    def since_ns(self, earlier: Mark) -> int:
        """How long after another mark of its device it was passed, in ns; both have been."""


class DeviceMarks(Protocol):
    """Puts marks into the queues of devices, and asks them."""

    def ready(self, device: str) -> bool:
        """Whether this thread may use the device's queue now; False where it has none."""

    def mark(self, device: str) -> Mark:
        """A mark behind all that this thread has asked of the device so far."""

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
    """A call that `device` notes: the mark ahead of it, and its anchor, None before there is
    any."""

    invocation: Invocation
    device: str
    begin: Mark
    anchor: _Anchor | None


@dataclass(slots=True, eq=False)
class _Queue:
    """A device: what it has been asked to note, with the marks behind, in order."""

    marks: DeviceMarks
    open: deque[tuple[Noting, Mark]]
    anchor: _Anchor | None = None
    failed: bool = False


class DeviceTimes:
    """Has the devices of one run note calls, whose `device_lag_ns` and `device_duration_ns` are set
    once both marks have been passed: `noting` is True until then. `on_noted` is told of each.

    Nothing waits for a device before `finish`. Devices are only asked on threads that call
    submodules or close the run, and while these capture no graph. It takes no locks, as its
    `Recorder`.
    """

    def __init__(self, clock: Clock, *, nap: Callable[[float], None] = time.sleep) -> None:
        self.on_noted: Callable[[Invocation], None] | None = None
        self._clock = clock
        self._nap = nap
        self._queues: dict[str, _Queue] = {}
        self._finished = False

    def begin(self, marks: DeviceMarks, invocation: Invocation, device: str) -> Noting | None:
        """The invocation is about to begin on this thread: hand what this returns to `end`. None
        where `device` notes nothing."""
        if not marks.ready(device):
            return None
        queue = self._queues.setdefault(device, _Queue(marks, deque()))
        if queue.failed or self._finished:
            return None
        begin = self._anchored(queue, device) or marks.mark(device)
        return Noting(invocation, device, begin, queue.anchor)

    def end(self, noting: Noting) -> None:
        """It has returned, on this thread."""
        queue = self._queues[noting.device]
        if queue.marks.ready(noting.device) and not self._finished:
            end = queue.marks.mark(noting.device)
            noting.invocation.noting = True
            queue.open.append((noting, end))

    def collect(self) -> None:
        """Set the times of those that have been passed by now."""
        for device, queue in list(self._queues.items()):
            if queue.open and queue.marks.ready(device):
                self._collect(queue, device)

    def finish(self) -> None:
        """Wait for all of them, when nothing is called any more; not for ever: calls of a device
        that has failed, or does nothing for long, have the times that the host knows."""
        self._finished = True
        failures: list[Exception] = []
        for device, queue in self._queues.items():
            try:
                self._wait(queue, device)
            except Exception as error:  # noqa: BLE001 - the other devices, too
                failures.append(error)
            finally:
                _give_up(queue)
        if failures:
            raise failures[0]

    def _wait(self, queue: _Queue, device: str) -> None:
        left, naps = len(queue.open), 0
        while left and naps < _NAPS:
            if queue.marks.ready(device):
                self._collect(queue, device)
            if len(queue.open) < left:
                left, naps = len(queue.open), 0
            else:
                self._nap(_NAP_S)
                naps += 1

    def _anchored(self, queue: _Queue, device: str) -> Mark | None:
        """A mark that is the anchor of its queue from now on; None where that is not needed, or
        not possible now."""
        known, now_ns = queue.anchor, self._clock.now_ns()
        stale = known is None or now_ns - known.told_ns > _STALE_NS
        if not (stale and queue.marks.empty(device)):
            return None
        before_ns = self._clock.now_ns()
        mark = queue.marks.mark(device)
        now_ns = self._clock.now_ns()
        if now_ns - before_ns <= _AT_ONCE_NS:
            queue.anchor = _Anchor(mark, now_ns, now_ns)
        return mark

    def _collect(self, queue: _Queue, device: str) -> None:
        for noting, end in self._passed(queue):
            anchor = noting.anchor or queue.anchor
            if anchor is None:
                self._anchored(queue, device)
                anchor = queue.anchor
            if anchor is None or not anchor.mark.passed():  # with the next ones, in their order
                queue.open.appendleft((noting, end))
                return
            try:
                self._note(noting, end, anchor, queue)
            finally:
                noting.invocation.noting = False

    def _passed(self, queue: _Queue) -> Iterator[tuple[Noting, Mark]]:
        while True:
            try:
                noting, end = queue.open.popleft()
            except IndexError:  # another thread may have taken it
                return
            try:
                passed = end.passed()
            except Exception:
                queue.failed = True
                noting.invocation.noting = False
                _give_up(queue)
                raise
            if not passed:
                queue.open.appendleft((noting, end))
                return
            yield noting, end

    def _note(self, noting: Noting, end: Mark, anchor: _Anchor, queue: _Queue) -> None:
        invocation = noting.invocation
        if noting.anchor is None:  # a later one
            begin_ns = anchor.at_ns - anchor.mark.since_ns(noting.begin)
        else:
            begin_ns = anchor.at_ns + noting.begin.since_ns(anchor.mark)
        end_ns = begin_ns + end.since_ns(noting.begin)
        lag_ns = max(begin_ns - invocation.start_ns, 0)
        invocation.device_lag_ns = lag_ns
        invocation.device_duration_ns = max(end_ns - invocation.start_ns - lag_ns, 0)
        if begin_ns - anchor.at_ns > _FAR_NS and queue.anchor is anchor:
            queue.anchor = _Anchor(end, end_ns, anchor.told_ns)
        if self.on_noted is not None and invocation.index >= 0:
            self.on_noted(invocation)


def _give_up(queue: _Queue) -> None:
    """Calls that the device has not come to have the times that the host knows."""
    while queue.open:
        noting, _ = queue.open.popleft()
        noting.invocation.noting = False
