"""`profiler.profile`: profile a pipeline from code; `profiler.submodule` names a module.

with profiler.profile(pipe, out="traces/") as run:
    pipe("a cat", num_inference_steps=28)
run.path   # traces/20261121-093000-StableDiffusion3Pipeline
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from profiler.capture.calls import Clock, RunClock, give_name
from profiler.capture.imports import collection_waits
from profiler.capture.patching import is_wrapped
from profiler.capture.pipelines.discovery import is_executed
from profiler.capture.pipelines.pipeline_hooks import check_devices
from profiler.capture.pipelines.submodules import entries, subjects
from profiler.capture.session import Session, open_sessions
from profiler.capture.settings import check_names, parse_config, parse_max_size
from profiler.capture.startup import recording
from profiler.errors import InputError
from profiler.plugins import error_text
from profiler.trace.compression import Compression, check_compression

# --- `profiler.submodule("upscaler", module)`: a submodule that the script names.


_T = TypeVar("_T")
_NAME = re.compile(r"[\w.\-]+")  # names that `--ops` accepts


def submodule(name: str, module: _T) -> _T:
    """Record the calls of `module` (a module, session or runtime) as those of the submodule `name`,
    wherever it is called while a run is recorded. Returns `module`. The name wins over that of a
    pipeline that is profiled from then on. Raises InputError for an invalid name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a submodule: use letters, digits, _, - and .")
    if not is_executed(module):
        raise InputError(
            f"{name} is a {type(module).__name__}, which is no module, session or runtime: "
            "give what executes the submodule"
        )
    give_name(module, name)
    own = recording()
    for session in [*open_sessions(), *([own] if own is not None else [])]:
        session.add_part(name, module)
    return module


# --- Profiling one pipeline from code: a session with one attachment.


_F = TypeVar("_F", bound=Callable[..., Any])


def profile(  # noqa: PLR0913 - the settings of `docs/capture.md`, by keyword
    pipeline: Any,
    *,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    ops: str = "all",
    out: str | Path = "traces",
    name: str | None = None,
    clock: Clock | None = None,
    event_cap: int | None = None,
    compress: Compression = "none",
    max_size: int | str | None = None,
    memory: bool = False,
    keep_prompts: bool = False,
) -> Profile:
    """Profile `pipeline` in a `with` block, or in the function that this decorates. It may be a
    pipeline, a module, session or runtime, a list or dict of those, or a function that uses them.

    `config` says per submodule whether to trace its operators and on which device it runs:
    `{"text_encoder": {"device": 0, "activate_profiler": True}}`. `ops` "none" records calls only.
    The bundle is written to a new folder `name` below `out` when the block ends. `event_cap` is the
    number of events before which a runtime's profiler is renewed, None: its own limit, above which
    it drops events. `compress` packs the packets of all files: "none", "deflate" or "zstd".
    `max_size` (bytes, or "2GiB") limits what the run writes, after which calls are recorded without
    operators; `memory` records allocations, if the backend can, at some cost. `keep_prompts` keeps
    prompts and paths of images in the recorded command line, which otherwise has their lengths.
    Raises InputError if the pipeline or an option cannot be used, OutputError if `out` cannot be
    written.
    """
    found = subjects(pipeline)
    known = dict.fromkeys(entry.submodule for each in found for entry in entries(each))
    options = replace(
        parse_config(config, ops, known),
        max_size=parse_max_size(max_size),
        memory=memory,
        keep_prompts=keep_prompts,
    )
    check_names(options, known)
    for each in found:
        check_devices(each, options)
    check_compression(compress)
    clock = clock or RunClock.start()

    def open_session() -> Session:
        return Session.open(options, out, name, clock=clock, event_cap=event_cap, compress=compress)

    return Profile(pipeline, found, open_session)


class Profile:
    """A run of `pipelines`, those in `given`. `path` is the bundle's folder, set at the end of the
    block.

    Use as a context manager, or as a decorator of a function that runs the pipeline; each use
    writes one bundle.
    """

    def __init__(
        self, given: Any, pipelines: list[Any], open_session: Callable[[], Session]
    ) -> None:
        self.path: Path | None = None
        self._given = given  # keeps modules alive that no pipeline holds
        self._pipelines = pipelines
        self._open_session = open_session
        self._session: Session | None = None

    def __call__(self, function: _F) -> _F:
        """Decorate `function`, `async` or not: every call of it is a run of its own. Raises
        InputError for a generator."""

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InputError(
                f"{function.__name__} is a generator, which runs after it has been called: "
                "open `with profiler.profile(pipe):` inside it"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with Profile(self._given, self._pipelines, self._open_session) as fresh:
                    result = await function(*args, **kwargs)
                self.path = fresh.path
                return result

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            with Profile(self._given, self._pipelines, self._open_session) as fresh:
                result = function(*args, **kwargs)
            self.path = fresh.path
            return result

        return profiled  # type: ignore[return-value]

    def __enter__(self) -> Profile:
        wrapped = any(is_wrapped(pipeline) for pipeline in self._pipelines)
        if self._session is not None and not wrapped:
            raise InputError(
                "this profile has been used: call profiler.profile again for a new run"
            )
        from profiler.capture.startup import release

        session = self._open_session()
        try:
            with collection_waits():
                for pipeline in self._pipelines:
                    release(pipeline)  # in a switched-on process, the script's own block wins
                    session.attach(pipeline)
                session.begin_block()
        except BaseException:
            if len(self._pipelines) > 1:
                session.close()
            raise
        self._session = session
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        failure = "" if error is None else error_text(error)
        try:
            self._session.close(failure)
        finally:
            self.path = self._session.path

    def warmup(self) -> AbstractContextManager[None]:
        """Run the code inside with all hooks in place, but outside the recorded run; the manifest
        says how long it took."""
        if self._session is None:
            raise InputError("warmup() belongs inside the block that profiler.profile opens")
        return self._session.warmup()


class FakeClock:
    """A clock for tests that stands still until `advance` moves it; each reading adds `step_ns`."""

    monotonic_offset_ns = 0

    def __init__(self, now_ns: int = 0, step_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._step_ns = step_ns

    def now_ns(self) -> int:
        """The current time in ns; each reading adds `step_ns`."""
        now = self._now_ns
        self._now_ns += self._step_ns
        return now

    def advance(self, duration_ns: int) -> None:
        """Move the clock by `duration_ns`."""
        self._now_ns += duration_ns
