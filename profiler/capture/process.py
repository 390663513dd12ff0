"""The recording of a switched-on process: what it watches, its session, how it ends.

    end = ProcessEnd(close=lambda failure: ..., forked=lambda: ...)
    end.watch()

One process writes one bundle. The session opens on the first use of a model, so a process that
runs no model leaves no files. Exit, uncaught exceptions, SIGTERM and SIGHUP close the run
first. After `os._exit`, `exec`, SIGKILL or a crash, the files written so far remain.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from profiler.capture.backend import (
    Backend,
    StandalonePart,
    Watcher,
    Watching,
    backends,
    built_in,
    notice,
)
from profiler.capture.imports import forget, when_imported
from profiler.capture.patching import ByIdentity, is_wrapped
from profiler.capture.pipelines.discovery import NewPipelines, Together
from profiler.capture.settings import Options, Settings, parse_config
from profiler.errors import InputError
from profiler.plugins import error_text, let_pass

# --- The end of a process: the recording is closed first, if that is possible.
#
# | end | what happens |
# |---|---|
# | normal, `sys.exit` | `close("")` by `atexit`, after the script's own exit functions |
# | uncaught exception, SIGINT | `close("ValueError: …")` by `atexit` |
# | SIGTERM, SIGHUP with their default action | `close("SIGTERM")`, then the default action |
# | the same while the run is being closed | afterwards, the default action; a second one: at once |
# | the script's own signal handler | it is not replaced; if it exits, `atexit` closes |
# | one in C, as `faulthandler.register`'s | the same |
# | a child by `os.fork` | `forked()` in the child, which is then watched as its parent is |
# | a `multiprocessing` child by fork | as above, and `close` when its target has returned |
# | `os._exit`, `exec`, SIGKILL, a crash | nothing: what was written stays |
#
# As all handlers in Python, ours does not run while the main thread waits for a lock without a
# timeout, if the signal came just as the wait started; the next signal wakes it.


_SIGNALS = ("SIGTERM", "SIGHUP")
_PATIENCE_S = 60.0  # a signal waits this long for the bundle; files written so far stay anyway


class ProcessEnd:
    """Calls `close(failure)` when the process ends and `forked()` in its forked children."""

    def __init__(self, close: Callable[[str], None], forked: Callable[[], None]) -> None:
        self._close = close
        self._forked = forked
        self._handled: set[signal.Signals] = set()
        self._watching = False
        self._registered = False
        self._closing = False
        self._waiting: int | None = None  # the signal that came while the run was being closed

    def watch(self) -> None:
        """Watch for the end of the process; again without effect."""
        if not self._registered:
            self._registered = True
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._in_child)
        if not self._watching:
            self._watching = True
            atexit.register(self._at_exit)

    def watch_signals(self) -> None:
        """Handle the signals whose default action would end the process. Only the main thread can;
        elsewhere nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) != signal.SIG_DFL:
                continue
            if not _handled_in_c(number):
                signal.signal(number, self._on_signal)
                self._handled.add(number)

    def leave(self) -> None:
        """Stop watching, and restore the signal handlers."""
        self._watching = False
        atexit.unregister(self._at_exit)
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._handled:
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL)
        self._handled.clear()

    def _at_exit(self) -> None:
        self._close(uncaught())
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            _die_of_sigint_still()

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Close the run inside this block: a first signal waits for its end."""
        self._closing = True
        try:
            yield
        finally:
            self._closing = False
            if self._waiting is not None:
                signal.raise_signal(self._waiting)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Close the run, then let the signal end the process; a second signal ends it immediately.

        This runs between two bytecodes of the main thread, where a runtime's profiler can be
        stopped if it was started there. The main thread may hold a lock that closing needs, so
        another thread ends the process after a timeout. While the interpreter shuts down, Python
        3.12 and later start no threads: then only a second signal ends a deadlock.
        """
        signal.signal(number, signal.SIG_DFL)
        closed = threading.Event()
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=_kill_unless, args=(closed, number), daemon=True).start()
        if self._closing:
            self._waiting = number
            return
        try:
            self._close(signal.Signals(number).name)
        finally:
            closed.set()
            signal.raise_signal(number)

    def _in_child(self) -> None:
        self._closing, self._waiting = False, None  # if another thread was closing
        if not self._watching:
            return
        self._forked()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # its children leave by os._exit, which runs no exit functions
            util.register_after_fork(self, _finalize_in_child)

    def close_in_child(self) -> None:
        """Close the run of a `multiprocessing` child when its target has returned or raised."""
        if self._watching:
            self._close("")


def _die_of_sigint_still() -> None:
    """Make the interpreter exit as killed by SIGINT after Ctrl-C.

    It forgets a KeyboardInterrupt with each further string that it executes (`run_eval_code_obj` in
    CPython's Python/pythonrun.c), such as for a named tuple.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102 - a constant


def _handled_in_c(number: int) -> bool:
    """Whether C code, such as `faulthandler.register`, handles a signal for which Python has no
    handler; False if unknown."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        let_pass(error)
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _kill_unless(closed: threading.Event, number: int) -> None:
    if not closed.wait(_PATIENCE_S):
        os.kill(os.getpid(), number)


def _finalize_in_child(end: Any) -> None:
    from multiprocessing.util import Finalize

    Finalize(None, end.close_in_child, exitpriority=-100)


def uncaught() -> str:
    """The exception that ends the process, as "ValueError: …"; "" if there is none.

    Interactive interpreters also keep the last error of a command, which did not end the process.
    """
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return ""
    error = getattr(sys, "last_value", None)
    return "" if error is None else error_text(error)


# --- What a switched-on process watches for: pipelines, and what backends notice outside of them.
#
# Backends of other packages are looked up after the import of the first watched library, or when
# code switches profiling on, so the start of an interpreter does not pay for it.


class Watchers:
    """The watchers of a process: `pipelines` and those of backends. When a library of one has been
    imported, it is notified if `noticed()` says that the process is still switched on."""

    def __init__(self, process: Watching, pipelines: Watcher, noticed: Callable[[], bool]) -> None:
        self._process = process
        self._pipelines = pipelines
        self._noticed = noticed
        self._by_backend: dict[str, Watcher] = {}  # "" is the key of pipelines
        self._others_asked = False  # whether other packages' backends were asked

    def begin(self) -> None:
        """Start watching for pipelines and for what the built-in backends notice."""
        self._by_backend.setdefault("", self._pipelines)
        self._add(built_in())
        for watcher in list(self._by_backend.values()):
            self._watch(watcher)

    def ask_others(self) -> None:
        """Have backends of other packages watch, too; again without effect. This is called late, so
        that a process that runs no model does not pay for it."""
        if self._others_asked:
            return
        self._others_asked = True
        known = set(self._by_backend)
        for backend in backends():
            try:
                self._add([backend])
                if backend.name in self._by_backend and backend.name not in known:
                    self._watch(self._by_backend[backend.name])
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)
                notice(
                    f"the backend {backend.name} does not watch: {type(error).__name__}: {error}"
                )

    def end(self) -> None:
        """Stop noticing imports."""
        for watcher in self._by_backend.values():
            for name in watcher.libraries:
                forget(name)

    def undo(self) -> None:
        """Restore the libraries."""
        for watcher in self._by_backend.values():
            watcher.undo()

    def forget(self) -> None:
        """Forget all that was noticed, as in a forked child."""
        for watcher in self._by_backend.values():
            watcher.forget()

    def _add(self, asked: Iterable[Backend]) -> None:
        for backend in asked:
            if backend.name not in self._by_backend:
                watcher = backend.watch(self._process)
                if watcher is not None:
                    self._by_backend[backend.name] = watcher

    def _watch(self, watcher: Watcher) -> None:
        for name, callback in watcher.libraries.items():
            when_imported(name, self._on_import(callback))

    def _on_import(self, callback: Callable[[Any], None]) -> Callable[[ModuleType], None]:
        def imported(module: ModuleType) -> None:
            if self._noticed():
                callback(module)
                self.ask_others()

        return imported


# --- The recording of a switched-on process: what it watches, its one session, its end.


_NO_STEPS = (
    "this chooses steps of a pipeline alone, and a session outside of pipelines has none: "
    "its calls are recorded without operators"
)


class SwitchedOn:
    """The one recording of a process. `settings` is None while it is off.

    `open_session(settings, title)` opens a `profiler.capture.session.Session`; tests give another.
    """

    def __init__(self, open_session: Callable[[Settings, str], Any]) -> None:
        self.settings: Settings | None = None
        self.by_environment = False
        self.asked = False  # whether the environment has been read
        self._open_session = open_session
        self._session: Any = None
        self._steps_said = False
        self._used = False  # whether something to record has been called, or was about to be
        self._passed = Together()  # objects that were called and are no submodules
        self._opened = False  # whether opening the session for parts outside pipelines was tried
        self._attachments: ByIdentity[Any] = ByIdentity()
        self._lock = threading.RLock()
        self._pipelines = NewPipelines(self._attach)
        self._watchers = Watchers(self, self._pipelines, self._noticed)
        self._end = ProcessEnd(self.close, self._forked)

    def switch_on(self, settings: Settings, *, by_environment: bool = False) -> None:
        """Start watching for pipelines and sessions; nothing is written before the first is
        used."""
        self.settings, self.by_environment = settings.absolute(), by_environment
        self._end.watch()
        _tell(self.settings, process=os.getpid())
        self._watchers.begin()
        if not by_environment:
            self._watchers.ask_others()

    def switch_off(self, failure: str = "", *, announce: bool = False) -> Path | None:
        """Close the session and restore everything. Returns the bundle's folder, None if nothing
        ran. `announce` prints it to stderr, unless `profile-sd3 record` will. Raises OutputError if
        the bundle cannot be written.

        Nothing new is recorded from the start of this call, although threads may still run models.
        """
        self._watchers.end()
        with self._lock:
            session, settings = self._session, self.settings
            self._session, self.settings, self._opened = None, None, False
            self._attachments = ByIdentity()  # they reference what they recorded
        try:
            with self._end.closing():  # a deferred signal ends the process right after this
                return _closed(session, settings, failure, announce=announce)
        finally:
            self._watchers.undo()
            self._end.leave()

    def close(self, failure: str) -> None:
        """Close the session at the end of the process: `switch_off`, but errors are printed, not
        raised."""
        used = self._used
        try:
            path = self.switch_off(failure, announce=True)
            if path is None and used and failure.startswith(KeyboardInterrupt.__name__):
                notice("interrupted in the first use of a model: nothing was recorded")
        except KeyboardInterrupt:
            return  # the process ends anyway
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            notice(f"the run could not be written whole: {error}")

    @property
    def unused(self) -> bool:
        """Whether nothing has been recorded since profiling was switched on."""
        return self._session is None

    def _attach(self, pipeline: Any) -> bool | None:
        """Hook a pipeline; None if it is not recorded here, since the script profiles it itself,
        the running pipeline covers it, or profiling is off."""
        begin_ns = time.perf_counter_ns()
        self._used = True
        if _is_part_of_running(pipeline):
            return None
        with self._lock:
            if self.settings is None or is_wrapped(pipeline):
                return None
            if self._session is None:
                self._session = self._open_session(self.settings, "")
            attachment = None
            try:
                attachment = self._session.attach(pipeline)
                self._attachments[pipeline] = attachment
                _tell(self.settings, bundle=str(self._session.directory))
                self._session.recorder.add_first_use(time.perf_counter_ns() - begin_ns)
            except BaseException as error:
                if attachment is not None:  # interrupted: it is tried again on the next use
                    attachment.detach()
                let_pass(error)
                _tell(self.settings, failed=str(error))
                raise
            return True

    def release(self, pipeline: Any) -> None:
        """Unhook a pipeline that the script profiles itself now; what was recorded stays.

        A first use takes this lock while it holds that of `_pipelines`, so here they are held one
        after the other.
        """
        with self._lock:
            attachment = self._attachments.pop(pipeline)
        if attachment is not None:
            attachment.detach()
            self._pipelines.forget_one(pipeline)

    def recording(self) -> Any:
        """The session for parts that belong to no pipeline; None while off, and if it cannot be
        opened."""
        if self._opened or self.settings is None:
            return self._session
        with self._lock:
            if not self._opened and self.settings is not None:
                try:
                    if self._session is None:
                        self._session = self._open_session(self.settings, _script_name())
                    _tell(self.settings, bundle=str(self._session.directory))
                except Exception as error:  # noqa: BLE001 - the user's program goes on
                    let_pass(error)
                    notice(f"not profiling: {error}")
                    _tell(self.settings, failed=str(error))
                    self._session = None
                self._opened = True
            return self._session

    def open_source(self, session: Any, part: StandalonePart) -> Any:
        """Open the operator source of a part that belongs to no pipeline, before its first call;
        None if its operators are not traced."""
        from profiler.capture.backend import open_source
        from profiler.capture.operator_source import SourceRequest
        from profiler.capture.run_info import part_facts
        from profiler.trace.bundle import WORK_NAME

        if self.settings is None:
            return None
        submodule, device = part.submodule, part.device
        options = _options(self.settings)
        try:
            options.check_device(submodule, device, part.recommendation)
        except InputError as error:
            part.refused = True
            notice(f"{submodule} is not profiled: {error}")
            _tell(self.settings, failed=str(error))
            return None
        selection = options.selection(submodule)
        if selection.steps_only and not selection.nothing and not self._steps_said:
            self._steps_said = True
            notice(f"ops {self.settings.ops!r}: {_NO_STEPS}")
        traced = not selection.steps_only
        session.describe(part_facts(submodule, part, device, traced=traced))
        if not traced:
            return None
        folder, recorder = session.directory / WORK_NAME, session.recorder
        folder.mkdir(exist_ok=True)
        begin = recorder.clock.now_ns()
        source = open_source(
            SourceRequest(submodule, part, device, folder, recorder, selection=selection)
        )
        recorder.opening_ns += recorder.clock.now_ns() - begin
        if source is not None:
            session.add_source(source, submodule, lambda: part.gone)
        return source

    def use_parts(self, parts: list[Any], caller: FrameType) -> None:
        """Record the calls of those of `parts` that no pipeline holds, under the script's names for
        them, and steps by the script's schedulers."""
        from profiler.capture.pipelines.script_objects import look_for_schedulers, names_of

        begin_ns = time.perf_counter_ns()
        self._used = True
        if self.settings is None:
            return
        attached = [attachment for _, attachment in self._attachments.items()]
        own = [
            part
            for part in parts
            if not (self._pipelines.holds(part) or any(known.covers(part) for known in attached))
        ]
        session = self.recording() if own else None
        if session is not None:
            for name, part in names_of(own, caller).items():
                session.add_part(name, part)
            look_for_schedulers(session, caller)
            session.pass_over(self._passed.alive())
            session.recorder.add_first_use(time.perf_counter_ns() - begin_ns)

    def held(self, parts: list[Any], caller: FrameType) -> list[Any]:
        """Return those of `parts` that the script's variables hold, directly or as attributes of
        their values."""
        from profiler.capture.pipelines.script_objects import held_around

        return held_around(parts, caller)

    def pass_over(self, parts: list[Any], caller: FrameType) -> None:
        """Count the work of these unrecorded objects in coverage once something is recorded; until
        then, name them in the journal."""
        from profiler.capture.pipelines.script_objects import names_of

        own = [part for part in parts if not self._pipelines.holds(part)]
        if self.settings is None or not own:
            return
        kinds = dict.fromkeys(type(part).__name__ for part in own)
        _tell(self.settings, uncaptured=list(kinds))
        for name, part in names_of(own, caller).items():
            self._passed.add(name, part)
        if self._session is not None:
            self._session.pass_over(self._passed.alive())

    def _noticed(self) -> bool:
        """Handle the import of a watched library; returns whether profiling is still on."""
        if self.settings is None:
            return False
        self._end.watch_signals()
        return True

    def _forked(self) -> None:
        """Abandon the parent's session in a forked child, without closing it, and remove its hooks.
        What the child uses starts a session of its own."""
        from profiler.capture.calls import Scope, enter

        self._lock = threading.RLock()
        if self._session is not None:
            self._session.abandon()
        self._session, self._opened = None, False
        self._attachments = ByIdentity()
        self._watchers.forget()
        enter(Scope())


def _is_part_of_running(pipeline: Any) -> bool:
    """Whether the running pipeline has all components of `pipeline`, so that their calls get its
    names and loops."""
    from profiler.capture.calls import scope
    from profiler.capture.pipelines.submodules import owner_of, present_entries

    running = scope().owner
    if running is None:
        return False
    owners = [owner_of(pipeline, entry) for entry in present_entries(pipeline)]
    return bool(owners) and all(running.covers(owner) for owner in owners)


def _closed(
    session: Any, settings: Settings | None, failure: str, *, announce: bool
) -> Path | None:
    """Close the session of a process and return its bundle's folder, None if nothing ran."""
    if session is None or settings is None:
        return None
    if failure == _POOLS_SIGNAL and _is_worker() and not session.recorder.running:
        failure = ""
    try:
        path: Path | None = session.close(failure)
    except KeyboardInterrupt:
        where = session.directory
        notice(f"interrupted while it was written: `profile-sd3 merge {where}` completes it")
        raise
    if path is not None:
        _tell(settings, finished=str(path))
        if announce and settings.journal is None:
            notice(f"the run is in {path}")
        _say_unknown(settings, session)
    return path


_POOLS_SIGNAL = "SIGTERM"


def _is_worker() -> bool:
    """Whether this is a daemon process of multiprocessing, such as a worker of a pool, which its
    parent ends by SIGTERM."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().daemon


def _tell(settings: Settings, **event: Any) -> None:
    """Append a line to the journal of `profile-sd3 record`, if there is one. Each line starts with
    its line break, so that one cut off by a full disk does not spoil the next."""
    if settings.journal is not None:
        try:
            with settings.journal.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(event))
        except OSError as error:
            let_pass(error)


def _say_unknown(settings: Settings, session: Any) -> None:
    """Report submodules that were configured and never ran: most likely a typo."""
    from profiler.capture.settings import parse_ops
    from profiler.trace.events import component_of

    configured = dict.fromkeys([*settings.config, *parse_ops(settings.ops).by_submodule])
    known = {invocation.submodule for invocation in session.recorder.invocations}
    known |= {component_of(name) for name in known}
    unknown = [name for name in configured if name not in known]
    if unknown:
        ran = ", ".join(sorted(known)) or "nothing"
        notice(f"{', '.join(unknown)}: configured, but what ran is {ran}")


def _options(settings: Settings) -> Options:
    options = parse_config(settings.config, settings.ops, settings.config.keys())
    return replace(
        options,
        max_size=settings.max_size,
        memory=settings.memory,
        keep_prompts=settings.keep_prompts,
    )


def open_session(settings: Settings, title: str) -> Any:
    """Open the session of a process with these settings; `title` names a run without a pipeline."""
    from profiler.capture.session import Session
    from profiler.trace.compression import check_compression

    return Session.open(
        _options(settings),
        settings.out,
        settings.name,
        title=title,
        compress=check_compression(settings.compress),
    )


def _script_name() -> str:
    """The name of a run without a pipeline: the script, or the package that `-m` ran."""
    program = Path(sys.argv[0] if sys.argv else "")
    name = program.parent.name if program.stem == "__main__" else program.stem
    plain = "".join(c if c.isalnum() or c in "_+-" else "_" for c in name).strip("_-")
    return plain or "python"
