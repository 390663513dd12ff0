"""The recorder of a run: pipelines, calls and host work, noted with low overhead.

It knows no runtimes and no files. Hooks report to it when pipelines, calls and host work start
and end, and the result becomes a bundle later. Coverage counts work outside captured calls.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from profiler.capture.backend import DeviceMarks, Mark, notice
from profiler.capture.calls import (
    Clock,
    HostCommands,
    HostWork,
    Invocation,
    OwnWork,
    PipelineCall,
    Place,
    error_mark,
    nothing,
    number_of,
    scope,
)
from profiler.capture.operator_source import SizeLimit
from profiler.capture.pipelines.script_loops import ScriptLoops
from profiler.plugins import error_text, let_pass
from profiler.trace.compression import Packed, pack, unpack
from profiler.trace.events import NO_STEP, UNKNOWN, Branch, Call, Span
from profiler.trace.manifest_fields import Coverage, Uncaptured

# --- Coverage: how much of the work of modules and sessions is in captured calls.


_MOST_NAMES = 100  # in the manifest; the others are summed as one more
_REST = "others"


@dataclass(slots=True)
class CoverageTally:
    """The coverage measured in a run so far."""

    pipelines: int = 0
    captured_ns: int = 0
    captured_alone_ns: int = 0  # in no pipeline call
    alone: bool = False  # uncaptured work ran outside pipeline calls, too
    uncaptured: dict[str, tuple[int, int]] = field(default_factory=dict)  # calls and ns by name

    def add(self, name: str, duration_ns: int) -> None:
        """Count work executed outside captured calls."""
        calls, total_ns = self.uncaptured.get(name, (0, 0))
        self.uncaptured[name] = calls + 1, total_ns + duration_ns

    def coverage(self) -> Coverage | None:
        """The manifest's coverage; None if nothing was measured. Of modules that no pipeline holds
        only the uncaptured ones are measured, so captured time outside pipeline calls counts only
        if some ran there."""
        if not (self.pipelines or self.alone):
            return None
        captured_ns = self.captured_ns + (self.captured_alone_ns if self.alone else 0)
        rows = sorted(self.uncaptured.items(), key=lambda row: -row[1][1])
        rest = [figures for _, figures in rows[_MOST_NAMES:]]
        rows = rows[:_MOST_NAMES]
        if rest:
            rows.append((_REST, (sum(calls for calls, _ in rest), sum(ns for _, ns in rest))))
        uncaptured_ns = sum(total_ns for _, (_, total_ns) in rows)
        total = captured_ns + uncaptured_ns
        return Coverage(
            pipelines=self.pipelines,
            captured_ns=captured_ns,
            uncaptured_ns=uncaptured_ns,
            share=captured_ns / total if total else None,
            uncaptured=tuple(
                Uncaptured(name=name, calls=calls, duration_ns=total_ns)
                for name, (calls, total_ns) in rows
            ),
        )


# --- The device times of calls, from marks in the devices' queues.
#
# A call on a device with a queue returns once its work is launched. Traced operators show when the
# device worked; for other calls, two marks in its queue do, one before the call and one after it.
#
# Marks give the time between them, not a time on the run's clock. An anchor gives that: a mark put
# into an empty queue was passed when the host put it there.


_STALE_NS = 1_000_000_000  # clocks of devices run a little faster or slower than the host's
_FAR_NS = 5_000_000_000  # the time between marks has seven digits
_AT_ONCE_NS = 200_000  # above this, something else ran while the host put the mark there
_NAP_S = 0.001
_NAPS = 5_000  # without progress of a device, when the run is closed


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A mark that was passed at `at_ns` of the run's clock, derived from a host time at
    `told_ns`."""

    mark: Mark
    at_ns: int
    told_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Noting:
    """A call whose time `device` records: the mark before it, and its anchor, None before there is
    one."""

    invocation: Invocation
    device: str
    begin: Mark
    anchor: _Anchor | None


@dataclass(slots=True, eq=False)
class _Queue:
    """The queue of a device: the calls it records, in order, each with the mark after it."""

    marks: DeviceMarks
    open: deque[tuple[Noting, Mark]]
    anchor: _Anchor | None = None
    failed: bool = False


class DeviceTimes:
    """Sets `device_lag_ns` and `device_duration_ns` of a run's calls once the device has passed
    both marks of a call: `noting` is True until then. `on_noted` is called with each such
    invocation.

    Only `finish` waits for devices. They are queried only on threads that call submodules or close
    the run, and not while these capture a graph. Like `Recorder`, it takes no locks.
    """

    def __init__(self, clock: Clock, *, nap: Callable[[float], None] = time.sleep) -> None:
        self.on_noted: Callable[[Invocation], None] | None = None
        self._clock = clock
        self._nap = nap
        self._queues: dict[str, _Queue] = {}
        self._finished = False

    def begin(self, marks: DeviceMarks, invocation: Invocation, device: str) -> Noting | None:
        """Put the mark before an invocation that starts on this thread; pass what this returns to
        `end`. None if `device` has no marks."""
        if not marks.ready(device):
            return None
        queue = self._queues.setdefault(device, _Queue(marks, deque()))
        if queue.failed or self._finished:
            return None
        begin = self._anchored(queue, device) or marks.mark(device)
        return Noting(invocation, device, begin, queue.anchor)

    def end(self, noting: Noting) -> None:
        """Put the mark after an invocation that has returned on this thread."""
        queue = self._queues[noting.device]
        if queue.marks.ready(noting.device) and not self._finished:
            end = queue.marks.mark(noting.device)
            noting.invocation.noting = True
            queue.open.append((noting, end))

    def collect(self) -> None:
        """Set the times of the calls whose marks have been passed by now."""
        for device, queue in list(self._queues.items()):
            if queue.open and queue.marks.ready(device):
                self._collect(queue, device)

    def finish(self) -> None:
        """Wait for all calls, at the end of the run. Calls of a device that has failed, or makes no
        progress for long, keep the host's times."""
        self._finished = True
        failures: list[Exception] = []
        for device, queue in self._queues.items():
            try:
                self._wait(queue, device)
            except Exception as error:  # noqa: BLE001 - the user's program goes on
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
        """Put a mark that is the queue's new anchor; None if no new one is needed, or the queue is
        not empty."""
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
            if anchor is None or not anchor.mark.passed():  # retried later, in order
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
        if noting.anchor is None:  # the anchor is later than the call
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
    """Leave the remaining calls of a device with the host's times."""
    while queue.open:
        noting, _ = queue.open.popleft()
        noting.invocation.noting = False


# --- What happened in a run: cheap to record while it runs, turned into a bundle afterwards.


_T = TypeVar("_T")

_REASONS = 100  # distinct errors of ours
_UNPACKED = 512  # calls, and spans, above which those that have ended are packed


class Recorder:
    """Collects one run. Nothing is kept during warm-up.

    `limit` bounds the size of the run; `memory` records allocations even if that costs time;
    `keep_prompts` keeps prompts in the command line.

    It takes no locks, so that a signal can end a run whatever thread it meets: lists grow and
    indices are drawn in one step each.

    `on_call_end` is called with each recorded invocation that returned, on its thread;
    `on_call_placed` with those whose labels have changed since; `on_pipeline_end` when the last
    open pipeline call has ended and its sources know; `on_converted` when a source has operators of
    earlier calls, even during later ones.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        limit: SizeLimit | None = None,
        memory: bool = False,
        keep_prompts: bool = False,
    ) -> None:
        self.clock = clock
        self.keep_prompts = keep_prompts
        self.limit = limit or SizeLimit()
        self.memory = memory
        self.on_call_end: Callable[[Invocation], None] | None = None
        self.on_call_placed: Callable[[Invocation], None] | None = None
        self.on_pipeline_end: Callable[[], None] | None = None
        self.on_converted: Callable[[], None] | None = None
        self.opening_ns = 0  # first uses: attaching, opening sessions outside pipelines
        self.coverage = CoverageTally()
        self.device_times = DeviceTimes(clock)
        self.loops = ScriptLoops()  # outside every pipeline call
        self.invocations: list[Invocation] = []
        self.host_work: deque[HostWork] = deque()  # until `take_host_commands` takes them
        self.host_commands: deque[HostCommands] = deque()  # on devices, and host operators
        self.own_work: deque[Span] = deque()  # of kind `profiler`
        self.failures: Counter[tuple[str, str]] = Counter()  # our own errors, by place and reason
        self._warmups: list[int] = []  # starts of the open warm-ups
        self._open: list[PipelineCall] = []
        self._kept: dict[int, PipelineCall] = {}  # pipeline calls that have ended, by number
        self._packed: list[bytes] = []  # earlier ones, with their invocations
        self._packed_work = Packed[Span]()
        self._indices = itertools.count()
        self._numbers = itertools.count()

    @property
    def recording(self) -> bool:
        """Whether what happens now is kept: outside warm-up."""
        return not self._warmups

    def begin_warmup(self) -> None:
        """Stop recording until `end_warmup` has been called as often as this."""
        self._warmups.append(self.clock.now_ns())

    def end_warmup(self) -> int:
        """End one warm-up; returns the ns since the first one started, or -1 while others are
        open."""
        first = self._warmups[0]
        self._warmups.pop()
        return -1 if self._warmups else self.clock.now_ns() - first

    def lose(self, where: str, error: Exception, *, for_good: bool = False) -> None:
        """Record our own `error` as a drop: of one call of `where` (a submodule or a pipeline), or
        with `for_good` of an unknown number. It is printed to stderr once, and the script
        continues."""
        reason = " ".join(error_text(error).split())
        if len(self.failures) >= _REASONS and (where, reason) not in self.failures:
            reason = "further errors"  # once there are too many distinct ones
        new = (where, reason) not in self.failures
        if for_good:
            self.failures[where, reason] = UNKNOWN
        else:
            self.failures[where, reason] += 1
        if new:
            notice(f"{where} is not recorded whole, the script goes on: {reason}")

    def attempt(self, where: str, action: Callable[..., _T], *arguments: Any) -> _T | None:
        """Call our own `action(*arguments)` and return its result; None if it fails, see `lose`."""
        try:
            return action(*arguments)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            self.lose(where, error)
            return None

    @property
    def pipelines(self) -> list[PipelineCall]:
        """The recorded pipeline calls that have ended."""
        return list(self._kept.values())

    @property
    def hooks_ns(self) -> int:
        """Time in our own code inside and around the recorded pipeline calls, around all other
        calls, and before sessions outside pipelines."""
        outside_ns = self.opening_ns + sum(call.hooks_ns for call in list(self.invocations))
        return outside_ns + sum(pipeline.total_hooks_ns() for pipeline in self.pipelines)

    @property
    def traced_ns(self) -> int:
        """The time that the callers of pipelines, and of calls outside them, saw: our own work
        before and after a call included."""
        outside = [call for call in list(self.invocations) if call.pipeline is None]
        hooks_ns = self.opening_ns + sum(call.hooks_ns for call in outside)
        inside_ns = sum(p.end_ns - p.start_ns + p.around_ns for p in self.pipelines)
        return inside_ns + self.outside_ns + hooks_ns

    @property
    def outside_ns(self) -> int:
        """Total time of the returned calls outside pipeline calls."""
        outside = (c for c in list(self.invocations) if c.pipeline is None and c.index >= 0)
        return sum(call.end_ns - call.start_ns for call in outside)

    def add_first_use(self, duration_ns: int) -> None:
        """Count time for which a caller waited until something was attached: in its pipeline call,
        or before the recording."""
        pipeline = scope().pipeline
        if pipeline is not None:
            pipeline.hooks_ns += duration_ns
        else:
            self.opening_ns += duration_ns

    def spent(self, invocation: Invocation, begin_ns: int) -> None:
        """Count the time since `begin_ns` as our own code for `invocation`."""
        duration_ns = self.clock.now_ns() - begin_ns
        if invocation.pipeline is not None:
            invocation.pipeline.hooks_ns += duration_ns
        else:
            invocation.hooks_ns += duration_ns

    def begin_pipeline(self, name: str) -> PipelineCall:
        """Start a pipeline call; pass it to `end_pipeline`. One inside another gets the other's
        number."""
        outer = scope().pipeline
        recorded = outer is None and self.recording
        number = next(self._numbers) if recorded else number_of(outer)
        pipeline = PipelineCall(name, self.clock.now_ns(), number, outer=outer)
        if recorded:
            try:
                self._open.append(pipeline)
            except BaseException:  # the script was interrupted
                with suppress(ValueError):
                    self._open.remove(pipeline)
                raise
        return pipeline

    def end_pipeline(self, pipeline: PipelineCall, *, failed: bool = False) -> None:
        """End a pipeline call; its spans stay with those of the call around it. Again without
        effect, except to complete what an interrupt cut short."""
        if pipeline.end_ns < 0:  # False if the run has been closed meanwhile
            pipeline.failed = failed
            self.attempt(pipeline.name, pipeline.before_end)
            pipeline.before_end = nothing
            pipeline.end_ns = self.clock.now_ns()
            self.attempt(pipeline.name, self.device_times.collect)
        if pipeline.outer is not None:
            if pipeline not in pipeline.outer.inner:
                pipeline.outer.inner.append(pipeline)
            return
        if pipeline in self._open:  # else it is not recorded, or has ended
            self._kept[pipeline.number] = pipeline
            with suppress(ValueError):  # another thread has just closed the run
                self._open.remove(pipeline)

    def settle(self) -> None:
        """Handle that the sources of a pipeline call know of its end, too."""
        if self.on_pipeline_end is not None and self.at_rest():
            self.on_pipeline_end()

    def converted(self) -> None:
        """Handle that a source has converted its profiler's recording of earlier calls."""
        if self.on_converted is not None:
            self.on_converted()

    def at_rest(self) -> bool:
        """Whether no recorded pipeline call is running."""
        return all(pipeline.suspended for pipeline in list(self._open))

    def withdraw(self, pipeline: PipelineCall) -> None:
        """Forget a started pipeline call: it is a generator or coroutine that never runs."""
        with suppress(ValueError):
            self._open.remove(pipeline)

    def has_work(self, pipeline: PipelineCall) -> bool:
        """Whether something of a running pipeline call has been recorded."""
        for call in reversed(list(self.invocations)):
            if call.pipeline is pipeline:
                return True
            if call.start_ns < pipeline.start_ns:
                break
        return pipeline.encode_end_ns >= 0 or bool(pipeline.inner or pipeline.step_ends_ns)

    @property
    def running(self) -> bool:
        """Whether a pipeline call or a submodule call is running."""
        begun = (one for one in self.invocations if one.index < 0 and not one.failed)
        return bool(self._open) or any(begun)

    def end_open_pipelines(self) -> None:
        """End the pipeline calls that are still running, as unfinished, when the run is closed."""
        for pipeline in list(self._open):
            if pipeline.start_ns >= 0:
                self.end_pipeline(pipeline, failed=True)

    def begin_call(self, invocation: Invocation) -> None:
        """Start the invocation now: sets its `start_ns`."""
        invocation.start_ns = self.clock.now_ns()
        if invocation.pipeline is not None and not invocation.provisional:
            invocation.pipeline.begin_call(invocation.stage, invocation.start_ns)
        if invocation.recorded:
            self.invocations.append(invocation)

    def end_call(
        self, invocation: Invocation, end_ns: int | None = None, *, failed: bool = False
    ) -> None:
        """End the invocation at `end_ns` or now. If it failed, it gets no index and no file. Again
        without effect."""
        if invocation.index >= 0:
            return
        end_ns = self.clock.now_ns() if end_ns is None else end_ns
        invocation.failed = failed
        if failed:
            invocation.error = error_mark(sys.exc_info()[1])
            return
        invocation.end_ns = end_ns
        if invocation.pipeline is not None and not invocation.provisional:
            invocation.pipeline.end_call(invocation.stage, end_ns)
        if not invocation.recorded:
            return
        invocation.index = next(self._indices)
        if self.on_call_end is not None:
            self.on_call_end(invocation)

    def place_call(self, invocation: Invocation, place: Place) -> None:
        """Set the stage, step and iteration of an invocation that has ended."""
        before = (invocation.stage, invocation.step, invocation.iteration)
        invocation.stage, invocation.step = place.stage, place.step
        invocation.last_step, invocation.iteration = place.last_step, place.iteration
        was_provisional, invocation.provisional = invocation.provisional, False
        if was_provisional and invocation.pipeline is not None and not invocation.failed:
            invocation.pipeline.place_call(place.stage, invocation.start_ns, invocation.end_ns)
        changed = was_provisional or before != (place.stage, place.step, place.iteration)
        if changed and invocation.index >= 0 and self.on_call_placed is not None:
            self.on_call_placed(invocation)

    def label_call(self, invocation: Invocation, branch: Branch) -> None:
        """Set the branch of an invocation."""
        if invocation.branch != branch:
            invocation.branch = branch
            if invocation.index >= 0 and self.on_call_placed is not None:
                self.on_call_placed(invocation)

    def add_host_work(self, name: str, start_ns: int, end_ns: int) -> None:
        """Keep a piece of host work of this thread's pipeline call."""
        if self.recording and end_ns >= start_ns:
            self.host_work.append(HostWork(name, start_ns, end_ns, scope().pipeline))

    def add_own_work(self, what: OwnWork, start_ns: int, end_ns: int) -> None:
        """Keep a piece of our own work that this thread's pipeline call waited for."""
        if self.recording and end_ns >= start_ns:
            number = number_of(scope().pipeline)
            duration_ns = end_ns - start_ns
            span = Span("profiler", what.value, "", NO_STEP, start_ns, duration_ns, number)
            self.own_work.append(span)

    def pack(self, written: Container[int]) -> None:
        """Pack the returned pipeline calls whose files are `written`, with their invocations, until
        `unpack`: they do not change any more. One thread at a time."""
        while len(self.own_work) > _UNPACKED:
            self._packed_work.append(self.own_work.popleft())
        calls = list(self.invocations)
        if len(calls) < _UNPACKED:
            return
        groups: dict[int, list[Invocation]] = {}
        for call in calls:
            groups.setdefault(number_of(call.pipeline), []).append(call)
        done = {
            number: self._kept[number]
            for number, group in groups.items()
            if number in self._kept
            and self._kept[number].returned
            and all(call.index in written and not call.noting for call in group)
        }
        packed = [call for number in done for call in groups[number]]
        if len(packed) < _UNPACKED // 2:
            return
        self._packed.append(pack((done, packed)))
        gone = {*map(id, packed)}
        self.invocations[: len(calls)] = [call for call in calls if id(call) not in gone]
        for number in done:
            del self._kept[number]

    def unpack(self) -> None:
        """Restore all that was packed, in order, at the end of the run."""
        pieces, self._packed = self._packed, []
        kept: dict[int, PipelineCall] = {}
        earlier: list[Invocation] = []
        for done, calls in map(unpack, pieces):
            kept |= done
            earlier += calls
        self.invocations[:0] = earlier
        self._kept = {**kept, **self._kept}
        self.own_work = deque([*self._packed_work, *self.own_work])
        self._packed_work = Packed[Span]()

    def finished(self) -> list[Invocation]:
        """Invocations that returned, in the order of their index."""
        found = [invocation for invocation in self.invocations if invocation.index >= 0]
        return sorted(found, key=lambda invocation: invocation.index)

    def calls(self) -> list[Call]:
        """The calls of `finished`, in its order."""
        return [invocation.as_call() for invocation in self.finished()]

    def spans(self) -> list[Span]:
        """Pipeline, stage and step spans of every outermost pipeline call, and spans of our own
        work."""
        spans = [span for pipeline in self.pipelines for span in pipeline.spans()]
        return [*spans, *self.own_work]
