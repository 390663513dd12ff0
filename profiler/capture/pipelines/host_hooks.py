"""What a pipeline does itself between its submodules' calls: host work, and encoding prompts.

Whatever fails here is a drop of the run's, and never the caller's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profiler.capture.pipelines.call_hooks import Hooked, live_scope
from profiler.capture.pipelines.labels import PipelineLabels, by_name, first_batch
from profiler.capture.pipelines.submodules import PREPARE_LATENTS
from profiler.capture.scopes import Scope, enter, scope
from profiler.events import NO_STEP

__all__ = ["EncodingHook", "HostWorkHook"]


@dataclass(slots=True, eq=False)
class _OpenHostWork:
    """Host work that has begun in `step`; submodule calls inside it cut it into pieces."""

    name: str
    piece_ns: int
    before: Scope
    labels: PipelineLabels
    step: int


class HostWorkHook:
    """Records the calls of the pipeline's callable `path`, of its `scheduler()` where it is one's
    method."""

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
        """For methods that are wrapped."""
        before, attempt = scope(), self._hooks.recorder.attempt
        try:
            work = attempt(self._path, self._begin)
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

    def _begin(self) -> _OpenHostWork | None:
        """None where that is part of what is recorded already."""
        before, hooks = live_scope(), self._hooks
        if before.owner not in (None, hooks) or before.call is not None or before.host is not None:
            return None
        labels = before.labels or hooks.labels_outside()
        step = self._of_scheduler(labels)
        work = _OpenHostWork(self._path, hooks.recorder.clock.now_ns(), before, labels, step)
        enter(replace(before, host=work))
        return work

    def _of_scheduler(self, labels: PipelineLabels) -> int:
        """The step that a scheduler's `step` closes, `NO_STEP` for other work."""
        scheduler = self._scheduler()
        if scheduler is None:
            return NO_STEP
        if labels.steps.use(scheduler):
            labels.stages.schedule_set()
        if not self._steps:
            return NO_STEP
        step = labels.steps.now()
        self._unseen = int(self._unused and not _is_unused(scheduler))
        self._unused = False
        labels.stages.step_begins(step, labels.steps.last())
        return step

    def _end(self, work: _OpenHostWork) -> int:
        """When it ended, in ns."""
        recorder = self._hooks.recorder
        end = recorder.clock.now_ns()
        recorder.add_host_work(work.name, work.piece_ns, end)
        return end

    def _returned(self, work: _OpenHostWork, result: Any, end: int) -> None:
        """What its `result` says of the calls to come."""
        if work.step != NO_STEP:
            work.labels.steps.end()
            work.labels.stages.step_ended(last=work.step == work.labels.steps.last())
            if work.before.pipeline is not None:
                work.before.pipeline.end_step(work.step, end)
        elif self._scheduler() is not None:
            work.labels.steps.restart()
            work.labels.stages.schedule_set()
        elif work.name.endswith(PREPARE_LATENTS):  # also of a pipeline that this one holds
            work.labels.latents_batch = first_batch(result)

    def _loops(self, work: _OpenHostWork, arguments: tuple[Any, Any], end: int) -> None:
        """Let the run know of a scheduler that a script uses by itself."""
        scheduler, recorder = self._scheduler(), self._hooks.recorder
        if scheduler is None or work.before.pipeline is not None or not recorder.recording:
            return
        if self._steps:
            recorder.loops.stepped(scheduler, work.step, arguments, end, unseen=self._unseen)
        else:
            recorder.loops.new_schedule(scheduler)


def _is_unused(scheduler: Any) -> bool:
    """Whether a scheduler that counts its steps has made none. One that is found within
    `scheduler.step(model(x))` makes its first unseen: Python has looked `step` up already."""
    return getattr(scheduler, "step_index", 0) is None


class EncodingHook:
    """Lets labels know which prompt is being encoded; `names` are the parameters of
    `encode_prompt`, `returned` the variables that it returns."""

    def __init__(self, hooks: Hooked, names: list[str], returned: Sequence[str] = ()) -> None:
        self._hooks = hooks
        self._names = names
        self._returned_names = returned

    def around(self, original: Any, args: Any, kwargs: Any) -> Any:
        """For `encode_prompt`, which is wrapped."""
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
        labels.stages.told()
        if before.owner is not self._hooks:
            labels.stages.finish()
        if before.pipeline is not None and before.owner is self._hooks:
            before.pipeline.end_encoding(self._hooks.recorder.clock.now_ns())


def _leave(before: Scope) -> None:
    """Go back to what was open, also where the script is interrupted meanwhile."""
    try:
        enter(before)
    except BaseException:
        enter(before)
        raise
