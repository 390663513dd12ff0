"""Calls while they run: clock, pipeline calls, submodule invocations, open scopes.

An open scope belongs to the thread or task that opened it. Pipelines in concurrent threads do
not see each other's scopes. A forked child abandons the recording, which stays with the parent.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from profiler.capture.patching import ByIdentity
from profiler.errors import InputError
from profiler.plugins import error_text, let_pass
from profiler.trace.events import (
    NO_ITERATION,
    NO_PIPELINE,
    NO_STEP,
    RUN_STAGE,
    STAGES,
    UNKNOWN,
    Call,
    Span,
    SpanKind,
)
from profiler.trace.manifest_fields import Generation, Setting, SubmoduleSettings

if TYPE_CHECKING:
    from profiler.trace.columns import CommandColumns


# --- Dtype and shape of arrays and tensors of any library; nothing here raises.


_DTYPE_NAMES: dict[Any, str] = {}


def described(value: Any) -> str:
    """Format an array or tensor as "dtype[d0,d1,…]"; "" for anything else and for values without a
    shape (nested tensors)."""
    try:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return f"{_dtype_name(value.dtype)}[{','.join(map(str, value.shape))}]"
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
    return ""


def first_dimension(value: Any) -> int:
    """The first dimension of an array or tensor, 0 for anything else."""
    try:
        shape = getattr(value, "shape", None)
        return int(shape[0]) if shape is not None and len(shape) > 0 else 0
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return 0


def _dtype_name(dtype: Any) -> str:
    """The name of an element type, without its library. Cached: NumPy takes 3 µs to name one."""
    try:
        return _DTYPE_NAMES[dtype]
    except (KeyError, TypeError) as error:  # not cached yet, or unhashable
        let_pass(error)
        name = str(dtype).rpartition(".")[2]
    if isinstance(dtype, Hashable):
        _DTYPE_NAMES[dtype] = name
    return name


# --- The clock of a run: monotonic while it lasts, CLOCK_REALTIME's epoch in its numbers.


class Clock(Protocol):
    """Returns ns since the epoch; tests use one that they move by hand."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    @property
    def monotonic_offset_ns(self) -> int:
        """The offset to add to CLOCK_MONOTONIC to get this clock."""
        ...


@dataclass(frozen=True, slots=True)
class RunClock:
    """CLOCK_MONOTONIC plus an offset fixed when the run started, so that a clock step during the
    run cannot bend durations."""

    monotonic_offset_ns: int

    @classmethod
    def start(cls) -> RunClock:
        """Measure the offset of CLOCK_REALTIME from CLOCK_MONOTONIC: of several paired readings,
        the tightest."""
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


# --- Names of our own work in a run: spans of kind `profiler`.


class OwnWork(StrEnum):
    """Kinds of our own work, as spans of kind `profiler` name them."""

    START_SESSION = "start_session"  # start or open a runtime's profiler
    STOP_SESSION = "stop_session"  # stop it and have it write its recording
    RENEW_SESSION = "renew_session"
    CONVERT = "convert"  # convert a recording to commands


# --- One call of a pipeline on the timeline: the times that split it into stages and steps.


def nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class PipelineCall:
    """One call of the pipeline; `number` is that of `events.Call`. `outer` is the pipeline call
    around it, `inner` are those inside it; times are -1 until reached, also the start of a
    generator or coroutine. `settings` are the numbers and switches it was given, `submodules` the
    settings of its submodules when it started, `generation` what it made."""

    name: str
    start_ns: int
    number: int = NO_PIPELINE
    end_ns: int = -1
    outer: PipelineCall | None = None
    inner: list[PipelineCall] = field(default_factory=list)
    encode_end_ns: int = -1  # end of encode_prompt and of every call of the encode stage
    step_ends_ns: list[tuple[int, int]] = field(default_factory=list)  # (step, end)
    loop_start_ns: int = -1  # start of the first denoiser call
    decoding: bool = False  # a call of the decode stage has started
    hooks_ns: int = 0  # in the profiler's own code, while it ran
    around_ns: int = 0  # in the profiler's own code, before its start and after its end
    failed: bool = False  # ended with an exception: its last stage is the one that was running
    settings: dict[str, Setting] = field(default_factory=dict)
    submodules: dict[str, SubmoduleSettings] = field(default_factory=dict)
    generation: Generation | None = None
    before_end: Callable[[], object] = nothing  # collects what can only be known when it has ended
    is_run: bool = False  # its only stage is `run`
    returned: bool = False  # to its caller: it does not change any more
    suspended: bool = False  # a generator or coroutine whose caller runs now

    def begin_call(self, stage: str, start_ns: int) -> None:
        """Record that a submodule call of `stage` starts."""
        if stage == "denoise" and self.loop_start_ns < 0:
            self.loop_start_ns = start_ns
        if stage == "decode":
            self.decoding = True

    def end_call(self, stage: str, end_ns: int) -> None:
        """Record that a submodule call of `stage` has returned."""
        if stage == "encode":
            self.end_encoding(end_ns)

    def place_call(self, stage: str, start_ns: int, end_ns: int) -> None:
        """Record the stage of a submodule call that has returned, once it is known."""
        if stage == RUN_STAGE:
            self.is_run = True
        elif stage == "denoise":
            begun = self.loop_start_ns >= 0
            self.loop_start_ns = min(self.loop_start_ns, start_ns) if begun else start_ns
        elif stage == "decode":
            self.decoding = True
        elif self.loop_start_ns < 0 or end_ns <= self.loop_start_ns:
            self.encode_end_ns = max(self.encode_end_ns, end_ns)

    def end_encoding(self, end_ns: int) -> None:
        """Record that work of the encode stage has ended; ignored after the start of the loop."""
        if self.loop_start_ns < 0:
            self.encode_end_ns = end_ns

    def end_step(self, step: int, end_ns: int, *, again: bool = False) -> None:
        """Record the end of a scheduler step, which ends that denoising step; `again`: as the one
        before did."""
        if again and self.step_ends_ns:
            self.step_ends_ns.pop()
        self.step_ends_ns.append((step, end_ns))

    def total_hooks_ns(self) -> int:
        """Time in the profiler's own code, including that of inner pipeline calls."""
        inner_ns = sum(call.total_hooks_ns() for call in self.inner)
        return self.hooks_ns + self.around_ns + inner_ns

    def spans(self) -> list[Span]:
        """Pipeline, stages and steps, outer before inner; the stages tile the pipeline.

        A pipeline that only runs other pipelines has their stages and steps.
        """
        pipeline = self._span("pipeline", self.name, "", NO_STEP, self.start_ns, self.end_ns)
        return [pipeline, *self._parts(self.start_ns, self.end_ns)]

    def _parts(self, start_ns: int, end_ns: int) -> list[Span]:
        """Stages and steps; the first stage starts at `start_ns`, the last ends at `end_ns`."""
        if self.inner and self.loop_start_ns < 0 and self.encode_end_ns < 0:
            borders = [start_ns, *(call.end_ns for call in self.inner[:-1]), end_ns]
            return [
                span
                for call, begin, end in zip(self.inner, borders, borders[1:], strict=False)
                for span in call._parts(begin, end)  # noqa: SLF001 - of its own class
            ]
        if self.is_run:
            return [self._span("stage", RUN_STAGE, RUN_STAGE, NO_STEP, start_ns, end_ns)]
        spans = []
        borders = [start_ns, *self.stage_borders_ns(), end_ns]
        for stage, begin, end in zip(STAGES, borders, borders[1:], strict=False):
            if end > begin:
                spans.append(self._span("stage", stage, stage, NO_STEP, begin, end))
        begin = self.loop_start_ns if self.loop_start_ns >= 0 else borders[1]
        for step, end in self.step_ends_ns:
            spans.append(self._span("step", f"step {step}", "denoise", step, begin, end))
            begin = end
        return spans

    def _span(
        self, kind: SpanKind, name: str, stage: str, step: int, begin_ns: int, end_ns: int
    ) -> Span:
        return Span(kind, name, stage, step, begin_ns, end_ns - begin_ns, self.number)

    def stage_borders_ns(self) -> tuple[int, int]:
        """Ends of encode and denoise. Encoding ends with `encode_prompt` and the last call of its
        stage; denoising with the last scheduler step. A stage that was never reached has no
        length."""
        unfinished = self.failed and not self.decoding
        encode_end = self.encode_end_ns
        if encode_end < 0 or (unfinished and self.loop_start_ns < 0):
            encode_end = self.loop_start_ns if self.loop_start_ns >= 0 else self.end_ns
        denoise_end = self.step_ends_ns[-1][1] if self.step_ends_ns else encode_end
        if self.loop_start_ns >= 0 and (unfinished or not self.step_ends_ns):
            denoise_end = self.end_ns
        return encode_end, max(denoise_end, encode_end)


def number_of(pipeline: PipelineCall | None) -> int:
    """The number of a pipeline call, `NO_PIPELINE` for none."""
    return NO_PIPELINE if pipeline is None else pipeline.number


# --- What is recorded of a run: invocations, host work, and commands outside invocations.


@dataclass(frozen=True, slots=True)
class Place:
    """The stage, step and iteration of a call."""

    stage: str
    step: int = NO_STEP
    last_step: int = NO_STEP
    iteration: int = NO_ITERATION


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a step cache skipped in a call: the `paths` of skipped blocks, of the `blocks` that it
    may skip; see `CachedCall`."""

    cache: str
    blocks: int
    paths: tuple[str, ...] = ()
    without_uncond: bool = False
    residual_ratio: float | None = None


@dataclass(slots=True, eq=False)
class Invocation:
    """One submodule invocation, from its start on.

    `index` is set when it returns, -1 before. `failed`: it ended with an exception, which `error`
    stands for (`error_mark`), 0 if unknown. `recorded` is False in warm-up, which is in no table.
    `pipeline` is its pipeline call, None outside; `last_step` the last step of the scheduler's
    schedule, -1 if unknown. `left_out`: its operators are not traced, though those of other calls
    are. `awaits_operators`: a source should trace it; `drop_noted`: a drop says why it has no
    operators. `provisional`: its stage may change until `Recorder.place_call`. `beyond_size`: its
    operators are not traced because of the run's size. `skipped` is what a step cache did in it.
    `hooks_ns` is time in our own code around a call outside pipeline calls; inside, the pipeline
    call has it. `branch_guessed`: its branch is a guess; `branch_open`: a later step may settle it.
    `device_lag_ns` and `device_duration_ns` are those of `Call`; `noting`: they are not known yet.
    `on_new_session`: a session took longer for it because it was new.
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
    error: int = 0
    index: int = -1
    pipeline: PipelineCall | None = None
    last_step: int = NO_STEP
    left_out: bool = False
    hooks_ns: int = 0
    awaits_operators: bool = False
    drop_noted: bool = False
    iteration: int = NO_ITERATION
    provisional: bool = False
    beyond_size: bool = False
    skipped: Skipped | None = None
    device_lag_ns: int = UNKNOWN
    device_duration_ns: int = UNKNOWN
    noting: bool = False
    branch_guessed: bool = False
    branch_open: bool = False
    on_new_session: bool = False

    def as_call(self) -> Call:
        """The finished invocation as a `Call` of the bundle."""
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
            iteration=self.iteration,
            device_lag_ns=self.device_lag_ns,
            device_duration_ns=self.device_duration_ns,
        )


def error_mark(error: BaseException | None) -> int:
    """A number that stands for an exception without keeping it alive, 0 for none. Its address alone
    may be that of a later one."""
    return 0 if error is None else hash((id(error), error_text(error)))


@dataclass(slots=True)
class HostWork:
    """A piece of work of the pipeline itself, on the root device, outside every call."""

    name: str
    start_ns: int
    end_ns: int
    pipeline: PipelineCall | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HostCommands:
    """Commands executed in `pipeline` outside of the traced calls."""

    commands: CommandColumns
    pipeline: PipelineCall


# --- What is open in a thread or task: a pipeline call, a submodule call, host work.


@dataclass(frozen=True, slots=True)
class Scope:
    """The open work of one thread or task. `owner` started the pipeline call `pipeline`, whose
    labels are `labels`; `call` is an open submodule call, whose inner calls are part of it; `host`
    is open host work."""

    owner: Any = None
    pipeline: PipelineCall | None = None
    labels: Any = None
    call: Any = None
    host: Any = None


_NOTHING_OPEN = Scope()
_SCOPE: ContextVar[Scope] = ContextVar("profile_sd3_scope", default=_NOTHING_OPEN)


def scope() -> Scope:
    """The open work of this thread or task; nothing if its pipeline call has ended (an interrupt
    may have left the scope open)."""
    found = _SCOPE.get()
    if found.pipeline is not None and found.pipeline.end_ns >= 0:
        return _NOTHING_OPEN
    return found


def enter(new: Scope) -> None:
    """Set the open work of this thread or task."""
    _SCOPE.set(new)


# --- Forked children: sessions are abandoned in the child, and backends forget the process.


_SESSIONS: weakref.WeakSet[Any] = weakref.WeakSet()
_watching: list[bool] = []
_forgetting: list[Callable[[], None]] = []


def abandon_in_children(session: Any) -> None:
    """Call `session.abandon()` in every child that is forked while the session exists."""
    if not _watching and hasattr(os, "register_at_fork"):
        _watching.append(True)
        os.register_at_fork(after_in_child=_in_child)
    _SESSIONS.add(session)


def forget_in_children(forget: Callable[[], None]) -> None:
    """Call `forget()` in every child that is forked after a session existed, once sessions are
    abandoned."""
    _forgetting.append(forget)


def _in_child() -> None:
    for session in list(_SESSIONS):
        session.abandon()
    for forget in _forgetting:
        forget()
    enter(Scope())


# --- What a script states: names of submodules, and the current denoising step.
#
# give_name(module, "upscaler")
# for i in range(28):
#     with profiler.step(i):
#         ...


_LAST_STEP = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class SaidStep:
    """One pass through a `with step(…)`."""

    step: int


_NAMES: ByIdentity[str] = ByIdentity()
_STEP: ContextVar[SaidStep | None] = ContextVar("profile_sd3_step", default=None)


def give_name(value: Any, name: str) -> None:
    """Have calls of `value` recorded under `name`, whatever a pipeline calls it."""
    _NAMES[value] = name


@contextmanager
def step(index: int) -> Iterator[None]:
    """Mark the code inside as denoising step `index`, from 0: for loops without a scheduler. Raises
    InputError if `index` is not a valid step."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= _LAST_STEP:
        raise InputError(f"{index!r} is no step: give a whole number from 0 on")
    token = _STEP.set(SaidStep(index))
    try:
        yield
    finally:
        _STEP.reset(token)
        open_now = scope()
        if open_now.pipeline is not None:
            open_now.pipeline.end_step(index, open_now.owner.recorder.clock.now_ns())


def said_step() -> SaidStep | None:
    """The denoising step that the script has opened by `step`, or None."""
    return _STEP.get()


def named() -> dict[str, Any]:
    """The live objects that the script has named, by name."""
    return {name: value for value, name in _NAMES.items()}


def name_of(value: Any) -> str:
    """The name that the script gave an object, or ""."""
    return _NAMES.get(value) or ""
