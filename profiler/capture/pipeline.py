"""Hooks on a pipeline shaped like diffusers': they tell the recorder what runs when.

Modules of torch report through forward hooks, everything else through reversible wraps. What the
user replaces between two calls of the pipeline (a scheduler, a compiled transformer) is hooked
anew when the next one begins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from profiler.capture.call_hooks import CallHook
from profiler.capture.labels import (
    CACHE_CONTEXT,
    PipelineLabels,
    Steps,
    argument_names,
    by_name,
    first_batch,
)
from profiler.capture.operator_source import OperatorSource
from profiler.capture.recorder import Recorder, Scope, enter, scope
from profiler.capture.shapes import (
    SCHEDULER_STEP,
    Entry,
    entries,
    host_work,
    part_of,
    present_entries,
)
from profiler.capture.torch_hooks import (
    hook_module,
    is_compiled,
    is_module,
    transparent,
)
from profiler.capture.wraps import Around, Wraps, is_function, weakly
from profiler.events import NO_STEP

__all__ = ["PipelineHooks", "SourceOf"]

SourceOf = Callable[[Entry], OperatorSource | None]


@dataclass(slots=True, eq=False)
class _OpenHostWork:
    """Host work that has begun; submodule calls inside it cut it into pieces."""

    name: str
    piece_ns: int


@dataclass(frozen=True, slots=True)
class _Hooked:
    """A method that is hooked, as it was found: to see whether it has been replaced since.
    `owner` and `seen` are called for what they were."""

    owner: Callable[[], Any]
    seen: Callable[[], Any]
    wraps: Wraps


class PipelineHooks:
    """All hooks on one pipeline, which is held weakly. `source_of` says who traces the operators
    of an entry; `before_pipeline(pipeline)` runs before each call of the pipeline."""

    def __init__(
        self,
        pipeline: Any,
        recorder: Recorder,
        source_of: SourceOf,
        before_pipeline: Callable[[Any], None],
    ) -> None:
        self.pipeline = weakly(pipeline)
        self._name = type(pipeline).__name__
        self.recorder = recorder
        self.source_of = source_of
        self._before_pipeline = before_pipeline
        self.detached = False
        self._wraps = Wraps()
        self._hooked: dict[object, _Hooked] = {}

    def attach(self) -> None:
        """Hook everything. Raises InputError where the pipeline has no submodule; then, as
        after any other error, it is as it was."""
        pipeline = self.pipeline()
        try:
            entries(pipeline)
            self._wraps.around_method(pipeline, "__call__", self._around_pipeline)
            self._refresh()
        except BaseException:
            self.detach()
            raise

    def detach(self) -> None:
        """Take every hook off; may be called again without effect."""
        self.detached = True
        for hooked in reversed(list(self._hooked.values())):
            hooked.wraps.undo()
        self._hooked.clear()
        self._wraps.undo()

    def covers(self, owner: Any) -> bool:
        """Whether a submodule of this pipeline is `owner`."""
        return any(hooked.owner() is owner for hooked in list(self._hooked.values()))

    def _scheduler(self) -> Any:
        return getattr(self.pipeline(), "scheduler", None)

    def _refresh(self) -> None:
        """Hook what is not hooked: at first everything, later what has been replaced."""
        pipeline = self.pipeline()
        found: dict[object, tuple[Any, str, Callable[[Wraps], None]]] = {}
        key: object
        hook: Callable[[Wraps], None]
        for entry in present_entries(pipeline):
            owner = getattr(pipeline, entry.submodule)
            found[entry] = (owner, entry.method, partial(self._hook_entry, entry, owner))
            if hasattr(owner, "cache_context"):
                key = f"{entry.submodule}.cache_context"
                found[key] = (owner, "cache_context", partial(_hook_cache_context, owner))
        for path, owner, name in host_work(pipeline):
            hook = partial(self._hook_method, owner, name, self._host_work(path))
            found[path] = (owner, name, hook)
        if callable(getattr(pipeline, "encode_prompt", None)):
            hook = partial(self._hook_encode_prompt, pipeline)
            found["encode_prompt"] = (pipeline, "encode_prompt", hook)
        for key, (owner, name, hook) in found.items():
            known = self._hooked.get(key)
            if known is not None:
                if known.owner() is owner and known.seen() is _seen(owner, name):
                    continue
                known.wraps.undo()
            wraps = Wraps()
            self._hooked[key] = _Hooked(weakly(owner), weakly(None), wraps)
            hook(wraps)
            self._hooked[key] = _Hooked(weakly(owner), weakly(_seen(owner, name)), wraps)

    def new_labels(self) -> PipelineLabels:
        return PipelineLabels(Steps(self._scheduler))

    def _around_pipeline(self, original: Any, args: Any, kwargs: Any) -> Any:
        before = scope()
        if before.owner is self:  # the pipeline calls itself
            return original(*args, **kwargs)
        if before.pipeline is None and before.call is not None:
            before = Scope()  # left open by a call that was interrupted
        recorder = self.recorder
        self._before_pipeline(self.pipeline())
        self._refresh()
        if recorder.recording:
            recorder.settings = _numbers(original, args, kwargs)
        sources = self._sources()
        pipeline = recorder.begin_pipeline(self._name)
        enter(Scope(self, pipeline, self.new_labels()))
        failed = True
        try:
            for source in sources:
                source.begin_pipeline(pipeline)
            result = original(*args, **kwargs)
            failed = False
            return result
        finally:
            enter(before)
            recorder.end_pipeline(pipeline, failed=failed)
            for source in sources:
                source.end_pipeline(pipeline)
            recorder.settle()

    def _sources(self) -> list[OperatorSource]:
        found = map(self.source_of, present_entries(self.pipeline()))
        return list({id(source): source for source in found if source is not None}.values())

    def _encode_prompt(self, names: list[str]) -> Around:
        def around(original: Any, args: Any, kwargs: Any) -> Any:
            before = scope()
            if before.owner is not self:  # outside a call of this pipeline
                enter(replace(before, labels=self.new_labels()))
            labels = scope().labels
            labels.begin_encoding(by_name(names, args, kwargs), names)
            try:
                result = original(*args, **kwargs)
            finally:
                enter(before)
            labels.end_encoding(result, names)
            if before.pipeline is not None and before.owner is self:
                before.pipeline.end_encoding(self.recorder.clock.now_ns())
            return result

        return around

    def _host_work(self, path: str) -> Around:
        def around(original: Any, args: Any, kwargs: Any) -> Any:
            before, recorder = scope(), self.recorder
            ours = before.owner in (None, self)
            if not ours or before.call is not None or before.host is not None:
                return original(*args, **kwargs)
            labels = before.labels or self.new_labels()
            step = labels.steps.now() if path == SCHEDULER_STEP else NO_STEP
            work = _OpenHostWork(path, recorder.clock.now_ns())
            enter(replace(before, host=work))
            try:
                result = original(*args, **kwargs)
            finally:
                enter(before)
                end = recorder.clock.now_ns()
                recorder.add_host_work(path, work.piece_ns, end)
            if path == SCHEDULER_STEP:
                labels.steps.end()
                if before.pipeline is not None:
                    before.pipeline.end_step(step, end)
            elif path == "scheduler.set_timesteps":
                labels.steps.restart()
            elif path == "prepare_latents":
                labels.latents_batch = first_batch(result)
            return result

        return around

    def _hook_encode_prompt(self, pipeline: Any, wraps: Wraps) -> None:
        names = argument_names(pipeline.encode_prompt)
        self._hook_method(pipeline, "encode_prompt", self._encode_prompt(names), wraps)

    def _hook_method(self, owner: Any, name: str, around: Around, wraps: Wraps) -> None:
        """Wraps a method: of the pipeline on its class, of other objects on the instance."""
        ours = owner is self.pipeline() and name not in _attributes(owner)
        if ours and is_function(getattr(owner, name)):
            wraps.around_method(owner, name, around)
        else:
            wraps.around(owner, name, transparent(around) if is_module(owner) else around)

    def _hook_entry(self, entry: Entry, owner: Any, wraps: Wraps) -> None:
        """Hooks a submodule: forward hooks on a torch module, else a wrap of its method."""
        method = getattr(getattr(owner, "_orig_mod", owner), entry.method)
        names = argument_names(method) or argument_names(_forward_of(self.pipeline(), entry))
        hook = CallHook(self, entry, weakly(owner), names)
        if entry.method == "forward" and is_module(owner):
            hook_module(wraps, owner, hook.begin, hook.end, hook.around)
        else:
            self._hook_method(owner, entry.method, hook.around, wraps)


def _seen(owner: Any, name: str) -> Any:
    """What changes when the user replaces or compiles a method that is hooked."""
    if name == "forward" and is_module(owner):
        return is_compiled(owner)
    return _attributes(owner).get(name)


def _forward_of(pipeline: Any, entry: Entry) -> Any:
    """What a method with no parameters of its own passes its arguments on to: `decode(*args)` of
    optimum's VAE is `forward` of its decoder."""
    return getattr(part_of(pipeline, entry), "forward", None)


def _attributes(owner: Any) -> dict[str, Any]:
    return getattr(owner, "__dict__", {})


def _hook_cache_context(owner: Any, wraps: Wraps) -> None:
    """Lets labels know the name under which the denoiser is called."""

    def around(original: Any, args: Any, kwargs: Any) -> AbstractContextManager[Any]:
        name = args[0] if args else kwargs.get("name", "")
        return _named(original(*args, **kwargs), str(name))

    wraps.around(owner, "cache_context", around)


@contextmanager
def _named(context: AbstractContextManager[Any], name: str) -> Iterator[Any]:
    token = CACHE_CONTEXT.set(name)
    try:
        with context as value:
            yield value
    finally:
        CACHE_CONTEXT.reset(token)


def _numbers(function: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers and switches among a call's arguments, defaults included; no text of the user."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return {k: v for k, v in bound.arguments.items() if isinstance(v, (bool, int, float))}
