"""Hooks around submodule calls and the pipeline's own host work.

A failure in a hook is recorded as lost data of the run. It never raises in the caller.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Protocol

from profiler.capture.backend import backend_of, output_device
from profiler.capture.calls import (
    Invocation,
    Scope,
    Skipped,
    described,
    enter,
    number_of,
    said_step,
    scope,
)
from profiler.capture.operator_source import OperatorSource
from profiler.capture.pipelines.script_loops import latents_batch, timestep
from profiler.capture.pipelines.steps import (
    GENERATING,
    PipelineLabels,
    by_name,
    first_batch,
    latents_rows,
)
from profiler.capture.pipelines.submodules import PREPARE_LATENTS, Entry, device_reader
from profiler.capture.recorder import Noting, Recorder
from profiler.plugins import let_pass
from profiler.trace.events import NO_STEP

# --- The hooks of one method of a submodule: an `Invocation` from its start to its end.
#
# A failure in here is a drop of the run, and never an error of the caller.


_ENCODER = "get_encoder"  # of a model that generates: called by the model itself, before its loop
_NO_PASSES = ("encode", "decode", _ENCODER)  # calls of these are not passes of a loop
_FED = "input_feed"
_TIMESTEP = "timestep"
_OFFLOADED = ("cpu", "meta")  # devices of weights that are moved only for their call
SourceOf = Callable[[Entry], OperatorSource | None]


class Hooked(Protocol):
    """The pipeline that a hook belongs to."""

    recorder: Recorder
    source_of: SourceOf
    pipeline: Callable[[], Any]
    detached: bool

    def new_labels(self) -> PipelineLabels:
        """Create labels for encoding outside every pipeline call."""

    def labels_outside(self, scheduler: Any = None) -> PipelineLabels:
        """The labels of this thread's calls outside every pipeline call; `scheduler` is the one
        that is being called, if one is."""


@dataclass(slots=True, eq=False)
class _OpenCall:
    """A submodule call that has started on `thread`. `depth` counts further calls of its module
    inside it; `handling` is the exception that was being handled when it started. `caller` is a
    frame that runs longer than the call, None if its end is always reported."""

    hook: CallHook
    invocation: Invocation
    before: Scope
    source: OperatorSource | None
    handling: BaseException | None
    caller: FrameType | None
    thread: int
    depth: int = 0
    skipped: Callable[[], Skipped | None] | None = None
    noting: Noting | None = None

    def interrupted(self) -> bool:
        """Whether the call has ended without a report: by a KeyboardInterrupt in a module, which
        calls no hooks then."""
        if self.caller is None or self.thread != threading.get_ident():
            return False
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - cheaper than inspect's
        while frame is not None and frame is not self.caller:
            frame = frame.f_back
        return frame is None

    def end_interrupted(self) -> Scope:
        """End an interrupted call; returns the scope around it."""
        self.hook.interrupted(self)
        return scope()


def live_scope() -> Scope:
    """The open scope of this thread or task, without calls whose end was not reported."""
    found = scope()
    while isinstance(found.call, _OpenCall) and found.call.interrupted():
        found = found.call.end_interrupted()
    return found


class CallHook:
    """Records the calls of `entry`, whose module or object is `owner()`; `names` are the parameters
    of its method."""

    def __init__(
        self, hooks: Hooked, entry: Entry, owner: Callable[[], Any], names: list[str]
    ) -> None:
        self._hooks = hooks
        self._entry = entry
        self._owner = owner
        self._names = names
        self._device = device_reader(owner(), entry)
        backend = backend_of(owner())
        self._unobserved = backend.unobserved
        self._cache = backend.step_cache() if entry.stage in ("denoise", "") else None
        self._marks = backend.device_marks()
        self._onloaded = ""  # its device, if its last call ran

    @property
    def detached(self) -> bool:
        """Whether the hooks are removed, so that the end of an open call will not be reported."""
        return self._hooks.detached

    def close(self) -> None:
        """Close the step cache, since the hook is removed."""
        if self._cache is not None:
            self._cache.close()

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Run a call of a wrapped method."""
        opened = self._open(args, kwargs)
        if opened is None:
            return original(*args, **kwargs)
        result, failed = None, True
        try:
            result = original(*args, **kwargs)
            failed = False
        finally:
            try:
                self._close(opened, result, failed=failed)
            except BaseException:  # the script was interrupted: once more, to the end
                self._close(opened, result, failed=failed)
                raise
        return result

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: FrameType) -> None:
        """Handle the start of a module call; `caller` is a frame that runs until it ends."""
        call = self._opened()
        if call is not None and not call.interrupted():
            call.depth += 1
            return
        self._open(args, kwargs, caller)

    def end(self, output: Any) -> None:
        """Handle the end of a module call, also of one that failed."""
        call = self._opened()
        if call is None:
            return
        if call.depth:
            call.depth -= 1
            return
        error = sys.exc_info()[1]
        failed = error is not None and error is not call.handling
        self._close(call, output, failed=failed)

    def _opened(self) -> _OpenCall | None:
        """The open call of this thread, if this hook opened it."""
        call = scope().call
        return call if isinstance(call, _OpenCall) and call.hook is self else None

    def interrupted(self, opened: _OpenCall) -> None:
        """End a call of this hook whose end was not reported."""
        self._close(opened, None, failed=True)

    def _open(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: FrameType | None = None
    ) -> _OpenCall | None:
        """Start a call; None if it is part of what is recorded already, or cannot be recorded."""
        before = scope()
        try:
            with self._unobserved():
                return self._begun(args, kwargs, caller)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            enter(before)
            let_pass(error)
            self._hooks.recorder.lose(self._entry.submodule, error)
            return None
        except BaseException:
            enter(before)
            raise

    def _begun(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: FrameType | None
    ) -> _OpenCall | None:
        before, recorder = live_scope(), self._hooks.recorder
        if self._hooks.detached:
            return None
        if before.call is not None:
            if not (isinstance(before.call, _OpenCall) and before.call.hook.detached):
                return None
            before = replace(before, call=None)  # its hooks were taken off while it ran
        if before.owner not in (None, self._hooks) and before.owner.covers(self._owner()):
            return None  # of two pipelines that share a module, the running one records it
        entered = recorder.clock.now_ns()
        invocation = self._invocation(by_name(self._names, args, kwargs), before)
        source = self._hooks.source_of(self._entry)
        thread = threading.get_ident()
        handling = sys.exc_info()[1]
        opened = _OpenCall(self, invocation, before, source, handling, caller, thread)
        try:
            self._begin(opened)
        except BaseException:
            self._close(opened, None, failed=True)
            raise
        if before.host is not None:
            recorder.add_host_work(before.host.name, before.host.piece_ns, entered)
        if before.pipeline is not None:
            before.pipeline.hooks_ns += invocation.start_ns - entered
        else:
            invocation.hooks_ns += invocation.start_ns - entered
        return opened

    def _begin(self, opened: _OpenCall) -> None:
        """Notify the source and the recorder of the start."""
        invocation, recorder = opened.invocation, self._hooks.recorder
        if opened.source is not None:
            try:
                opened.source.before(invocation)
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)
                recorder.lose(self._entry.submodule, error)
                invocation.drop_noted = True
                opened.source = None
        if self._cache is not None:
            number = number_of(invocation.pipeline)
            of = (self._owner(), number)
            opened.skipped = recorder.attempt(self._entry.submodule, self._cache.begin, *of)
        enter(replace(opened.before, call=opened))
        bare = opened.source is None or invocation.left_out
        if bare and invocation.recorded and self._marks is not None:
            begin, device = recorder.device_times.begin, invocation.device
            if device.startswith(_OFFLOADED):
                device = self._onloaded or device
            labels = (self._marks, invocation, device)
            opened.noting = recorder.attempt(self._entry.submodule, begin, *labels)
        recorder.begin_call(invocation)

    def _invocation(self, arguments: Mapping[str, Any], before: Scope) -> Invocation:
        entry, hooks = self._entry, self._hooks
        labels = before.labels or hooks.labels_outside()
        pipeline = hooks.pipeline()
        stage, moves = "encode", False
        if entry.method != _ENCODER and "." not in entry.method:  # not what `generate` calls itself
            stage, moves = labels.stages.begin(entry.submodule, entry.stage)
        step = NO_STEP
        if stage == "denoise":
            step = labels.steps.now(arguments.get(_TIMESTEP))
        said = said_step()
        if said is not None:
            stage, moves, step = "denoise", False, said.step
            labels.stages.said(said)
        branch, note = "", None
        generating = GENERATING.get()
        if entry.labelled == "prompt" and not generating:
            branch = labels.encoder_branch(entry.submodule)
            note = labels.script.encoded if labels.script else None
        elif entry.labelled == "denoiser":
            guided = _guided(pipeline)
            branch = labels.denoiser_branch(entry.submodule, arguments, guided=bool(guided))
            unknown = guided is None and not labels.latents_batch
            waiting = labels.script or (labels.unknown if unknown else None)
            if waiting and not labels.shows_branch(arguments):
                note = partial(waiting.denoised, rows=latents_rows(arguments))
        invocation = Invocation(
            submodule=entry.submodule,
            stage=stage,
            branch=branch,
            step=step,
            last_step=labels.steps.last() if stage == "denoise" else NO_STEP,
            device=self._device(self._owner()),
            input_shapes=_shapes(arguments),
            recorded=hooks.recorder.recording,
            pipeline=before.pipeline,
        )
        passes = (generating or before.pipeline is not None) and not (
            branch or stage == "denoise" or entry.method.rpartition(".")[2].startswith(_NO_PASSES)
        )
        labels.stages.opened(invocation, moves=moves, passes=passes)
        if note is not None:
            note(invocation)
        return invocation

    def _close(self, opened: _OpenCall, output: Any, *, failed: bool) -> None:
        """End a call. Again without effect."""
        enter(opened.before)
        self._hooks.recorder.attempt(self._entry.submodule, self._ended, opened, output, failed)

    def _ended(self, opened: _OpenCall, output: Any, failed: bool) -> None:
        invocation, before, recorder = opened.invocation, opened.before, self._hooks.recorder
        with self._unobserved():
            end_ns = recorder.clock.now_ns()
            device = recorder.attempt(self._entry.submodule, output_device, output)
            if device and not device.startswith("cpu"):
                self._onloaded = invocation.device = device  # it may have moved
            noting, opened.noting = opened.noting, None
            noted = noting is not None and not failed and noting.device == invocation.device
            if noting is not None and noted:
                recorder.attempt(self._entry.submodule, recorder.device_times.end, noting)
            if opened.skipped is not None and not failed:
                invocation.skipped = recorder.attempt(self._entry.submodule, opened.skipped)
            recorder.end_call(invocation, end_ns, failed=failed)
            if invocation.pipeline is None and invocation.recorded and not failed:
                recorder.loops.returned(invocation, output)
            if opened.source is not None:
                opened.source.after(invocation)
            if noted:
                recorder.attempt(self._entry.submodule, recorder.device_times.collect)
            if not failed:
                recorder.spent(invocation, invocation.end_ns)
            if before.host is not None:
                before.host.piece_ns = recorder.clock.now_ns()


def _guided(pipeline: Any) -> bool | None:
    """Whether a pipeline uses classifier-free guidance, None if unknown; diffusers compute that
    from a scale that is missing before the first run."""
    try:
        return bool(pipeline.do_classifier_free_guidance)
    except Exception as error:  # noqa: BLE001 - the user's program goes on
        let_pass(error)
        return None


def _shapes(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Arrays and tensors among the arguments as "dtype[d0,d1,…]"."""
    fed = arguments.get(_FED)
    if isinstance(fed, Mapping):  # arguments by name in one mapping
        arguments = fed
    texts = ((name, described(value)) for name, value in arguments.items())
    return {name: text for name, text in texts if text}


# --- Host work of a pipeline between its submodules' calls, and encoding of prompts.


@dataclass(slots=True, eq=False)
class _OpenHostWork:
    """Host work that has started in `step`; submodule calls inside it cut it into pieces."""

    name: str
    piece_ns: int
    before: Scope
    labels: PipelineLabels
    step: int


class HostWorkHook:
    """Records the calls of the pipeline's callable `path`; `scheduler()` is the scheduler if it is
    one's method."""

    def __init__(
        self, hooks: Hooked, path: str, scheduler: Callable[[], Any] = lambda: None
    ) -> None:
        self._hooks = hooks
        self._path = path
        self._scheduler = scheduler
        self._steps = path.endswith(".step")
        self._unused = self._steps and _is_unused(scheduler())
        self._unseen = 0

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Run a call of a wrapped method."""
        before, attempt = scope(), self._hooks.recorder.attempt
        try:
            work = attempt(self._path, self._begin, args, kwargs)
        except BaseException:  # the script was interrupted
            enter(before)
            raise
        if work is None:
            return original(*args, **kwargs)
        end = None
        try:
            result = original(*args, **kwargs)
        finally:
            _leave(work.before)
            end = attempt(self._path, self._end, work)
        if end is not None:
            attempt(self._path, self._returned, work, result, end)
            attempt(self._path, self._loops, work, (args, kwargs), end)
        return result

    def _begin(self, args: Any, kwargs: Any) -> _OpenHostWork | None:
        """Start host work; None if it is part of what is recorded already."""
        before, hooks = live_scope(), self._hooks
        if before.owner not in (None, hooks) or before.call is not None or before.host is not None:
            return None
        labels = before.labels or hooks.labels_outside(self._scheduler())
        step = self._of_scheduler(labels, args, kwargs)
        work = _OpenHostWork(self._path, hooks.recorder.clock.now_ns(), before, labels, step)
        enter(replace(before, host=work))
        return work

    def _of_scheduler(self, labels: PipelineLabels, args: Any, kwargs: Any) -> int:
        """The step that ends with this call of a scheduler's `step`, `NO_STEP` for other work."""
        scheduler = self._scheduler()
        if scheduler is None:
            return NO_STEP
        if labels.steps.use(scheduler):
            labels.stages.schedule_set()
        if not self._steps:
            return NO_STEP
        missed = self._unused and labels.script is not None
        self._unseen = int(missed and self._missed_one(scheduler, labels, args, kwargs))
        self._unused = False
        if self._unseen:
            labels.steps.end(0)
        step = labels.steps.now(timestep(args, kwargs))
        labels.stages.step_begins(step, labels.steps.last(), missed=self._unseen > 0)
        return step

    def _missed_one(self, scheduler: Any, labels: PipelineLabels, args: Any, kwargs: Any) -> bool:
        """Whether the scheduler had made a step before this one. If it is discovered within
        `scheduler.step(model(x))`, that step is missed: Python has looked up `step` already."""
        if not labels.stages.may_have_missed_one():
            return False
        if hasattr(scheduler, "step_index"):  # `scale_model_input` of some sets that of the first
            begin = getattr(scheduler, "begin_index", None) or 0
            try:
                return int(scheduler.step_index) == begin + 1
            except (TypeError, ValueError, RuntimeError) as error:  # none, or several elements
                let_pass(error)
                return False
        return labels.steps.place(timestep(args, kwargs)) == 1

    def _end(self, work: _OpenHostWork) -> int:
        """Record the host work; returns its end in ns."""
        recorder = self._hooks.recorder
        end = recorder.clock.now_ns()
        recorder.add_host_work(work.name, work.piece_ns, end)
        return end

    def _returned(self, work: _OpenHostWork, result: Any, end: int) -> None:
        """Update steps and stages from the returned call: a step, a new schedule, or latents."""
        if work.step != NO_STEP:
            again = work.labels.steps.end(work.step)
            work.labels.stages.step_ended(last=work.step == work.labels.steps.last())
            if work.before.pipeline is not None:
                work.before.pipeline.end_step(work.step, end, again=again)
        elif self._scheduler() is not None:
            work.labels.steps.restart()
            work.labels.stages.schedule_set()
        elif work.name.endswith(PREPARE_LATENTS):  # also of an inner pipeline
            work.labels.latents_batch = first_batch(result)

    def _loops(self, work: _OpenHostWork, arguments: tuple[Any, Any], end: int) -> None:
        """Report the scheduler's call if the script uses it outside pipeline calls."""
        scheduler, recorder = self._scheduler(), self._hooks.recorder
        waiting = work.labels.script or work.labels.unknown
        if scheduler is not None and waiting is not None:
            if self._steps:
                waiting.stepped(latents_batch(*arguments), 1 + self._unseen)
            else:
                waiting.begin_loop()
        if scheduler is None or work.before.pipeline is not None or not recorder.recording:
            return
        if self._steps:
            recorder.loops.stepped(scheduler, work.step, arguments, end, unseen=self._unseen)
        else:
            recorder.loops.new_schedule(scheduler)


def _is_unused(scheduler: Any) -> bool:
    """Whether a scheduler has made no step, as far as known."""
    return getattr(scheduler, "step_index", None) is None


class EncodingHook:
    """Records which prompt is being encoded; `names` are the parameters of `encode_prompt`,
    `returned` the variables that it returns."""

    def __init__(self, hooks: Hooked, names: list[str], returned: Sequence[str] = ()) -> None:
        self._hooks = hooks
        self._names = names
        self._returned_names = returned

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Run a call of the wrapped `encode_prompt`."""
        before, attempt = scope(), self._hooks.recorder.attempt
        try:
            labels = attempt("encode_prompt", self._begin, args, kwargs)
            result = original(*args, **kwargs)
        finally:
            _leave(before)
        if labels is not None:
            attempt("encode_prompt", self._returned, before, labels, result)
        return result

    def _begin(self, args: Any, kwargs: Any) -> PipelineLabels:
        before = scope()
        if before.owner is not self._hooks:  # outside a call of this pipeline
            enter(replace(before, labels=self._hooks.new_labels()))
        labels: PipelineLabels = scope().labels
        labels.begin_encoding(by_name(self._names, args, kwargs), self._names)
        return labels

    def _returned(self, before: Scope, labels: PipelineLabels, result: Any) -> None:
        labels.end_encoding(result, self._names, self._returned_names)
        labels.stages.component_named_stage()
        if before.owner is not self._hooks:
            labels.stages.finish()
        if before.pipeline is not None and before.owner is self._hooks:
            before.pipeline.end_encoding(self._hooks.recorder.clock.now_ns())


def _leave(before: Scope) -> None:
    """Restore the scope, also if the script is interrupted meanwhile."""
    try:
        enter(before)
    except BaseException:
        enter(before)
        raise
