"""What happened in a run, noted while it runs: cheap to write, turned into a bundle afterwards.

The recorder knows nothing of runtimes or files. Whoever wraps a pipeline tells it when
pipelines, calls (`invocations`) and host work begin and end; what is open now is a `scopes.Scope`.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from profiler.capture.clock import Clock
from profiler.capture.coverage import CoverageTally
from profiler.capture.device_times import DeviceTimes
from profiler.capture.invocations import HostCommands, HostWork, Invocation
from profiler.capture.notices import notice
from profiler.capture.own_work import OwnWork
from profiler.capture.pipelines.script_loops import ScriptLoops
from profiler.capture.scopes import scope
from profiler.capture.size_limit import SizeLimit
from profiler.capture.timeline import PipelineCall, nothing, number_of
from profiler.events import NO_STEP, UNKNOWN, Call, Span
from profiler.interruptions import let_pass

if TYPE_CHECKING:
    from profiler.capture.pipelines.stages import Place

__all__ = ["Recorder"]

_T = TypeVar("_T")

_REASONS = 100  # that are told apart


class Recorder:
    """Collects one run. Nothing is kept during warm-up.

    `limit` is of what the run may write; `memory` asks for allocations where they cost time.

    It takes no locks, so that a signal can end a run whatever thread it meets: lists grow and
    indices are drawn in one step each.

    `on_call_end` is told of each recorded invocation that returned, on the thread that ran it;
    `on_call_placed` of those whose labels have changed since;
    `on_pipeline_end` when the last open pipeline call has ended, its sources included;
    `on_converted` when a source has operators of earlier calls, whatever runs meanwhile.
    """

    def __init__(
        self, clock: Clock, *, limit: SizeLimit | None = None, memory: bool = False
    ) -> None:
        self.clock = clock
        self.limit = limit or SizeLimit()
        self.memory = memory
        self.on_call_end: Callable[[Invocation], None] | None = None
        self.on_call_placed: Callable[[Invocation], None] | None = None
        self.on_pipeline_end: Callable[[], None] | None = None
        self.on_converted: Callable[[], None] | None = None
        self.opening_ns = 0  # that profiled sessions of bare ones took to open
        self.coverage = CoverageTally()
        self.device_times = DeviceTimes(clock)
        self.loops = ScriptLoops()  # outside every pipeline call
        self.invocations: list[Invocation] = []
        self.host_work: deque[HostWork] = deque()  # until `host_commands` takes them
        self.host_commands: deque[HostCommands] = deque()  # of devices, of the host's operators
        self.own_work: deque[Span] = deque()  # of kind `profiler`
        self.failures: Counter[tuple[str, str]] = Counter()  # of our own, by place and reason
        self._warmups: list[int] = []  # begins of the open ones
        self._open: list[PipelineCall] = []
        self._kept: dict[int, PipelineCall] = {}  # those that have ended, by number
        self._indices = itertools.count()
        self._numbers = itertools.count()

    @property
    def recording(self) -> bool:
        """Whether what happens now is kept: outside warm-up."""
        return not self._warmups

    def begin_warmup(self) -> None:
        """Keep nothing from now on, until each of these has met its `end_warmup`."""
        self._warmups.append(self.clock.now_ns())

    def end_warmup(self) -> int:
        """Ends one; returns how long all of them took, in ns, -1 while others are open."""
        first = self._warmups[0]
        self._warmups.pop()
        return -1 if self._warmups else self.clock.now_ns() - first

    def lose(self, where: str, error: Exception, *, for_good: bool = False) -> None:
        """Our own `error` kept something of `where` (a submodule or a pipeline) from being
        recorded: a drop, of one call, or `for_good` of nobody knows how many. It is said on stderr
        once, and the script goes on."""
        reason = type(error).__name__
        try:
            reason = f"{reason}: {' '.join(str(error).split())}".removesuffix(": ")
        except Exception as failed:  # noqa: BLE001 - what it says may fail, too
            let_pass(failed)
        if len(self.failures) >= _REASONS and (where, reason) not in self.failures:
            reason = "further errors"  # that say something else each time
        new = (where, reason) not in self.failures
        if for_good:
            self.failures[where, reason] = UNKNOWN
        else:
            self.failures[where, reason] += 1
        if new:
            notice(f"{where} is not recorded whole, the script goes on: {reason}")

    def attempt(self, where: str, action: Callable[..., _T], *arguments: Any) -> _T | None:
        """What `action(*arguments)`, which is ours, returns; None where it fails, see `lose`."""
        try:
            return action(*arguments)
        except Exception as error:  # noqa: BLE001 - the script's call must not fail of us
            let_pass(error)
            self.lose(where, error)
            return None

    @property
    def pipelines(self) -> list[PipelineCall]:
        """The recorded pipeline calls that have ended."""
        return list(self._kept.values())

    @property
    def hooks_ns(self) -> int:
        """Time in our own code inside the recorded pipeline calls and around them, around all other
        calls, and ahead of bare sessions."""
        outside_ns = self.opening_ns + sum(call.hooks_ns for call in list(self.invocations))
        return outside_ns + sum(pipeline.total_hooks_ns() for pipeline in self.pipelines)

    @property
    def traced_ns(self) -> int:
        """What the callers of pipelines saw, and of calls outside of them: our own work ahead of a
        call and behind it included."""
        outside = [call for call in list(self.invocations) if call.pipeline is None]
        hooks_ns = self.opening_ns + sum(call.hooks_ns for call in outside)
        inside_ns = sum(p.end_ns - p.start_ns + p.around_ns for p in self.pipelines)
        return inside_ns + self.outside_ns + hooks_ns

    @property
    def outside_ns(self) -> int:
        """Time in the calls that returned and belong to no pipeline call."""
        outside = (c for c in list(self.invocations) if c.pipeline is None and c.index >= 0)
        return sum(call.end_ns - call.start_ns for call in outside)

    def spent(self, invocation: Invocation, begin_ns: int) -> None:
        """Our own code has run for `invocation` since `begin_ns`."""
        duration_ns = self.clock.now_ns() - begin_ns
        if invocation.pipeline is not None:
            invocation.pipeline.hooks_ns += duration_ns
        else:
            invocation.hooks_ns += duration_ns

    def begin_pipeline(self, name: str) -> PipelineCall:
        """A pipeline call begins now; hand it to `end_pipeline`. One in another has its number."""
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
        """The pipeline call has ended; its spans are kept with those of the call around it. Again
        without effect, and what an interrupt has cut short is completed then."""
        if pipeline.end_ns < 0:  # else the run has been closed meanwhile
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
        """The sources of a pipeline call have been told of its end, too."""
        if self.on_pipeline_end is not None and not self._open:
            self.on_pipeline_end()

    def converted(self) -> None:
        """A source has converted what its profiler recorded of calls that have ended."""
        if self.on_converted is not None:
            self.on_converted()

    def at_rest(self) -> bool:
        """Whether no recorded pipeline call runs."""
        return not self._open

    def end_open_pipelines(self) -> None:
        """The run is closed: what still runs ends here, unfinished."""
        for pipeline in list(self._open):
            self.end_pipeline(pipeline, failed=True)

    def begin_call(self, invocation: Invocation) -> None:
        """The invocation begins now: sets its `start_ns`."""
        invocation.start_ns = self.clock.now_ns()
        if invocation.pipeline is not None and not invocation.provisional:
            invocation.pipeline.begin_call(invocation.stage, invocation.start_ns)
        if invocation.recorded:
            self.invocations.append(invocation)

    def end_call(
        self, invocation: Invocation, end_ns: int | None = None, *, failed: bool = False
    ) -> None:
        """The invocation has returned, at `end_ns` or now, or failed: then it gets no index and no
        file. Again without effect."""
        if invocation.index >= 0:
            return
        end_ns = self.clock.now_ns() if end_ns is None else end_ns
        invocation.failed = failed
        if failed:
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
        """The stage, step and iteration of an invocation that has ended are known now."""
        told = (invocation.stage, invocation.step, invocation.iteration)
        invocation.stage, invocation.step = place.stage, place.step
        invocation.last_step, invocation.iteration = place.last_step, place.iteration
        was_provisional, invocation.provisional = invocation.provisional, False
        if was_provisional and invocation.pipeline is not None and not invocation.failed:
            invocation.pipeline.place_call(place.stage, invocation.start_ns, invocation.end_ns)
        changed = was_provisional or told != (place.stage, place.step, place.iteration)
        if changed and invocation.index >= 0 and self.on_call_placed is not None:
            self.on_call_placed(invocation)

    def add_host_work(self, name: str, start_ns: int, end_ns: int) -> None:
        """Keep a piece of host work of this thread's pipeline call."""
        if self.recording and end_ns >= start_ns:
            self.host_work.append(HostWork(name, start_ns, end_ns, scope().pipeline))

    def add_own_work(self, what: OwnWork, start_ns: int, end_ns: int) -> None:
        """Keep a piece of our own work, for which this thread's pipeline call waited."""
        if self.recording and end_ns >= start_ns:
            number = number_of(scope().pipeline)
            duration_ns = end_ns - start_ns
            span = Span("profiler", what.value, "", NO_STEP, start_ns, duration_ns, number)
            self.own_work.append(span)

    def finished(self) -> list[Invocation]:
        """Invocations that returned, in the order of their index."""
        found = [invocation for invocation in self.invocations if invocation.index >= 0]
        return sorted(found, key=lambda invocation: invocation.index)

    def calls(self) -> list[Call]:
        """The calls of `finished`, in its order."""
        return [invocation.as_call() for invocation in self.finished()]

    def spans(self) -> list[Span]:
        """Pipeline, stage and step spans of every pipeline call that is in no other, and our own
        work."""
        spans = [span for pipeline in self.pipelines for span in pipeline.spans()]
        return [*spans, *self.own_work]
