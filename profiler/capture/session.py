"""One profiled run: from the first attached pipeline to the finished bundle.

session = Session.open(Options(), Path("traces"))
attachment = session.attach(pipe)
...
path = session.close()
"""

from __future__ import annotations

import gc
import re
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from profiler.capture.clock import Clock, RunClock
from profiler.capture.compilations import RunCompilations
from profiler.capture.forks import abandon_in_children
from profiler.capture.host_commands import take_host_commands
from profiler.capture.operator_source import OperatorSource
from profiler.capture.options import Options
from profiler.capture.pipelines.attachment import Attachment, check_devices
from profiler.capture.pipelines.components import Together, is_executed, title
from profiler.capture.pipelines.user_labels import named
from profiler.capture.recorder import Invocation, Recorder
from profiler.capture.run_drops import NOT_ENDED
from profiler.capture.run_info import PipelineFacts, run_info
from profiler.capture.standalone_sources import StandaloneSources
from profiler.capture.weights import LoadedWeights
from profiler.capture.wraps import is_wrapped
from profiler.capture.writing import CallWriter
from profiler.errors import InputError
from profiler.interruptions import let_pass
from profiler.trace.bundle import WORK_NAME, BundleWriter
from profiler.trace.compression import Compression
from profiler.trace.manifest_fields import Overhead, Warmup

__all__ = ["Session", "open_sessions"]


_OPEN: weakref.WeakSet[Session] = weakref.WeakSet()


def open_sessions() -> list[Session]:
    """The sessions of blocks that `profiler.profile` has opened, and that are not closed."""
    return list(_OPEN)


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
        event_cap: int | None,
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
        self._directory: Path | None = None
        self._bundle: BundleWriter | None = None
        self._writer: CallWriter | None = None
        self._attachments: list[Attachment] = []
        self._others: list[PipelineFacts] = []  # of submodules that belong to no pipeline
        self._described: list[PipelineFacts] | None = None  # what the manifest says so far
        self._standalone = StandaloneSources()
        self._weights = LoadedWeights()
        self._compilations = RunCompilations(self.recorder)
        self._parts = Together()  # what no pipeline holds
        self._of_parts: Attachment | None = None
        self._warmup: Warmup | None = None
        self._closed = False  # also in forked children
        self._lock = threading.RLock()
        self._taking = threading.RLock()  # what sources have: a thread that converts takes it, too
        abandon_in_children(self)

    @classmethod
    def open(
        cls,
        options: Options,
        out: str | Path,
        name: str | None = None,
        *,
        title: str = "",
        clock: Clock | None = None,
        event_cap: int | None = None,
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
            if self._directory is None:
                bundle = self._opened("run")
                try:
                    self._describe(bundle)
                except BaseException:
                    self._remove(bundle)
                    raise
            assert self._directory is not None
            return self._directory

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
            bundle = self._opened(title(pipeline))
            work = bundle.directory / WORK_NAME
            attachment = Attachment(pipeline, self.recorder, self._options, work, self._event_cap)
            try:
                attachment.attach(pipeline)
                self._weights.add(attachment.facts.parts)
                self._describe(bundle, attachment)
                self._attachments.append(attachment)
            except BaseException:
                attachment.detach()
                self._attachments = [one for one in self._attachments if one is not attachment]
                if not self._used and not self._standalone.all_here():
                    self._remove(bundle)
                raise
            return attachment

    @property
    def parts(self) -> Together:
        """What is recorded that no pipeline holds."""
        return self._parts

    def add_part(self, name: str, value: Any) -> None:
        """Record the calls of something that no pipeline holds, as those of the submodule `name`;
        steps and stages of all such parts are those of the schedulers among them."""
        with self._lock:
            if self._closed:
                return
            self._parts.add(name, value)
            if self._of_parts is not None:
                self._of_parts.renew(self._parts)
                self._weights.add(self._of_parts.facts.parts)
                if self._bundle is not None:
                    self._describe(self._bundle)
            elif is_executed(value):
                self._of_parts = self.attach(self._parts)

    def add_source(
        self, source: OperatorSource, submodule: str, gone: Callable[[], bool] | None = None
    ) -> None:
        """Take the operators of a source that no attachment opened, until what it traces is
        `gone`; those of earlier ones that are gone by now are written."""
        with self._lock:
            if self._writer is not None:
                self._standalone.write_gone(self._writer)
            self._standalone.add(submodule, source, gone)

    def describe(self, facts: PipelineFacts) -> None:
        """Have the manifest describe submodules that no attachment has."""
        with self._lock:
            self._weights.add(facts.parts)
            if facts not in self._others:  # it may be a session made anew
                self._others.append(facts)
            if self._bundle is not None and not self._closed:
                self._describe(self._bundle)

    @contextmanager
    def warmup(self) -> Iterator[None]:
        """What runs inside is executed with everything in place but kept out of the run; the
        manifest says how long it took. One inside another is part of that."""
        self.recorder.begin_warmup()
        try:
            yield
        finally:
            self._compilations.look()
            duration_ns = self.recorder.end_warmup()
            if duration_ns >= 0:  # the outermost
                before = self._warmup or Warmup()
                self._warmup = Warmup(
                    runs=(before.runs or 0) + 1, duration_ns=(before.duration_ns or 0) + duration_ns
                )

    def close(self, failure: str = "") -> Path | None:
        """Detach everything, write the bundle and return its folder; None where there is none.

        `failure` says what ended the run early. May be called again without effect. Raises
        OutputError where the bundle cannot be written, or lacks calls. In a forked child nothing
        is done: the run is its parent's.
        """
        with self._lock:
            if self._closed:
                return self.path
            self._closed = True
            _OPEN.discard(self)
            try:
                try:
                    self._end_capture()
                except BaseException:  # the script was interrupted: nothing of it stays hooked
                    self._end_capture()
                    raise
                if self._bundle is not None and not self._used:
                    self._remove(self._bundle)
                elif self._bundle is not None and self._writer is not None:
                    self.path = self._write(self._bundle, self._writer, failure)
            finally:
                writer, self._writer, self._bundle = self._writer, None, None
                if writer is not None:
                    writer.journal.close()
            error = writer.error() if writer is not None else None
            if error is not None:
                raise error
            return self.path

    def begin_block(self) -> None:
        """What the script names from now on is recorded here, until the session is closed, and
        what it has named before."""
        _OPEN.add(self)
        for name, value in named().items():
            self.add_part(name, value)

    @property
    def _used(self) -> bool:
        """Whether anything was attached, was called, or failed of us."""
        return bool(self._attachments or self.recorder.invocations or self.recorder.failures)

    def _end_capture(self) -> None:
        for attachment in reversed(self._attachments):
            attachment.detach()
        self._standalone.close()
        self.recorder.end_open_pipelines()

    def abandon(self) -> None:
        """In a forked child: take the hooks off, and record nothing more. The run is the parent's,
        which goes on with it. Again without effect.

        What lies below the session is never destroyed here: what a backend profiles
        would write to files of the parent, and wait for threads that a fork leaves behind.
        """
        import ctypes

        self._lock = threading.RLock()  # the child may have been left a locked one
        if self._closed:
            return
        self._closed = True
        _OPEN.discard(self)
        gc.freeze()  # sessions among the garbage that the parent has left
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        for attachment in self._attachments:
            with suppress(Exception):
                attachment.abandon()

    def _opened(self, title: str) -> BundleWriter:
        with self._lock:
            if self._bundle is None:
                run_id = self._name or self._dated(self._title or title)
                bundle = BundleWriter.create(self._out, run_id, compress=self._compress)
                try:
                    self._writer = CallWriter(bundle, resting=self.recorder.at_rest)
                except BaseException:  # on a full disk
                    shutil.rmtree(bundle.directory, ignore_errors=True)
                    raise
                self._bundle, self._directory = bundle, bundle.directory
                self._compilations.open()
                self.recorder.on_call_end = self._call_ended
                self.recorder.on_call_placed = self._call_placed
                self.recorder.on_pipeline_end = self._pipeline_ended
            return self._bundle

    def _remove(self, bundle: BundleWriter) -> None:
        """Nothing was recorded, or can be: leave no bundle behind."""
        assert self._writer is not None
        self.recorder.on_call_end = self.recorder.on_pipeline_end = None
        self.recorder.on_call_placed = None
        self._writer.finish()
        self._writer.journal.remove()
        shutil.rmtree(bundle.directory, ignore_errors=True)
        self._bundle = self._writer = self._directory = self._described = None

    def _describe(self, bundle: BundleWriter, *attached: Attachment) -> None:
        """The manifest of a run that has not ended, so that a killed run is a bundle, too."""
        facts: list[PipelineFacts] = []
        attachments = (*self._attachments, *attached)
        for known in (*(attachment.facts for attachment in attachments), *self._others):
            if known not in facts:
                facts.append(known)
        if facts == self._described:
            return
        info = run_info(self.recorder, facts, [], self._weights)
        unknown = structs.replace(info, overhead=Overhead(), drops=(NOT_ENDED,))
        bundle.begin(unknown)  # what it cost is not known before its end
        self._described = facts

    def _call_ended(self, invocation: Invocation) -> None:
        """A call has returned, on this thread: its line of the journal, and its file where that
        waits for no operators."""
        writer = self._writer
        if writer is None or self._closed:
            return
        self._compilations.look()
        traced = not invocation.left_out and (
            any(invocation.submodule in attachment.traced for attachment in self._attachments)
            or self._standalone.traces(invocation.submodule)
        )
        invocation.awaits_operators = traced
        writer.note(invocation, awaits_operators=traced)
        if not (traced or invocation.provisional):  # its file has its labels
            writer.put_call(invocation)

    def _call_placed(self, invocation: Invocation) -> None:
        """The labels of a call that has returned are known for good, or have changed."""
        writer = self._writer
        if writer is None or self._closed:
            return
        writer.note(invocation, awaits_operators=invocation.awaits_operators)
        if not invocation.awaits_operators:
            writer.put_call(invocation)

    def _pipeline_ended(self) -> None:
        """No pipeline call runs now: write what is complete."""
        if self._closed:  # a forked child may have been left a locked lock
            return
        with self._taking:
            writer = self._writer
            if writer is None or self._closed:
                return
            for _, source in self._attached_sources() + self._standalone.staying():
                try:
                    for trace in source.traces():
                        writer.put(trace)
                except Exception as error:  # noqa: BLE001 - heard when the run ends: it is asked again
                    let_pass(error)
            self.recorder.attempt("host work", self._put_host, writer)
            writer.flush()

    def _put_host(self, writer: CallWriter, *, all_left: bool = False) -> None:
        """Have what pipeline calls did between their submodules' calls written."""
        for commands in take_host_commands(self.recorder, all_left=all_left):
            writer.put_host(commands)

    def _attached_sources(self) -> list[tuple[str, OperatorSource]]:
        return [pair for attachment in self._attachments for pair in attachment.sources()]

    def _dated(self, title: str) -> str:
        now = datetime.fromtimestamp(self.recorder.clock.now_ns() / 1e9, UTC)
        return f"{now:%Y%m%d-%H%M%S}-{title}"

    def _write(self, bundle: BundleWriter, writer: CallWriter, failure: str) -> Path:
        begin = time.perf_counter_ns()
        writing = {"backpressure_ns": writer.backpressure_ns, "writing_ns": writer.writing_ns}
        sources = self._attached_sources() + self._standalone.all_here()
        with self._taking:
            for submodule, source in sources:
                writer.put_rest(source, submodule)
            self._put_host(writer, all_left=True)
        writer.finish()
        writer.write_rest(self.recorder.finished())
        writer.write_host(self.recorder.spans())
        shutil.rmtree(bundle.directory / WORK_NAME, ignore_errors=True)
        info = run_info(
            self.recorder,
            [*(attachment.facts for attachment in self._attachments), *self._others],
            [
                *self._standalone.let_go(),
                *((submodule, source.summary()) for submodule, source in sources),
            ],
            self._weights,
            warmup=self._warmup,
            writing={**writing, "conversion_ns": time.perf_counter_ns() - begin},
            drops=writer.drops(),
            failure=failure,
        )
        path = bundle.finish(structs.replace(info, compilations=self._compilations.of_run()))
        writer.journal.remove()
        return path
