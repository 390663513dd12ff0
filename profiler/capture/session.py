"""A profiling session: attached pipelines, operator sources and the bundle it writes.

    session = Session.open(Options(), Path("traces"))
    attachment = session.attach(pipe)
    ...
    path = session.close()

Calls are written while the run lasts, and the manifest at its end. `RunFiles.describe` writes a
manifest before that, so a killed run is a readable bundle too.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from profiler.capture.backend import notice
from profiler.capture.calls import Clock, Invocation, RunClock, abandon_in_children, named
from profiler.capture.host_work import take_host_commands
from profiler.capture.operator_source import OperatorSource, OperatorTrace, SizeLimit, SourceSummary
from profiler.capture.patching import is_wrapped
from profiler.capture.pipelines.discovery import Together, is_executed, title
from profiler.capture.pipelines.pipeline_hooks import Attachment, check_devices
from profiler.capture.pipelines.submodules import RunNames
from profiler.capture.ranks import own_job
from profiler.capture.recorder import Recorder
from profiler.capture.run_info import (
    NOT_ENDED,
    LoadedWeights,
    PipelineFacts,
    RunCompilations,
    add_known,
    only_called,
    run_info,
)
from profiler.capture.settings import Options
from profiler.capture.writing import CallWriter
from profiler.errors import InputError, OutputError
from profiler.plugins import let_pass
from profiler.trace.bundle import WORK_NAME, BundleWriter
from profiler.trace.compression import Compression
from profiler.trace.events import NO_STEP
from profiler.trace.manifest_fields import Job, Overhead, Warmup

# --- The operator sources of what a script runs outside pipelines, which no attachment opened.
#
# A script may make a session for each request and drop it. What the source of a dropped session
# contains is written when the next source is added. Only its summary is kept, joined with those of
# its submodule.


@dataclass(frozen=True, slots=True, eq=False)
class _Standalone:
    submodule: str
    source: OperatorSource
    gone: Callable[[], bool] | None  # None: the part stays


class StandaloneSources:
    """The sources of a session outside pipelines. The session changes it from one thread at a time;
    other threads may read it meanwhile."""

    def __init__(self) -> None:
        self._here: list[_Standalone] = []
        self._left: dict[str, SourceSummary] = {}

    def add(  # one argument a column
        self, submodule: str, source: OperatorSource, gone: Callable[[], bool] | None = None
    ) -> None:
        """Add a source; `gone` returns whether the part it traces has been dropped, None for a part
        that stays."""
        self._here.append(_Standalone(submodule, source, gone))

    def write_gone(self, writer: CallWriter) -> None:
        """Write the operators of the sources whose part is gone, and release these sources."""
        for one in [one for one in self._here if one.gone is not None and one.gone()]:
            one.source.close()
            writer.put_rest(one.source, one.submodule)
            summary, before = one.source.summary(), self._left.get(one.submodule)
            self._left[one.submodule] = _joined(before, summary) if before else summary
            self._here = [other for other in self._here if other is not one]

    def close(self) -> None:
        """Stop tracing."""
        for one in self._here:
            one.source.close()

    def traces(self, submodule: str) -> bool:
        """Whether calls of `submodule` may be traced now."""
        return any(one.submodule == submodule for one in self._here)

    def staying(self) -> list[tuple[str, OperatorSource]]:
        """The sources whose part stays, with their submodules."""
        return [(one.submodule, one.source) for one in self._here if one.gone is None]

    def all_here(self) -> list[tuple[str, OperatorSource]]:
        """All sources that have not been released, with their submodules."""
        return [(one.submodule, one.source) for one in self._here]

    def let_go(self) -> list[tuple[str, SourceSummary]]:
        """The summaries of the released sources, with their submodules."""
        return list(self._left.items())


def _joined(first: SourceSummary, second: SourceSummary) -> SourceSummary:
    """The summary of two sources of one submodule, as if they were one."""
    return replace(
        second,
        events=first.events + second.events,
        gaps=first.gaps + second.gaps,
        new_sessions=first.new_sessions + second.new_sessions,
        attributed_ns=first.attributed_ns + second.attributed_ns,
        total_ns=first.total_ns + second.total_ns,
        sessions=first.sessions + second.sessions,
        host_events=first.host_events + second.host_events,
        drops=first.drops + second.drops,
        timed=first.timed + second.timed,
        known=add_known(first.known, second.known),
    )


# --- What reports to a session: attached pipelines, sources outside of them, and facts about both.


class Attached:
    """The attachments of a session, which changes this from one thread at a time. `standalone` are
    the sources that no attachment opened, `weights` the loaded weights of all."""

    def __init__(self) -> None:
        self.attachments: list[Attachment] = []
        self.standalone = StandaloneSources()
        self.weights = LoadedWeights()
        self._others: list[PipelineFacts] = []  # of submodules that belong to no pipeline

    def add(self, attachment: Attachment) -> None:
        """Keep an attachment, until the run has been written."""
        self.attachments.append(attachment)

    def remove(self, attachment: Attachment) -> None:
        """Remove an attachment that could not be used; again without effect."""
        self.attachments = [one for one in self.attachments if one is not attachment]

    def describe(self, facts: PipelineFacts) -> None:
        """Add submodules without an attachment to the manifest."""
        self.weights.add(facts.parts)
        if facts not in self._others:  # the session may be made again
            self._others.append(facts)

    def facts(self) -> list[PipelineFacts]:
        """What the manifest says of all pipelines and other submodules, each once."""
        found: list[PipelineFacts] = []
        for known in (*(one.facts for one in self.attachments), *self._others):
            if known not in found:
                found.append(known)
        return found

    def traces(self, submodule: str) -> bool:
        """Whether calls of `submodule` may be traced now."""
        traced = any(submodule in attachment.traced for attachment in self.attachments)
        return traced or self.standalone.traces(submodule)

    def staying(self) -> list[tuple[str, OperatorSource]]:
        """The sources whose part stays, with their submodules."""
        return self._of_attachments() + self.standalone.staying()

    def sources(self) -> list[tuple[str, OperatorSource]]:
        """All sources that have not been released, with their submodules."""
        return self._of_attachments() + self.standalone.all_here()

    def summaries(self) -> list[tuple[str, SourceSummary]]:
        """The summaries of all sources, including released ones."""
        here = [(submodule, source.summary()) for submodule, source in self.sources()]
        return [*self.standalone.let_go(), *here]

    def close(self) -> None:
        """Restore everything; what was recorded stays. Again without effect."""
        for attachment in reversed(self.attachments):
            attachment.detach()
        self.standalone.close()

    def _of_attachments(self) -> list[tuple[str, OperatorSource]]:
        return [pair for attachment in self.attachments for pair in attachment.sources()]


# --- The bundle of a session: calls are written during the run, and the manifest at its end.


class RunFiles:
    """Writes what `recorder` and the sources of `attached` report, between `open` and `write`.
    `directory` is the bundle's folder, None before `open`; nothing is written once `closed`."""

    def __init__(
        self,
        recorder: Recorder,
        attached: Attached,
        out: Path,
        *,
        name: str | None,
        title: str,
        compress: Compression,
    ) -> None:
        self.directory: Path | None = None
        self.closed = False  # also in forked children
        self.compilations = RunCompilations(recorder)
        self._recorder = recorder
        self._attached = attached
        self._out = out
        self._name = name
        self._title = title
        self._compress: Compression = compress
        self._job: Job | None = None
        self._bundle: BundleWriter | None = None
        self._writer: CallWriter | None = None
        self._described: list[PipelineFacts] | None = None  # the manifest last written
        self._held: list[OperatorTrace] = []  # of calls whose labels may change
        self._taking = threading.RLock()  # the sources' traces: a converting thread takes them, too

    def open(self, title: str) -> Path:
        """Create the bundle if there is none yet; returns its folder, which stays the same for a
        written run. Raises OutputError."""
        if self.directory is None:
            run_id = self._name or self._dated(self._title or title)
            bundle = BundleWriter.create(self._out, run_id, compress=self._compress)
            try:
                self._writer = CallWriter(
                    bundle, resting=self._recorder.at_rest, limit_size=self._recorder.limit
                )
            except BaseException:  # on a full disk
                shutil.rmtree(bundle.directory, ignore_errors=True)
                raise
            self._bundle, self.directory = bundle, bundle.directory
            self._job = own_job(os.environ, os.getpid())
            self.compilations.open()
            self._recorder.on_call_end = self._call_ended
            self._recorder.on_call_placed = self._call_placed
            self._recorder.on_pipeline_end = self._take_complete
            self._recorder.on_converted = self._take_converted
            self._recorder.device_times.on_noted = self._call_noted
        return self.directory

    def remove(self) -> None:
        """Remove the bundle, since nothing was recorded or can be. Without effect if there is
        none."""
        if self._bundle is None or self._writer is None:
            return
        self._recorder.on_call_end = self._recorder.on_pipeline_end = None
        self._recorder.on_call_placed = self._recorder.on_converted = None
        self._writer.finish()
        self._writer.journal.remove()
        shutil.rmtree(self._bundle.directory, ignore_errors=True)
        self._bundle = self._writer = self.directory = self._described = None

    def describe(self) -> None:
        """Write the manifest of the unfinished run, so that a killed run is a bundle, too. Does
        nothing without a bundle, or if nothing has changed."""
        facts = self._attached.facts()
        if self._bundle is None or facts == self._described:
            return
        info = run_info(self._recorder, facts, [], self._attached.weights)
        unknown = structs.replace(info, overhead=Overhead(), drops=(NOT_ENDED,), job=self._job)
        self._bundle.begin(unknown)  # the overhead is not known before the end
        self._described = facts

    def write_gone(self) -> None:
        """Write the operators of the sources whose part is gone, and release these sources."""
        if self._writer is not None:
            self._attached.standalone.write_gone(self._writer)

    def write(self, failure: str, warmup: Warmup | None) -> Path | None:
        """Write the rest and the manifest, when everything is detached; returns the bundle's
        folder, None if there is none. Raises OutputError."""
        bundle, writer = self._bundle, self._writer
        if bundle is None or writer is None:
            return None
        begin = time.perf_counter_ns()
        writing = {"backpressure_ns": writer.backpressure_ns, "writing_ns": writer.writing_ns}
        with self._taking:
            for trace in self._held:
                writer.put(trace)
            for submodule, source in self._attached.sources():
                writer.put_rest(source, submodule)
            self._put_host(writer, all_left=True)
            self._recorder.unpack()
        writer.finish()
        writer.write_rest(self._recorder.finished())
        writer.write_host(self._recorder.spans())
        shutil.rmtree(bundle.directory / WORK_NAME, ignore_errors=True)
        called = {invocation.submodule for invocation in self._recorder.invocations}
        info = run_info(
            self._recorder,
            [only_called(facts, called) for facts in self._attached.facts()],
            self._attached.summaries(),
            self._attached.weights,
            warmup=warmup,
            writing={**writing, "conversion_ns": time.perf_counter_ns() - begin},
            drops=(*writer.drops(), *self._recorder.limit.drops()),
            failure=failure,
        )
        compilations = self.compilations.of_run()
        path = bundle.finish(structs.replace(info, compilations=compilations, job=self._job))
        writer.journal.remove()
        return path

    def let_go(self) -> OutputError | None:
        """Release the writer, since the run has been written or cannot be; returns why calls are
        missing in it."""
        writer, self._writer, self._bundle = self._writer, None, None
        if writer is None:
            return None
        writer.journal.close()
        return writer.error()

    def _call_ended(self, invocation: Invocation) -> None:
        """Write a returned call to the journal, on its thread, and its file if that need not wait
        for operators."""
        writer = self._writer
        if writer is None or self.closed:
            return
        self.compilations.look()
        traced = not invocation.left_out and self._attached.traces(invocation.submodule)
        invocation.awaits_operators = traced
        writer.note(invocation, awaits_operators=traced)
        if invocation.beyond_size:
            self._recorder.limit.lost(invocation)
        if not (traced or invocation.provisional):  # its file contains its labels
            writer.put_call(invocation)

    def _call_placed(self, invocation: Invocation) -> None:
        """Write a returned call again, since its labels have been settled or changed."""
        writer = self._writer
        if writer is None or self.closed:
            return
        writer.note(invocation, awaits_operators=invocation.awaits_operators)
        if not invocation.awaits_operators:
            writer.put_call(invocation)

    def _call_noted(self, invocation: Invocation) -> None:
        """Write a returned call to the journal again, since its device time is known now."""
        writer = self._writer
        if writer is not None and not self.closed:
            writer.note(invocation, awaits_operators=invocation.awaits_operators)
            if invocation.pipeline is None:  # else it is written at the end of its pipeline call
                writer.flush()

    def _take_complete(self) -> None:
        """Write what is complete, after a pipeline call has ended or a source has converted. Files
        of calls whose labels may still change wait for the end of their pipeline call."""
        if self.closed:  # a fork may have left a child a locked lock
            return
        with self._taking:
            writer = self._writer
            if writer is None or self.closed:
                return
            held, self._held = self._held, []
            for trace in (*held, *self._converted()):
                if _placed(trace.invocation):
                    writer.put(trace)
                else:
                    self._held.append(trace)
            self._recorder.attempt("host work", self._put_host, writer)
            writer.flush()  # also during a pipeline call: a kill loses what is in no file

    def _take_converted(self) -> None:
        """Write what a source has converted, and pack in memory what is in files, so that a process
        that runs for days keeps little of each call."""
        self._take_complete()
        with self._taking:
            if self._writer is not None and not self.closed:
                self._recorder.attempt("memory", self._recorder.pack, self._writer.written)

    def _converted(self) -> Iterator[OperatorTrace]:
        """The operators that the sources have by now."""
        for _, source in self._attached.staying():
            try:
                yield from source.traces()
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)

    def _put_host(self, writer: CallWriter, *, all_left: bool = False) -> None:
        """Queue the commands of pipeline calls outside their submodules' calls for writing."""
        for commands in take_host_commands(self._recorder, all_left=all_left):
            writer.put_host(commands)

    def _dated(self, title: str) -> str:
        now = datetime.fromtimestamp(self._recorder.clock.now_ns() / 1e9, UTC)
        return f"{now:%Y%m%d-%H%M%S}-{title}"


def _placed(invocation: Invocation) -> bool:
    """Whether the labels of a returned call are final: its pipeline call has ended, or it has a
    step."""
    pipeline = invocation.pipeline
    if invocation.branch_open:
        return False
    if pipeline is None or pipeline.end_ns >= 0:
        return not invocation.provisional
    return invocation.step != NO_STEP and not invocation.provisional


# --- One profiled run: from the first attached pipeline to the finished bundle.


_OPEN: weakref.WeakSet[Session] = weakref.WeakSet()


def open_sessions() -> list[Session]:
    """The open sessions of `profiler.profile` blocks."""
    return list(_OPEN)


class Session:
    """One bundle, one clock, any number of pipelines. `path` is the bundle's folder once the
    session is closed, None if nothing was ever attached. Make one with `open`."""

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
        self.recorder = Recorder(
            clock,
            limit=SizeLimit(options.max_size),
            memory=options.memory,
            keep_prompts=options.keep_prompts,
        )
        self._options = options
        self._event_cap = event_cap
        self._attached = Attached()
        self._files = RunFiles(
            self.recorder, self._attached, out, name=name, title=title, compress=compress
        )
        self._names = RunNames()
        self._parts = Together()  # parts that no pipeline holds
        self._of_parts: Attachment | None = None
        self._warmup: Warmup | None = None
        self._lock = threading.RLock()
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
        """Create a session that writes below `out`; nothing is written before a pipeline is
        attached.

        The bundle is called `name`, else by date and `title`, else by date and the class of the
        first pipeline. Raises InputError for a name that no folder can have.
        """
        if name is not None and (not re.fullmatch(r"[\w.+-]+", name) or name.startswith(".")):
            raise InputError(f"{name!r} cannot name a run: use letters, digits, - and _")
        if sys.platform != "linux":
            notice(
                "recording was tried on Linux alone, so this run may lack calls or operators; "
                "analyze runs that were recorded there"
            )
        clock = clock or RunClock.start()
        return cls(options, Path(out), name, title, clock, event_cap, compress)

    @property
    def directory(self) -> Path:
        """The bundle's folder, made on first use. Raises OutputError if it cannot be."""
        with self._lock:
            new = self._files.directory is None
            directory = self._files.open("run")
            if new:
                try:
                    self._files.describe()
                except BaseException:
                    self._files.remove()
                    raise
            return directory

    def attach(self, pipeline: Any) -> Attachment:
        """Hook `pipeline` and record its calls until the attachment is detached.

        Raises InputError, and leaves it unchanged, if it has no known submodule, is attached
        already, runs on another device than configured, or the session is closed.
        """
        with self._lock:
            if self._files.closed:
                raise InputError("this run is closed: open a new one")
            if is_wrapped(pipeline):
                raise InputError(
                    f"this {type(pipeline).__name__} is being profiled already: end that first"
                )
            check_devices(pipeline, self._options)
            work = self._files.open(title(pipeline)) / WORK_NAME
            before = self._names.add(pipeline)
            attachment = Attachment(
                pipeline, self.recorder, self._options, work, self._event_cap, before
            )
            try:
                attachment.attach(pipeline)
                self._attached.weights.add(attachment.facts.parts)
                self._attached.add(attachment)
                self._files.describe()
            except BaseException:
                attachment.detach()
                self._attached.remove(attachment)
                if not self._used and not self._attached.standalone.all_here():
                    self._files.remove()
                raise
            return attachment

    @property
    def parts(self) -> Together:
        """The recorded parts that no pipeline holds."""
        return self._parts

    def add_part(self, name: str, value: Any) -> None:
        """Record the calls of a part that no pipeline holds, as those of the submodule `name`.
        Steps and stages of all such parts come from the schedulers among them."""
        with self._lock:
            if self._files.closed:
                return
            self._parts.add(self._names.free(name, value), value)
            if self._of_parts is not None:
                self._of_parts.renew(self._parts)
                self._attached.weights.add(self._of_parts.facts.parts)
                self._files.describe()
            elif is_executed(value):
                self._of_parts = self.attach(self._parts)
                self._of_parts.facts.seen = True

    def pass_over(self, found: Mapping[str, Any]) -> None:
        """Count the calls of `found`, which is too small to be recorded, in coverage, once a part
        outside pipelines is recorded."""
        with self._lock:
            if not self._files.closed and self._of_parts is not None:
                self._of_parts.measure(found)

    def add_source(
        self, source: OperatorSource, submodule: str, gone: Callable[[], bool] | None = None
    ) -> None:
        """Add an operator source that no attachment opened, until the part it traces is `gone`.
        Writes the operators of earlier sources whose part is gone by now."""
        with self._lock:
            self._files.write_gone()
            self._attached.standalone.add(submodule, source, gone)

    def describe(self, facts: PipelineFacts) -> None:
        """Add submodules without an attachment to the manifest."""
        with self._lock:
            self._attached.describe(facts)
            if not self._files.closed:
                self._files.describe()

    @contextmanager
    def warmup(self) -> Iterator[None]:
        """Run the code inside with all hooks in place, but outside the recorded run; the manifest
        says how long it took. A block inside another one is part of that."""
        self.recorder.begin_warmup()
        try:
            yield
        finally:
            self._files.compilations.look()
            duration_ns = self.recorder.end_warmup()
            if duration_ns >= 0:  # the outermost
                before = self._warmup or Warmup()
                self._warmup = Warmup(
                    runs=(before.runs or 0) + 1, duration_ns=(before.duration_ns or 0) + duration_ns
                )

    def close(self, failure: str = "") -> Path | None:
        """Detach everything, write the bundle and return its folder; None if there is none.

        `failure` says what ended the run early. May be called again without effect. Raises
        OutputError if the bundle cannot be written, or lacks calls. In a forked child nothing
        is done: the run is its parent's.
        """
        with self._lock:
            if self._files.closed:
                return self.path
            self._files.closed = True
            _OPEN.discard(self)
            try:
                try:
                    self._end_capture()
                except BaseException:  # the script was interrupted: no hook may stay
                    self._end_capture()
                    raise
                if self._used:
                    self.path = self._files.write(failure, self._warmup)
                else:
                    self._files.remove()
            finally:
                error = self._files.let_go()
            if error is not None:
                raise error
            return self.path

    def begin_block(self) -> None:
        """Record the objects that the script has named, and those that it names until the session
        is closed."""
        _OPEN.add(self)
        for name, value in named().items():
            self.add_part(name, value)

    @property
    def _used(self) -> bool:
        """Whether anything was attached or called, or our own code failed."""
        recorder = self.recorder
        return bool(self._attached.attachments or recorder.invocations or recorder.failures)

    def _end_capture(self) -> None:
        self._attached.close()
        self.recorder.end_open_pipelines()
        self.recorder.attempt("devices' time", self.recorder.device_times.finish)

    def abandon(self) -> None:
        """Remove the hooks in a forked child, and record nothing more. The run continues in the
        parent. Again without effect.

        The session's objects are never destroyed here: a backend's profiler would write to files of
        the parent, and wait for threads that do not exist after a fork.
        """
        import ctypes

        self._lock = threading.RLock()  # a fork may have left the child a locked one
        if self._files.closed:
            return
        self._files.closed = True
        _OPEN.discard(self)
        gc.freeze()  # sessions may be in the parent's garbage
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        for attachment in self._attached.attachments:
            with suppress(Exception):
                attachment.abandon()
