"""One profiled run: from the first attached pipeline to the finished bundle.

    with profiler.profile(pipe, out="traces/") as run:
        pipe("a cat", num_inference_steps=28)
    run.path   # traces/20261121-093000-StableDiffusion3Pipeline

`profile(pipe)` is a session with one pipeline. A session takes any number of them:

    session = Session.open(Options(), Path("traces"))
    attachment = session.attach(pipe)
    ...
    path = session.close()
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from profiler.capture.attachment import Attachment, check_devices
from profiler.capture.clock import Clock, RunClock
from profiler.capture.onnx_profile import EVENT_CAP
from profiler.capture.operator_source import OperatorSource
from profiler.capture.options import Options, check_names, parse_config
from profiler.capture.recorder import Invocation, Recorder
from profiler.capture.run_info import NOT_ENDED, run_info
from profiler.capture.shapes import entries
from profiler.capture.wraps import is_wrapped
from profiler.capture.writing import CallWriter
from profiler.errors import InputError, ProfilerError
from profiler.events import HOST_TRACK, ROOT_DEVICE, Track
from profiler.trace.bundle import WORK_NAME, BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns
from profiler.trace.compression import Compression, check_compression

__all__ = ["Profile", "Session", "profile"]

_F = TypeVar("_F", bound=Callable[..., Any])


class Session:
    """One bundle, one clock, any number of pipelines. `path` is the bundle's folder once the
    session is closed, None where nothing was ever attached. Make one with `open`."""

    def __init__(
        self,
        options: Options,
        out: Path,
        name: str | None,
        title: str,
        clock: Clock,
        event_cap: int,
        compress: Compression,
    ) -> None:
        self.path: Path | None = None
        self.recorder = Recorder(clock)
        self._options = options
        self._out = out
        self._name = name
        self._title = title
        self._event_cap = event_cap
        self._compress: Compression = compress
        self._bundle: BundleWriter | None = None
        self._writer: CallWriter | None = None
        self._process = os.getpid()
        self._attachments: list[Attachment] = []
        self._sources: list[tuple[str, OperatorSource]] = []
        self._warmup: dict[str, Any] = {}
        self._closed = False
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        options: Options,
        out: str | Path,
        name: str | None = None,
        *,
        title: str = "",
        clock: Clock | None = None,
        event_cap: int = EVENT_CAP,
        compress: Compression = "none",
    ) -> Session:
        """A session that writes below `out`; nothing is written before a pipeline is attached.

        The bundle is called `name`, else by date and `title`, else by date and the class of the
        first pipeline. Raises InputError for a name that no folder can have.
        """
        if name is not None and (not re.fullmatch(r"[\w.+-]+", name) or name.startswith(".")):
            raise InputError(f"{name!r} cannot name a run: use letters, digits, - and _")
        clock = clock or RunClock.start()
        return cls(options, Path(out), name, title, clock, event_cap, compress)

    @property
    def directory(self) -> Path:
        """The bundle's folder, made on first use. Raises OutputError where it cannot be."""
        with self._lock:
            if self._bundle is None:
                self._describe(self._opened("run"))
            return self._opened("run").directory

    def attach(self, pipeline: Any) -> Attachment:
        """Record what `pipeline` runs from now on, until the attachment is detached.

        Raises InputError where it has no known submodule, is attached already, runs on another
        device than configured, or the session is closed; it is then as it was.
        """
        with self._lock:
            if self._closed:
                raise InputError("this run is closed: open a new one")
            if is_wrapped(pipeline):
                raise InputError(
                    f"this {type(pipeline).__name__} is being profiled already: end that first"
                )
            check_devices(pipeline, self._options)
            bundle = self._opened(type(pipeline).__name__)
            work = bundle.directory / WORK_NAME
            attachment = Attachment(pipeline, self.recorder, self._options, work, self._event_cap)
            try:
                attachment.attach(pipeline)
            except BaseException:
                if not self._attachments and not self._sources:
                    self._abandon(bundle)
                raise
            self._attachments.append(attachment)
            self._describe(bundle)
            return attachment

    def add_source(self, source: OperatorSource, submodule: str) -> None:
        """Take the operators of a source that no attachment opened."""
        with self._lock:
            self._sources.append((submodule, source))

    @contextmanager
    def warmup(self) -> Iterator[None]:
        """What runs inside is executed with everything in place but kept out of the run; the
        manifest says how long it took."""
        clock = self.recorder.clock
        begin = clock.now_ns()
        self.recorder.recording = False
        try:
            yield
        finally:
            self.recorder.recording = True
            before = self._warmup.get("duration_ns", 0)
            self._warmup = {
                "runs": self._warmup.get("runs", 0) + 1,
                "duration_ns": before + clock.now_ns() - begin,
            }

    def close(self, failure: str = "") -> Path | None:
        """Detach everything, write the bundle and return its folder; None where there is none.

        `failure` says what ended the run early. May be called again without effect. Raises
        OutputError where the bundle cannot be written, or lacks calls. In a forked child nothing
        is done: the run is its parent's.
        """
        with self._lock:
            if self._closed or os.getpid() != self._process:
                return self.path
            self._closed = True
            for attachment in reversed(self._attachments):
                attachment.detach()
            for _, source in self._sources:
                source.close()
            self.recorder.end_open_pipelines()
            if self._bundle is not None and self._writer is not None:
                try:
                    self.path = self._write(self._bundle, self._writer, failure)
                finally:
                    self._writer.journal.close()
                error = self._writer.error()
                if error is not None:
                    raise error
            return self.path

    def _opened(self, title: str) -> BundleWriter:
        with self._lock:
            if self._bundle is None:
                run_id = self._name or self._dated(self._title or title)
                bundle = BundleWriter.create(self._out, run_id, compress=self._compress)
                self._writer = CallWriter(bundle)
                self._bundle = bundle
                self.recorder.on_call_end = self._call_ended
                self.recorder.on_pipeline_end = self._pipeline_ended
            return self._bundle

    def _abandon(self, bundle: BundleWriter) -> None:
        """Nothing could be attached: leave no bundle behind."""
        assert self._writer is not None
        self.recorder.on_call_end = self.recorder.on_pipeline_end = None
        self._writer.finish()
        self._writer.journal.remove()
        shutil.rmtree(bundle.directory)
        self._bundle = self._writer = None

    def _describe(self, bundle: BundleWriter) -> None:
        """The manifest of a run that has not ended, so that a killed run is a bundle, too."""
        facts = [attachment.facts for attachment in self._attachments]
        info = run_info(self.recorder, facts, [])
        bundle.begin(replace(info, losses=(NOT_ENDED,)))

    def _call_ended(self, invocation: Invocation) -> None:
        """A call has returned, on this thread: its line of the journal, and its file where that
        waits for no operators."""
        writer = self._writer
        if writer is None or self._closed or os.getpid() != self._process:
            return
        begin = self.recorder.clock.now_ns()
        traced = not invocation.left_out and any(
            submodule == invocation.submodule for submodule, _ in self._all_sources()
        )
        writer.note(invocation, awaits_operators=traced)
        if not traced:
            writer.put_call(invocation)
        if invocation.pipeline is not None:
            invocation.pipeline.hooks_ns += self.recorder.clock.now_ns() - begin

    def _pipeline_ended(self) -> None:
        """No pipeline call runs now: write what is complete."""
        writer = self._writer
        if writer is None or self._closed or os.getpid() != self._process:
            return
        for _, source in self._all_sources():
            with suppress(ProfilerError):  # it is asked again, and heard, when the run ends
                for trace in source.traces():
                    writer.put(trace)
        writer.flush()

    def _all_sources(self) -> list[tuple[str, OperatorSource]]:
        return [pair for a in self._attachments for pair in a.sources()] + self._sources

    def _dated(self, title: str) -> str:
        now = datetime.fromtimestamp(self.recorder.clock.now_ns() / 1e9, UTC)
        return f"{now:%Y%m%d-%H%M%S}-{title}"

    def _write(self, bundle: BundleWriter, writer: CallWriter, failure: str) -> Path:
        begin = time.perf_counter_ns()
        writing = {"backpressure_ns": writer.backpressure_ns, "writing_ns": writer.writing_ns}
        sources = self._all_sources()
        for _, source in sources:
            for trace in source.traces():
                writer.put(trace)
        writer.finish()
        writer.write_rest(self.recorder.finished())
        bundle.write_host(self.recorder.spans(), self._host_commands(), ROOT_DEVICE)
        shutil.rmtree(bundle.directory / WORK_NAME, ignore_errors=True)
        info = run_info(
            self.recorder,
            [attachment.facts for attachment in self._attachments],
            [(submodule, source.summary()) for submodule, source in sources],
            warmup=self._warmup,
            writing={**writing, "conversion_ns": time.perf_counter_ns() - begin},
            losses=writer.losses(),
            failure=failure,
        )
        path = bundle.finish(info)
        writer.journal.remove()
        return path

    def _host_commands(self) -> CommandColumns:
        builder = CommandBuilder()
        track = Track(ROOT_DEVICE, HOST_TRACK, "host")
        for work in self.recorder.placed_host_work():
            duration = work.end_ns - work.start_ns
            builder.add(
                track, work.name, "", work.start_ns, duration, stage=work.stage, step=work.step
            )
        return builder.build()


def profile(
    pipeline: Any,
    *,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    ops: str = "all",
    out: str | Path = "traces",
    name: str | None = None,
    clock: Clock | None = None,
    event_cap: int = EVENT_CAP,
    compress: Compression = "none",
) -> Profile:
    """Profile `pipeline` inside the block that this opens, or in the function it decorates.

    `config` says per submodule, as RBLN's does, whether to trace its operators and on which
    device it runs: `{"text_encoder": {"device": 0, "activate_profiler": True}}`. `ops` "none"
    records calls only. The bundle is written to a new folder `name` below `out` when the block
    ends. `event_cap` is the number of events after which ONNX Runtime's profiler drops them;
    sessions are renewed before. `compress` packs the packets of all files: "none", "deflate" or
    "zstd". Raises InputError where the pipeline or an option cannot be
    used, OutputError where `out` cannot be written.
    """
    known = dict.fromkeys(entry.submodule for entry in entries(pipeline))
    options = parse_config(config, ops, known)
    check_names(options, known)
    check_devices(pipeline, options)
    check_compression(compress)
    clock = clock or RunClock.start()

    def open_session() -> Session:
        return Session.open(options, out, name, clock=clock, event_cap=event_cap, compress=compress)

    return Profile(pipeline, open_session)


class Profile:
    """A run of one pipeline. `path` is the bundle's folder, set when the block has ended.

    Use as a context manager, or as a decorator of a function that runs the pipeline; each use
    writes one bundle.
    """

    def __init__(self, pipeline: Any, open_session: Callable[[], Session]) -> None:
        self.path: Path | None = None
        self._pipeline = pipeline
        self._open_session = open_session
        self._session: Session | None = None

    def __call__(self, function: _F) -> _F:
        """Decorate `function`: every call of it is a run of its own."""

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            with Profile(self._pipeline, self._open_session) as fresh:
                result = function(*args, **kwargs)
            self.path = fresh.path
            return result

        return profiled  # type: ignore[return-value]

    def __enter__(self) -> Profile:
        if self._session is not None and not is_wrapped(self._pipeline):
            raise InputError(
                "this profile has been used: call profiler.profile again for a new run"
            )
        from profiler.capture.startup import release

        session = self._open_session()
        release(self._pipeline)  # in a process that is switched on, the script's own block wins
        session.attach(self._pipeline)
        self._session = session
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        name, text = type(error).__name__, str(error)
        failure = "" if error is None else f"{name}: {text}" if text else name
        try:
            self._session.close(failure)
        finally:
            self.path = self._session.path

    def warmup(self) -> AbstractContextManager[None]:
        """What runs inside is executed with everything in place but kept out of the run; the
        manifest says how long it took."""
        if self._session is None:
            raise InputError("warmup() belongs inside the block that profiler.profile opens")
        return self._session.warmup()
