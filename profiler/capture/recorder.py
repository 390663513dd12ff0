"""What happened in a run, noted while it runs: cheap to write, turned into a bundle afterwards.

The recorder knows nothing of torch, ONNX Runtime or files. Whoever wraps a pipeline tells it when
pipelines, calls and host work begin and end. What is open belongs to the thread (or task) that
opened it: pipelines that run in threads at the same time never see each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profiler.capture.clock import Clock
from profiler.capture.timeline import PipelineCall
from profiler.events import NO_PIPELINE, NO_STEP, Call, Span

if TYPE_CHECKING:
    from profiler.capture.host_commands import HostCommands  # numpy, in every process that is on

__all__ = ["HostWork", "Invocation", "Recorder", "Scope", "enter", "number_of", "scope"]


@dataclass(slots=True, eq=False)
class Invocation:
    """One submodule invocation, from its begin on.

    `index` is given when it has returned, -1 before; `failed` tells that it ended with an
    exception. `recorded` is False in warm-up: it takes part in no table. `pipeline` is the
    pipeline call that it belongs to, None outside every one; `last_step` the last step of the
    scheduler's schedule, -1 where it is not known. `left_out` tells that its operators are not to
    be traced, though others of the submodule are.
    """

    submodule: str
    stage: str
    branch: str
    step: int
    device: str
    input_shapes: Mapping[str, str]
    start_ns: int = -1
    end_ns: int = -1
    ops_traced: bool = False
    recorded: bool = True
    failed: bool = False
    index: int = -1
    pipeline: PipelineCall | None = None
    last_step: int = NO_STEP
    left_out: bool = False

    def as_call(self) -> Call:
        """The finished invocation as the call that the bundle holds."""
        return Call(
            index=self.index,
            submodule=self.submodule,
            stage=self.stage,
            branch=self.branch,
            step=self.step,
            device=self.device,
            start_ns=self.start_ns,
            duration_ns=self.end_ns - self.start_ns,
            ops_traced=self.ops_traced,
            input_shapes=self.input_shapes,
            pipeline=number_of(self.pipeline),
        )


@dataclass(slots=True)
class HostWork:
    """A piece of work of the pipeline itself, on the root device, outside every call. Stage and
    step are those of the pipeline call in which it began."""

    name: str
    start_ns: int
    end_ns: int
    pipeline: PipelineCall | None = None
    stage: str = ""
    step: int = NO_STEP


@dataclass(frozen=True, slots=True)
class Scope:
    """What is open in one thread or task. `owner` began the pipeline call `pipeline`, whose labels
    are `labels`; `call` is an open submodule call, whose inner calls are part of it; `host` is
    open host work."""

    owner: Any = None
    pipeline: PipelineCall | None = None
    labels: Any = None
    call: Any = None
    host: Any = None


_NOTHING_OPEN = Scope()
_SCOPE: ContextVar[Scope] = ContextVar("profile_sd3_scope", default=_NOTHING_OPEN)


def number_of(pipeline: PipelineCall | None) -> int:
    """The number of a pipeline call, `NO_PIPELINE` for none."""
    return NO_PIPELINE if pipeline is None else pipeline.number


def scope() -> Scope:
    """What is open in this thread or task."""
    return _SCOPE.get()


def enter(new: Scope) -> None:
    """Make `new` what is open in this thread or task."""
    _SCOPE.set(new)


class Recorder:
    """Collects one run. `recording` is off during warm-up: nothing is kept then.

    It takes no locks, so that a signal can end a run whatever thread it meets: lists grow and
    indices are drawn in one step each.

    `on_call_end` is told of each recorded invocation that returned, on the thread that ran it;
    `on_pipeline_end` when the last open pipeline call has ended, its sources included.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.recording = True
        self.on_call_end: Callable[[Invocation], None] | None = None
        self.on_pipeline_end: Callable[[], None] | None = None
        self.settings: dict[str, Any] = {}  # numbers that the last pipeline call was given
        self.pipelines: list[PipelineCall] = []
        self.invocations: list[Invocation] = []
        self.host_work: list[HostWork] = []
        self.host_commands: list[HostCommands] = []  # of devices, and of the host's operators
        self._open: list[PipelineCall] = []
        self._indices = itertools.count()
        self._numbers = itertools.count()

    @property
    def hooks_ns(self) -> int:
        """Time in our own code inside the recorded pipeline calls."""
        return sum(pipeline.total_hooks_ns() for pipeline in self.pipelines)

    def begin_pipeline(self, name: str) -> PipelineCall:
        """A pipeline call begins now; hand it to `end_pipeline`. One in another has its number."""
        outer = scope().pipeline
        recorded = outer is None and self.recording
        number = next(self._numbers) if recorded else number_of(outer)
        pipeline = PipelineCall(name, self.clock.now_ns(), number, outer=outer)
        if recorded:
            self._open.append(pipeline)
        return pipeline

    def end_pipeline(self, pipeline: PipelineCall, *, failed: bool = False) -> None:
        """The pipeline call has ended; its spans are kept with those of the call around it."""
        if pipeline.end_ns >= 0:  # the run has been closed meanwhile
            return
        pipeline.failed = failed
        pipeline.end_ns = self.clock.now_ns()
        if pipeline.outer is not None:
            pipeline.outer.inner.append(pipeline)
        elif pipeline in self._open:
            self._open.remove(pipeline)
            self.pipelines.append(pipeline)

    def settle(self) -> None:
        """The sources of a pipeline call have been told of its end, too."""
        if self.on_pipeline_end is not None and not self._open:
            self.on_pipeline_end()

    def end_open_pipelines(self) -> None:
        """The run is closed: what still runs ends here, unfinished."""
        for pipeline in list(self._open):
            self.end_pipeline(pipeline, failed=True)

    def begin_call(self, invocation: Invocation) -> None:
        """The invocation begins now: sets its `start_ns`."""
        invocation.start_ns = self.clock.now_ns()
        if invocation.pipeline is not None:
            invocation.pipeline.begin_call(invocation.stage, invocation.start_ns)
        if invocation.recorded:
            self.invocations.append(invocation)

    def end_call(self, invocation: Invocation, *, failed: bool = False) -> None:
        """The invocation has returned, or failed: then it gets no index and no file."""
        end_ns = self.clock.now_ns()
        invocation.failed = failed
        if failed:
            return
        invocation.end_ns = end_ns
        if invocation.pipeline is not None:
            invocation.pipeline.end_call(invocation.stage, end_ns)
        if not invocation.recorded:
            return
        invocation.index = next(self._indices)
        if self.on_call_end is not None:
            self.on_call_end(invocation)

    def add_host_work(self, name: str, start_ns: int, end_ns: int) -> None:
        """Keep a piece of host work of this thread's pipeline call."""
        if self.recording and end_ns >= start_ns:
            self.host_work.append(HostWork(name, start_ns, end_ns, scope().pipeline))

    def finished(self) -> list[Invocation]:
        """Invocations that returned, in the order of their index."""
        found = [invocation for invocation in self.invocations if invocation.index >= 0]
        return sorted(found, key=lambda invocation: invocation.index)

    def calls(self) -> list[Call]:
        """The calls of `finished`, in its order."""
        return [invocation.as_call() for invocation in self.finished()]

    def spans(self) -> list[Span]:
        """Pipeline, stage and step spans of every pipeline call that is in no other."""
        return [span for pipeline in self.pipelines for span in pipeline.spans()]

    def placed_host_work(self) -> list[HostWork]:
        """Host work with the stage and step in which it began."""
        for work in self.host_work:
            if work.pipeline is not None and work.pipeline.end_ns >= 0:
                work.stage = work.pipeline.stage_at(work.start_ns)
                work.step = work.pipeline.step_at(work.start_ns)
        return self.host_work
