"""Attach to one pipeline: install its hooks and operator sources, remove them later.

Components that the user replaces between two calls are hooked again at the next call. A failure
of a hook is recorded as lost data, and the user's call continues.
"""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from profiler.capture.backend import backend_of, open_source
from profiler.capture.calls import PipelineCall, Scope, enter, scope
from profiler.capture.operator_source import OperatorSource, SourceRequest
from profiler.capture.patching import Around, Wraps, weakly
from profiler.capture.pipelines.call_hooks import (
    CallHook,
    EncodingHook,
    HostWorkHook,
    SourceOf,
    live_scope,
)
from profiler.capture.pipelines.discovery import Together, schedulers, title
from profiler.capture.pipelines.script_loops import generation
from profiler.capture.pipelines.script_objects import names_of
from profiler.capture.pipelines.steps import (
    CACHE_CONTEXT,
    GENERATING,
    GuiderHook,
    PipelineLabels,
    ScriptBranches,
    Stages,
    Steps,
    block_defaults,
    call_numbers,
    guiders,
    returned_names,
    submodule_settings,
)
from profiler.capture.pipelines.submodules import (
    Apart,
    Entry,
    PieceCoverage,
    PipelineCoverage,
    argument_names,
    device_of,
    entries,
    host_work,
    options_for,
    owner_of,
    part_of,
    present_entries,
    set_apart,
)
from profiler.capture.recorder import Recorder
from profiler.capture.run_info import PipelineFacts, pipeline_facts
from profiler.capture.settings import Options
from profiler.plugins import let_pass
from profiler.trace.manifest_fields import SubmoduleSettings

# --- Hooks on a pipeline shaped like diffusers', which report to the recorder.
#
# The backend of an object knows how to hook its calls; otherwise reversible wraps do it.


_GENERATE = "generate"  # a method that calls its own module once per token


@dataclass(frozen=True, slots=True)
class _Hooked:
    """A hooked method as it was found, to detect its replacement. `owner()` and `seen()` return the
    original objects; `look(owner, name)` returns the current one."""

    owner: Callable[[], Any]
    seen: Callable[[], Any]
    wraps: Wraps
    look: Callable[[Any, str], Any]

    def stays(self, owner: Any, name: str) -> bool:
        """Whether the method is still the one that was found."""
        return self.owner() is owner and self.seen() is _marked(self.look(owner, name))


def _marked(seen: Any) -> Any:
    """What was seen, with a mark for None, which a dead reference returns, too."""
    return _Hooked if seen is None else seen


@dataclass(frozen=True, slots=True, eq=False)
class _Outside:
    """The labels of calls outside every pipeline call, in one thread or several: each live one has
    an object in `threads`."""

    labels: PipelineLabels
    threads: weakref.WeakSet[_Thread] = field(default_factory=weakref.WeakSet)

    @property
    def looping(self) -> bool:
        """Whether a loop is running."""
        return self.labels.stages.looping

    def is_anothers(self, scheduler: Any) -> bool:
        """Whether the loop is one of another thread, with another scheduler."""
        alone = len(self.threads) <= 1 or not self.looping
        return not (alone or self.labels.steps.uses(scheduler))


class _Thread:
    """A live thread: the only reference to it is the thread's own."""


class PipelineHooks:
    """All hooks on one pipeline, which is referenced weakly. `source_of(entry)` returns the
    operator source of an entry; `before_pipeline(pipeline)` runs before each call of the
    pipeline."""

    def __init__(
        self,
        pipeline: Any,
        recorder: Recorder,
        source_of: SourceOf,
        before_pipeline: Callable[[Any], None],
    ) -> None:
        self.pipeline = weakly(pipeline)
        self._name = title(pipeline)
        self.recorder = recorder
        self.source_of = source_of
        self._before_pipeline = before_pipeline
        self.detached = False
        self._lock = threading.RLock()  # held while hooks are installed or removed
        self._wraps = Wraps()
        self._hooked: dict[object, _Hooked] = {}
        self._denoisers: set[str] = set()  # submodules that were called in a loop
        self._last_settings: dict[str, SubmoduleSettings] = {}
        self._outside: list[_Outside] = []
        self._entering = threading.RLock()  # a collected generator may end its call within
        self._here = threading.local()  # `outside`: the one of this thread
        self._continued: weakref.WeakSet[_Continued] = weakref.WeakSet()
        self._coverage = PipelineCoverage(recorder, self._owners, _under_variables)
        together = isinstance(pipeline, Together)
        self._pieces = PieceCoverage(recorder, self._owners) if together else None

    def attach(self) -> None:
        """Hook everything. Raises InputError if the pipeline has no submodule. After any error, the
        pipeline is unchanged."""
        pipeline = self.pipeline()
        try:
            entries(pipeline)
            if callable(pipeline):
                self._wraps.around_method(pipeline, "__call__", self._around_pipeline)
            self._hook(self._present(pipeline))
            self._measure_pieces(PieceCoverage.begin)
        except BaseException:
            self.detach()
            raise

    def detach(self) -> None:
        """Remove all hooks; again without effect."""
        self.detached = True
        self._measure_pieces(PieceCoverage.end)
        for continued in list(self._continued):
            self.recorder.attempt(self._name, continued.give_up)
        for outside in self._outside:
            self.recorder.attempt(self._name, outside.labels.stages.finish)
        with self._lock:
            for hooked in reversed(list(self._hooked.values())):
                hooked.wraps.undo()
            self._hooked.clear()
            self._wraps.undo()

    def abandon(self) -> None:
        """Remove all hooks in a forked child, where no thread of the parent holds a lock."""
        self._lock = threading.RLock()
        self._coverage.abandon()
        for continued in list(self._continued):
            continued.withdraw()
        self.detach()

    def covers(self, owner: Any) -> bool:
        """Whether a submodule of this pipeline is `owner`."""
        return any(hooked.owner() is owner for hooked in list(self._hooked.values()))

    def _scheduler(self) -> Any:
        """The scheduler that counts steps until one is used."""
        return next(iter(schedulers(self.pipeline()).values()), None)

    def renew(self) -> None:
        """Trace and hook what is new or has been replaced."""
        self._refresh(self.pipeline())

    def _refresh(self, pipeline: Any) -> None:
        """Trace and hook what has been replaced, before a call of the pipeline."""
        with self._lock:
            if not self.detached:
                self.recorder.attempt(self._name, self._before_pipeline, pipeline)
        present = self._present(pipeline)  # unlocked: properties of the user may wait
        with self._lock:
            if not self.detached:
                self._hook(present)
                self._measure_pieces(PieceCoverage.begin)

    def measure(self, found: Mapping[str, Any]) -> None:
        """Count direct calls of `found` in coverage, for submodules that no pipeline holds."""
        with self._lock:
            if not self.detached:
                self._measure_pieces(lambda pieces: pieces.begin(found))

    def _measure_pieces(self, what: Callable[[PieceCoverage], None]) -> None:
        if self._pieces is not None:
            self.recorder.attempt(self._name, what, self._pieces)

    def _present(self, pipeline: Any) -> dict[object, tuple[Any, str, Callable[[Wraps], None]]]:
        """All methods to hook: owner, method name, and the function that hooks it."""
        found: dict[object, tuple[Any, str, Callable[[Wraps], None]]] = {}
        key: object
        hook: Callable[[Wraps], None]
        for entry in present_entries(pipeline):
            owner = owner_of(pipeline, entry)
            found[entry] = (owner, entry.method, partial(self._hook_entry, entry, owner))
            if callable(getattr(owner, _GENERATE, None)):
                hook = partial(self._hook_method, owner, _GENERATE, self._around_generate)
                found[f"{entry.submodule}.{_GENERATE}"] = (owner, _GENERATE, hook)
            if hasattr(owner, "cache_context"):
                key = f"{entry.submodule}.cache_context"
                found[key] = (owner, "cache_context", partial(_hook_cache_context, owner))
        for path, owner, name, scheduler in host_work(pipeline):
            work = HostWorkHook(self, path, *([weakly(owner)] if scheduler else []))
            hook = partial(self._hook_method, owner, name, work.around)
            found[path] = (owner, name, hook)
        for path, owner, name in guiders(pipeline):
            around = GuiderHook(path, self.recorder).around
            found[path] = (owner, name, partial(self._hook_method, owner, name, around))
        if callable(getattr(pipeline, "encode_prompt", None)):
            hook = partial(self._hook_encode_prompt, pipeline)
            found["encode_prompt"] = (pipeline, "encode_prompt", hook)
        return found

    def _hook(self, found: Mapping[object, tuple[Any, str, Callable[[Wraps], None]]]) -> None:
        """Hook all methods that are not hooked: at first all, later the replaced ones."""
        for key, (owner, name, hook) in found.items():
            known = self._hooked.get(key)
            if known is not None:
                if known.stays(owner, name):
                    continue
                known.wraps.undo()
            wraps, look = Wraps(), backend_of(owner).seen
            self._hooked[key] = _Hooked(weakly(owner), object, wraps, look)  # not complete yet
            hook(wraps)
            self._hooked[key] = _Hooked(
                weakly(owner), weakly(_marked(look(owner, name))), wraps, look
            )

    def new_labels(self, *, repeated: bool = False) -> PipelineLabels:
        stages = Stages(self.recorder.place_call, self._denoisers, repeated=repeated)
        return PipelineLabels(Steps(self._scheduler), stages)

    def labels_outside(self, scheduler: Any = None) -> PipelineLabels:
        """The labels of this thread's calls outside every pipeline call; `scheduler` is the one
        that is being called, if one is."""
        self._measure_pieces(PieceCoverage.called)
        pipeline, outside = self.pipeline(), getattr(self._here, "outside", None)
        around: list[Any] = []
        new = [] if self._outside else list(schedulers(pipeline).values())
        looks = isinstance(pipeline, Together) and (outside is None or not outside.looping)
        if looks and pipeline.look:
            around, found = pipeline.look()
            new += found
        if outside is None:
            inner = around[-1] if around and scheduler is None else scheduler
            outside = self._enter_outside(inner)
        elif scheduler is not None and outside.is_anothers(scheduler):
            outside = self._enter_outside(scheduler)
        labels = outside.labels
        for one in new:
            labels.scheduler_found(one)
        return PipelineLabels(labels.steps, labels.stages, script=labels.script)

    def _enter_outside(self, scheduler: Any) -> _Outside:
        """Have this thread use the labels of the loop with `scheduler`, new ones if it has none. A
        thread without a scheduler works for another's loop."""
        over: list[_Outside] = []
        with self._entering:
            outside = self._known_outside(scheduler)
            if outside is None:
                over = [one for one in self._outside if not (one.threads or one.looping)]
                labels = self.new_labels(repeated=True)
                labels.script = ScriptBranches(self.recorder.label_call)
                if scheduler is not None and self._outside:
                    labels.steps.use(scheduler)
                outside = _Outside(labels)
                self._outside = [*(one for one in self._outside if one not in over), outside]
            self._here.outside, self._here.thread = outside, _Thread()
            outside.threads.add(self._here.thread)
        for one in over:
            self.recorder.attempt(self._name, one.labels.stages.finish)
        return outside

    def _known_outside(self, scheduler: Any) -> _Outside | None:
        known = self._outside
        if scheduler is None:
            return next((one for one in known if one.looping), known[0] if known else None)
        return next((one for one in known if one.labels.steps.uses(scheduler)), None)

    def _around_pipeline(self, original: Any, args: Any, kwargs: Any) -> Any:
        before = live_scope()
        if before.owner is self or self.detached:  # called by itself, or too late
            return original(*args, **kwargs)
        if before.pipeline is None and before.call is not None:
            before = Scope()  # left open by an interrupted call
        attempt = self.recorder.attempt
        entered_ns = attempt(self._name, self.recorder.clock.now_ns)
        attempt(self._name, self._refresh, self.pipeline())
        sources = attempt(self._name, self._sources) or []
        measured = [attempt(self._name, partial(self._coverage.begin, traced=bool(sources)))]
        settings = attempt(self._name, self._settings) or {}
        pipeline, failed, result, continued = None, True, None, None
        try:
            pipeline = attempt(self._name, self._begin_pipeline, original, args, kwargs)
            if pipeline is not None and entered_ns is not None:
                pipeline.around_ns += pipeline.start_ns - entered_ns
                pipeline.submodules = settings
            for source in sources if pipeline is not None else ():
                attempt(self._name, source.begin_pipeline, pipeline)
            result = original(*args, **kwargs)
            failed = False
            if pipeline is not None and _runs_in_parts(result) and sys.getrefcount(result) <= 2:
                continued = _Continued(self, pipeline, sources, measured)
                self._continued.add(continued)
                return continued.around(result)
            return result
        finally:
            try:
                if continued is not None:
                    attempt(self._name, continued.suspend, before)
                else:
                    self._end_pipeline(before, pipeline, sources, measured, failed)
            except BaseException:  # the script was interrupted: once more, to the end
                self._end_pipeline(before, pipeline, sources, measured, failed)
                raise
            if continued is None:
                attempt(self._name, self._returned, pipeline, result)

    def over(
        self,
        before: Scope,
        pipeline: PipelineCall,
        sources: list[OperatorSource],
        measured: list[Wraps | None],
        *,
        failed: bool,
        result: Any,
    ) -> None:
        """Handle that a pipeline call that ran in parts is over, with its result."""
        try:
            self._end_pipeline(before, pipeline, sources, measured, failed)
        except BaseException:  # the script was interrupted: once more, to the end
            self._end_pipeline(before, pipeline, sources, measured, failed)
            raise
        self.recorder.attempt(self._name, self._returned, pipeline, result)

    def _around_generate(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Record a submodule that calls itself in a loop: its calls are passes, without a prompt
        branch. Outside pipeline calls, the loop counts as their pipeline call."""
        before = live_scope()
        if before.call is not None:
            return original(*args, **kwargs)
        labels = None if before.labels is not None else self.new_labels()
        if labels is not None:
            self._measure_pieces(PieceCoverage.called)
            enter(replace(before, labels=labels))
        token = GENERATING.set(True)
        try:
            return original(*args, **kwargs)
        finally:
            GENERATING.reset(token)
            if labels is not None:
                enter(before)
                self.recorder.attempt(self._name, labels.stages.finish)

    def _begin_pipeline(self, original: Any, args: Any, kwargs: Any) -> PipelineCall:
        settings = {}
        if self.recorder.recording:
            settings = block_defaults(self.pipeline()) | call_numbers(original, args, kwargs)
        labels = self.new_labels()
        labels.unknown = unknown = ScriptBranches(self.recorder.label_call, doubts=False)

        def finish() -> None:
            unknown.finish()
            labels.stages.finish()

        pipeline = self.recorder.begin_pipeline(self._name)
        try:
            pipeline.settings = settings
            pipeline.before_end = finish
            enter(Scope(self, pipeline, labels))
        except BaseException:
            self.recorder.end_pipeline(pipeline, failed=True)
            raise
        return pipeline

    def _end_pipeline(
        self,
        before: Scope,
        pipeline: PipelineCall | None,
        sources: list[OperatorSource],
        measured: list[Wraps | None],
        failed: bool,
    ) -> None:
        """End a pipeline call and notify all sources that have not been notified: again without
        effect."""
        enter(before)
        attempt = self.recorder.attempt
        if pipeline is not None:
            attempt(self._name, partial(self.recorder.end_pipeline, pipeline, failed=failed))
        while measured:
            if measured[0] is not None:
                attempt(self._name, self._coverage.end, measured[0], pipeline)
            measured.pop()
        if pipeline is None:
            return
        while sources:
            attempt(self._name, sources[0].end_pipeline, pipeline)
            sources.pop(0)
        attempt(self._name, self.recorder.settle)

    def _settings(self) -> dict[str, SubmoduleSettings]:
        if not self.recorder.recording:
            return {}
        found = submodule_settings(self.pipeline())
        if found != self._last_settings:  # else calls share the settings that did not change
            self._last_settings = found
        return self._last_settings

    def _returned(self, pipeline: PipelineCall | None, result: Any) -> None:
        """Record that the caller gets the result now: time since the end of the pipeline call was
        ours."""
        if pipeline is not None and not pipeline.failed and self.recorder.recording:
            of = (self.pipeline(), self._scheduler(), pipeline, result)
            pipeline.generation = self.recorder.attempt(self._name, generation, *of)
        if pipeline is not None and pipeline.end_ns >= 0:
            pipeline.around_ns += self.recorder.clock.now_ns() - pipeline.end_ns
            pipeline.returned = True

    def _owners(self) -> dict[str, Any]:
        pipeline = self.pipeline()
        return {e.submodule: owner_of(pipeline, e) for e in present_entries(pipeline)}

    def _sources(self) -> list[OperatorSource]:
        found = map(self.source_of, present_entries(self.pipeline()))
        return list({id(source): source for source in found if source is not None}.values())

    def _hook_encode_prompt(self, pipeline: Any, wraps: Wraps) -> None:
        encode = pipeline.encode_prompt
        hook = EncodingHook(self, argument_names(encode), returned_names(encode))
        self._hook_method(pipeline, "encode_prompt", hook.around, wraps)

    def _hook_method(self, owner: Any, name: str, around: Around, wraps: Wraps) -> None:
        backend_of(owner).hook_method(wraps, owner, name, around)

    def _hook_entry(self, entry: Entry, owner: Any, wraps: Wraps) -> None:
        backend = backend_of(owner)
        names = argument_names(backend.method(owner, entry.method))
        names = names or argument_names(_forward_of(self.pipeline(), entry))
        hook = CallHook(self, entry, weakly(owner), names)
        wraps.on_undo(hook.close)
        backend.hook_calls(wraps, owner, entry.method, hook)


# --- Pipeline calls that return a generator, coroutine or async generator: they last until that
# is over, and the caller gets one of the same type. While it pauses, its caller has the thread, so
# the scope is the caller's, and no session of a source runs.


def _runs_in_parts(result: Any) -> bool:
    """Whether the work of a pipeline call is in its result, which runs later."""
    if inspect.isgenerator(result):
        return not inspect.isawaitable(result)  # by `types.coroutine`
    return inspect.iscoroutine(result) or inspect.isasyncgen(result)


class _Continued:
    """A pipeline call whose work goes on, in parts, after the pipeline's method has returned."""

    def __init__(
        self,
        hooks: PipelineHooks,
        pipeline: PipelineCall,
        sources: list[OperatorSource],
        measured: list[Wraps | None],
    ) -> None:
        self._hooks, self._name = hooks, pipeline.name
        self._pipeline, self._sources, self._measured = pipeline, sources, measured
        self._scope = scope()
        self._over = False

    def around(self, result: Any) -> Any:
        """Return a generator, coroutine or async generator that runs `result`."""
        if not self._hooks.recorder.has_work(self._pipeline):
            self._pipeline.start_ns = -1  # until its first part
        made: Any
        if inspect.isgenerator(result):
            made = _generator(_Parts(self, result))
        elif inspect.iscoroutine(result):
            made = _coroutine(_Parts(self, result))
        else:
            made = _async_generator(self, result)
        made.__name__, made.__qualname__ = result.__name__, result.__qualname__
        return made

    def run(
        self, part: Callable[..., Any], *given: Any, ends_by: type[Exception] | None = None
    ) -> Any:
        """Run a part of the work. The last one returns by the exception `ends_by`; None: this is
        the last one."""
        if self._over:
            return part(*given)
        before = live_scope()
        if self._pipeline.end_ns >= 0 or self._hooks.detached:  # the run was closed meanwhile
            self._end(before, failed=True)
            return part(*given)
        pauses, failed, value = False, True, None
        try:
            self._hooks.recorder.attempt(self._name, self._resume)
            result = part(*given)
            pauses = ends_by is not None
        except (StopIteration, StopAsyncIteration) as ended:
            pauses = ends_by is StopAsyncIteration and isinstance(ended, StopIteration)  # a `yield`
            failed, value = False, getattr(ended, "value", None)
            raise
        finally:
            del part, given  # else a traceback keeps what the work holds, in a cycle
            if self._over:  # in a forked child
                enter(before)
            elif pauses:
                self._hooks.recorder.attempt(self._name, self.suspend, before)
            else:
                self._end(before, failed=failed, value=value)
        return result

    def _end(self, before: Scope, *, failed: bool, value: Any = None) -> None:
        self._over, self._pipeline.suspended = True, False
        of = (before, self._pipeline, self._sources, self._measured)
        self._hooks.over(*of, failed=failed, result=value)

    def give_up(self) -> None:
        """End the pipeline call if its work pauses now: later parts are not recorded."""
        if self._pipeline.start_ns < 0:
            self.withdraw()
            for source in self._sources:
                self._hooks.recorder.attempt(self._name, source.end_pipeline, self._pipeline)
        elif self._pipeline.suspended and not self._over:
            self._end(live_scope(), failed=True)

    def withdraw(self) -> None:
        """Record no more of it, and not even its end."""
        self._over, self._pipeline.suspended = True, False
        self._hooks.recorder.withdraw(self._pipeline)
        for wraps in self._measured:
            if wraps is not None:
                wraps.undo()

    def __del__(self) -> None:
        if not self._over:  # the caller has let it go
            self._hooks.recorder.attempt(self._name, self.give_up)

    def suspend(self, before: Scope) -> None:
        """Handle that the work pauses: the caller continues in the scope `before`."""
        pipeline, recorder = self._pipeline, self._hooks.recorder
        begin_ns, self._scope = recorder.clock.now_ns(), scope()
        pipeline.suspended = True
        try:
            for source in self._sources:
                recorder.attempt(self._name, source.end_pipeline, pipeline)
            pipeline.hooks_ns += recorder.clock.now_ns() - begin_ns
        finally:
            enter(before)
        recorder.settle()

    def _resume(self) -> None:
        pipeline, recorder = self._pipeline, self._hooks.recorder
        begin_ns = recorder.clock.now_ns()
        if pipeline.start_ns < 0:
            pipeline.start_ns = begin_ns
        pipeline.suspended = False
        enter(self._scope)
        for source in self._sources:
            recorder.attempt(self._name, source.begin_pipeline, pipeline)
        pipeline.hooks_ns += recorder.clock.now_ns() - begin_ns


class _Parts:
    """Runs `inner`, a generator, coroutine or part of an async generator, as parts of a pipeline
    call. `begun`: some of it has run before."""

    def __init__(
        self,
        continued: _Continued,
        inner: Any,
        ends_by: type[Exception] = StopIteration,
        *,
        begun: bool = False,
    ) -> None:
        self._continued, self._inner, self._ends_by = continued, inner, ends_by
        self._begun = begun

    def __await__(self) -> _Parts:
        return self

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._run(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        try:
            return self._run(self._inner.throw, *error)
        finally:
            del error  # its traceback has this frame

    def close(self) -> Any:
        self._begun = True
        return self._continued.run(self._inner.close)

    def _run(self, part: Callable[..., Any], *given: Any) -> Any:
        self._begun = True
        try:
            return self._continued.run(part, *given, ends_by=self._ends_by)
        except BaseException:
            self._inner = None  # over; a traceback would keep what it holds
            raise
        finally:
            del part, given

    def __del__(self) -> None:
        if not self._begun:
            self._inner.close()  # of two coroutines that nobody awaits, Python names one


def _generator(parts: _Parts) -> Generator[Any, Any, Any]:
    return (yield from parts)


async def _coroutine(parts: Awaitable[Any]) -> Any:
    return await parts


async def _async_generator(continued: _Continued, inner: Any) -> AsyncGenerator[Any, Any]:
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)  # the event loop closes the outer one, which closes this one
    try:
        resumed = inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
    while True:
        try:
            value = await _Parts(continued, resumed, StopAsyncIteration, begun=True)
        except StopAsyncIteration:
            return
        finally:
            del resumed
        try:
            resumed = inner.asend((yield value))
        except BaseException as error:  # noqa: BLE001 - the inner one decides what becomes of it
            resumed = inner.athrow(error)


def _under_variables(objects: list[Any]) -> Mapping[str, Any]:
    """The objects by the names that the script has for them."""
    return names_of(objects, sys._getframe(1)) if objects else {}  # noqa: SLF001


def _forward_of(pipeline: Any, entry: Entry) -> Any:
    """The method to which one without parameters of its own passes its arguments: `decode(*args)`
    of a VAE may be `forward` of its decoder."""
    return getattr(part_of(pipeline, entry), "forward", None)


def _hook_cache_context(owner: Any, wraps: Wraps) -> None:
    """Record the name of `cache_context` in which the denoiser is called."""

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


# --- One pipeline attached to a session: its hooks, and the sources of its operators.


class Attachment:
    """One pipeline that reports to a session. `facts` is what the manifest says about it, `traced`
    are the submodules whose calls a source may trace. `named_before` are its submodules' names in
    another run, which continues after this one."""

    def __init__(
        self,
        pipeline: Any,
        recorder: Recorder,
        options: Options,
        folder: Path,
        event_cap: int | None,
        named_before: Apart | None = None,
    ) -> None:
        self._pipeline = weakly(pipeline)
        self._named_before = named_before
        self.facts: PipelineFacts = pipeline_facts(pipeline, options)
        self.traced: set[str] = set()
        self._recorder = recorder
        self._options = options
        self._folder = folder
        self._event_cap = event_cap
        self._sources: dict[Entry, OperatorSource] = {}  # of the current parts
        self._parts: dict[Entry, Callable[[], Any]] = {}
        self._opened: list[tuple[str, OperatorSource]] = []
        self._hooks = PipelineHooks(pipeline, recorder, self._sources.get, self._renew_sources)

    def attach(self, pipeline: Any) -> None:
        """Open the operator sources and hook the pipeline; after an error, everything is
        restored."""
        try:
            self._open_sources(pipeline, self._open_source)
            self._hooks.attach()
        except BaseException:
            self.detach()
            raise

    def _renew_sources(self, pipeline: Any) -> None:
        """Open sources for replaced parts, before a call of the pipeline. A part that cannot have
        one runs without, which is a drop."""

        def open_or_lose(entry: Entry, *of: Any) -> OperatorSource | None:
            try:
                return self._open_source(entry, *of)
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)
                self._recorder.lose(entry.submodule, error, for_good=True)
                return None

        self._open_sources(pipeline, open_or_lose)

    def _open_sources(self, pipeline: Any, open_one: Callable[..., OperatorSource | None]) -> None:
        by_part: dict[int, OperatorSource | None] = {}
        here = list(present_entries(pipeline))
        if not self._parts and not any(
            self._options.traces_operators(entry.submodule)
            and options_for(pipeline, entry, self._options).traces_operators(entry.submodule)
            for entry in here
        ):
            return
        for entry in here:  # also if untraced: whoever traces the pipeline call pauses for it
            part = part_of(pipeline, entry)
            if self._parts.get(entry, lambda: None)() is part:
                continue
            self._parts[entry] = weakly(part)
            self._sources.pop(entry, None)
            if by_part.get(id(part)) is None:  # one traced part is enough for its submodule
                owner = owner_of(pipeline, entry)
                device = device_of(pipeline, entry)
                options = options_for(pipeline, entry, self._options)
                by_part[id(part)] = open_one(entry, owner, part, device, options)
            source = by_part[id(part)]
            if source is not None:
                self._sources[entry] = source
        self.traced = {entry.submodule for entry in self._sources}

    def _open_source(
        self, entry: Entry, owner: Any, part: Any, device: str, options: Options
    ) -> OperatorSource | None:
        self._folder.mkdir(exist_ok=True)
        request = SourceRequest(
            entry.submodule,
            part,
            device,
            self._folder,
            self._recorder,
            self._event_cap,
            options.selection(entry.submodule),
            owner,
        )
        source = open_source(request)
        if source is not None:
            self._opened.append((entry.submodule, source))
        return source

    def renew(self, pipeline: Any) -> None:
        """Hook a new part of the pipeline that no pipeline call would detect."""
        known = self.facts
        self.facts = pipeline_facts(pipeline, self._options)
        self.facts.seen = known.seen
        self.facts.submodules = {**known.submodules, **self.facts.submodules}
        self.facts.devices = {**known.devices, **self.facts.devices}
        self.facts.settings = {**known.settings, **self.facts.settings}
        self._hooks.renew()

    def measure(self, found: Mapping[str, Any]) -> None:
        """Count direct calls of `found` in coverage."""
        self._hooks.measure(found)

    def covers(self, owner: Any) -> bool:
        """Whether a submodule of the pipeline is `owner`."""
        return self._hooks.covers(owner)

    def detach(self) -> None:
        """Restore the pipeline exactly; what was recorded stays. Again without effect."""
        self._hooks.detach()
        pipeline, self._pipeline = self._pipeline(), lambda: None
        if pipeline is not None:
            set_apart(pipeline, self._named_before)
        for _, source in self._opened:
            source.close()

    def abandon(self) -> None:
        """Remove the hooks in a forked child; the sources, whose files are the parent's, stay
        unchanged."""
        self._hooks.abandon()

    def sources(self) -> list[tuple[str, OperatorSource]]:
        """All operator sources that were opened, with their submodules."""
        return list(self._opened)


def check_devices(pipeline: Any, options: Options) -> None:
    """Raise InputError if our configuration or the pipeline's own names another device than a
    submodule runs on."""
    for entry in entries(pipeline):
        actual = device_of(pipeline, entry)
        options_for(pipeline, entry, options).check_device(
            entry.submodule, actual, "place it there when the pipeline is loaded"
        )
