"""One profiled run: from the first attached pipeline to the finished bundle.

session = Session.open(Options(), Path("traces"))
attachment = session.attach(pipe)
...
path = session.close()
"""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from profiler.capture.attached import Attached
from profiler.capture.clock import Clock, RunClock
from profiler.capture.forks import abandon_in_children
from profiler.capture.operator_source import OperatorSource
from profiler.capture.options import Options
from profiler.capture.pipelines.attachment import Attachment, check_devices
from profiler.capture.pipelines.components import Together, is_executed, title
from profiler.capture.pipelines.user_labels import named
from profiler.capture.recorder import Recorder
from profiler.capture.run_files import RunFiles
from profiler.capture.run_info import PipelineFacts
from profiler.capture.size_limit import SizeLimit
from profiler.capture.wraps import is_wrapped
from profiler.errors import InputError
from profiler.trace.bundle import WORK_NAME
from profiler.trace.compression import Compression
from profiler.trace.manifest_fields import Warmup

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
        self.recorder = Recorder(clock, limit=SizeLimit(options.max_size), memory=options.memory)
        self._options = options
        self._event_cap = event_cap
        self._attached = Attached()
        self._files = RunFiles(
            self.recorder, self._attached, out, name=name, title=title, compress=compress
        )
        self._parts = Together()  # what no pipeline holds
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
        """Record what `pipeline` runs from now on, until the attachment is detached.

        Raises InputError where it has no known submodule, is attached already, runs on another
        device than configured, or the session is closed; it is then as it was.
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
            attachment = Attachment(pipeline, self.recorder, self._options, work, self._event_cap)
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
        """What is recorded that no pipeline holds."""
        return self._parts

    def add_part(self, name: str, value: Any) -> None:
        """Record the calls of something that no pipeline holds, as those of the submodule `name`;
        steps and stages of all such parts are those of the schedulers among them."""
        with self._lock:
            if self._files.closed:
                return
            self._parts.add(name, value)
            if self._of_parts is not None:
                self._of_parts.renew(self._parts)
                self._attached.weights.add(self._of_parts.facts.parts)
                self._files.describe()
            elif is_executed(value):
                self._of_parts = self.attach(self._parts)
                self._of_parts.facts.seen = True

    def pass_over(self, found: Mapping[str, Any]) -> None:
        """State in coverage what of these is called, which is too small to be recorded, once
        something that no pipeline holds is."""
        with self._lock:
            if not self._files.closed and self._of_parts is not None:
                self._of_parts.measure(found)

    def add_source(
        self, source: OperatorSource, submodule: str, gone: Callable[[], bool] | None = None
    ) -> None:
        """Take the operators of a source that no attachment opened, until what it traces is
        `gone`; those of earlier ones that are gone by now are written."""
        with self._lock:
            self._files.write_gone()
            self._attached.standalone.add(submodule, source, gone)

    def describe(self, facts: PipelineFacts) -> None:
        """Have the manifest describe submodules that no attachment has."""
        with self._lock:
            self._attached.describe(facts)
            if not self._files.closed:
                self._files.describe()

    @contextmanager
    def warmup(self) -> Iterator[None]:
        """What runs inside is executed with everything in place but kept out of the run; the
        manifest says how long it took. One inside another is part of that."""
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
        """Detach everything, write the bundle and return its folder; None where there is none.

        `failure` says what ended the run early. May be called again without effect. Raises
        OutputError where the bundle cannot be written, or lacks calls. In a forked child nothing
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
                except BaseException:  # the script was interrupted: nothing of it stays hooked
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
        """What the script names from now on is recorded here, until the session is closed, and
        what it has named before."""
        _OPEN.add(self)
        for name, value in named().items():
            self.add_part(name, value)

    @property
    def _used(self) -> bool:
        """Whether anything was attached, was called, or failed of us."""
        recorder = self.recorder
        return bool(self._attached.attachments or recorder.invocations or recorder.failures)

    def _end_capture(self) -> None:
        self._attached.close()
        self.recorder.end_open_pipelines()
        self.recorder.attempt("devices' time", self.recorder.device_times.finish)

    def abandon(self) -> None:
        """In a forked child: take the hooks off, and record nothing more. The run is the parent's,
        which goes on with it. Again without effect.

        What lies below the session is never destroyed here: what a backend profiles
        would write to files of the parent, and wait for threads that a fork leaves behind.
        """
        import ctypes

        self._lock = threading.RLock()  # the child may have been left a locked one
        if self._files.closed:
            return
        self._files.closed = True
        _OPEN.discard(self)
        gc.freeze()  # sessions among the garbage that the parent has left
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        for attachment in self._attached.attachments:
            with suppress(Exception):
                attachment.abandon()
