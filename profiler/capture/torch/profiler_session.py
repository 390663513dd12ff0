"""torch.profiler sessions shared by all sources: started, stopped, cut into calls.

torch has one profiler per process. A session starts at the first traced call and stops when the
pipeline call ends, before an untraced call, or after `LONGEST_S` or `EVENT_CAP` events. It must
be stopped on the thread that started it. If a second thread asks for one, later sessions record
all threads and have no allocations.
"""

from __future__ import annotations

import ctypes
import itertools
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from profiler.capture.backend import notice
from profiler.capture.calls import Clock
from profiler.capture.host_work import Conversions
from profiler.capture.imports import interrupts_wait
from profiler.capture.recorder import Recorder
from profiler.capture.torch.compile import source_of
from profiler.capture.torch.events import (
    CALL,
    CallCommands,
    TorchEvents,
    find_commands,
    session_events,
)
from profiler.capture.torch.modules import (
    DeviceMemory,
    accelerator,
    allocated,
    close_range,
    device_memory,
    is_ours,
    is_profiling,
    leave,
    leave_modules,
    new_profiler,
    open_range,
    running_session,
    say_running,
    started,
    strand,
)
from profiler.capture.torch.script_profilers import PROFILERS
from profiler.errors import InputError
from profiler.kineto.operators import Scalar
from profiler.kineto.trace_file import read_kineto_file
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.events import DropReason

# --- Stopped sessions of torch.profiler: read, put on the run's clock, cut into calls.


_SLACK_NS = 50_000  # tolerance for a range outside its invocation
_NAME = "session.json"
_EVENT_PAGES = 1.2  # pages of 4 kB that torch takes per event at most; more are the program's
_NOTHING = DropReason.NO_SESSION_EVENTS


@dataclass(frozen=True, slots=True, eq=False)
class CutCall:
    """What a session recorded of one invocation. `moved_ns` is the shift of its events to the
    invocation's time, 0 if they fit. `new_pages` are those of the whole session, on one of its
    calls."""

    found: CallCommands
    commands: CommandColumns
    counters: tuple[Counter, ...]
    moved_ns: int
    new_pages: int = 0


@dataclass(slots=True)
class TracedCall:
    """One range of ours in a session: an invocation, or the host work around invocations. `layer`
    is the layer of operators outside all modules, "" for each one's own name; `deliver` is called
    with what the session recorded, or why it has nothing (`DropReason`); `owner` is the source.
    `packed` are shapes of packed weights by the path of their module."""

    layer: str
    deliver: Callable[[CutCall | Note], None]
    number: int = -1
    begin_ns: int = -1
    end_ns: int = -1
    owner: object = None
    packed: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StoppedSession:
    """The recording of a stopped session. `results` are Kineto's until they are written, then
    `trace` is the file (`written`), or why there is none. `start` and `end` are from `pair_clocks`;
    `allocated` are torch's allocated bytes on each device at the start. `threads` numbers threads
    by OS id, `kind` is the accelerator's name. `events` is the expected number of host events; its
    thread touched `new_pages`. `follows`: it continues the pipeline call of the session before.
    `levels`, which all sessions share, are the allocated bytes by device after the last converted
    session."""

    results: Any
    start: tuple[int, int]
    end: tuple[int, int]
    allocated: dict[str, int]
    calls: list[TracedCall]
    threads: Mapping[Scalar, int]
    kind: str
    events: int = 0
    new_pages: int = 0
    follows: bool = False
    levels: dict[str, int] = field(default_factory=dict)
    trace: BinaryIO | Note = field(default_factory=lambda: Note.of(_NOTHING))
    writing: threading.Lock = field(default_factory=threading.Lock)

    def write(self) -> None:
        """Have Kineto write its events, once, which frees some 4 kB per event."""
        with self.writing:
            if self.results is not None:
                self.trace = written(self.results)
                self.results = None

    def convert(self) -> None:
        """Cut the session into calls, starting from the memory levels of the session before."""
        self.write()
        after = self.cut(self.levels if self.follows else {})
        self.levels.clear()
        self.levels.update(after)

    def recorders(self) -> list[Recorder]:
        """The distinct recorders of the calls' owners."""
        found = [getattr(call.owner, "recorder", None) for call in self.calls]
        return list({id(one): one for one in found if one is not None}.values())

    def cut(self, levels: Mapping[str, int]) -> dict[str, int]:
        """Deliver the commands of each call, or why it cannot be read; never raises. `levels` are
        the allocated bytes by device after the session before; returns those after this one."""
        after = {**levels, **self.allocated}
        found: dict[int, CutCall] = {}
        failure = self.trace if isinstance(self.trace, Note) else Note.of(_NOTHING)
        try:
            if self.calls and not isinstance(self.trace, Note):
                found, after = self._read(self.trace, after)
        except (OSError, InputError, RuntimeError):
            failure = Note.of(DropReason.SESSION_UNREADABLE)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            reason = f"{type(error).__name__}: {error}"
            failure = Note.of(DropReason.SESSION_NOT_CUT, error=reason)
        self.close()
        for call in self.calls:
            call.deliver(found.get(call.number, failure))
        return after

    def close(self) -> None:
        """Release the recording."""
        self.results = None
        if not isinstance(self.trace, Note):
            self.trace.close()
            self.trace = Note.of(_NOTHING)

    def _read(
        self, file: BinaryIO, before: Mapping[str, int]
    ) -> tuple[dict[int, CutCall], dict[str, int]]:
        """The calls by number, and the allocated bytes after the session."""
        trace = read_kineto_file(Path(_NAME), file)
        events = on_clock(session_events(trace, self.kind, self.threads), self.start, self.end)
        closed = {call.number: call for call in self.calls if call.end_ns >= 0}
        layers = {number: call.layer for number, call in closed.items()}
        packed = {number: call.packed for number, call in closed.items()}
        found = find_commands(events, layers, source_of, packed)
        memory = device_memory(events, before)
        cut = {number: _cut_call(closed[number], own, memory) for number, own in found.items()}
        most = round(_EVENT_PAGES * sum(own.events for own in found.values()))
        for number in itertools.islice(cut, 1):
            cut[number] = replace(cut[number], new_pages=min(self.new_pages, most))
        return cut, {**before, **{series.device: series.after for series in memory}}


def written(results: Any) -> BinaryIO | Note:
    """Have Kineto write its `results` to an unlinked file, which disappears with the process;
    returns the reason if that fails."""
    try:
        if not results.trace_start_ns():
            return Note.of(_NOTHING)
        with tempfile.TemporaryDirectory(
            prefix="profile-sd3-", ignore_cleanup_errors=True
        ) as folder:
            path = Path(folder) / _NAME
            results.save(str(path))
            return path.open("rb")
    except (OSError, RuntimeError):
        return Note.of(DropReason.SESSION_UNREADABLE)


def _cut_call(call: TracedCall, found: CallCommands, memory: Iterable[DeviceMemory]) -> CutCall:
    moved = misplaced_ns(call, found)
    columns = found.build()
    counters = [series.between(found.start_ns, found.end_ns) for series in memory]
    return CutCall(
        found=found,
        commands=replace(columns, start_ns=columns.start_ns + moved),
        counters=tuple(replace(c, times_ns=c.times_ns + moved) for c in counters),
        moved_ns=moved,
    )


def touched_pages() -> int:
    """The number of pages of new memory that this thread has touched; 0 if unknown."""
    thread = getattr(resource, "RUSAGE_THREAD", None)
    return 0 if thread is None else resource.getrusage(thread).ru_minflt


def pair_clocks(clock: Clock) -> tuple[int, int]:
    """The current CLOCK_REALTIME, which Kineto uses, and the offset from it to the run's clock."""
    best_width, best = 1 << 62, (0, 0)
    for _ in range(8):
        before = clock.now_ns()
        realtime = time.time_ns()
        after = clock.now_ns()
        if after - before < best_width:
            best_width, best = after - before, (realtime, (before + after) // 2 - realtime)
    return best


def on_clock(events: TorchEvents, start: tuple[int, int], end: tuple[int, int]) -> TorchEvents:
    """The events on the run's clock: the offset changes linearly from `start` to `end`."""
    elapsed = events.start_ns - start[0]
    drift = np.interp(elapsed, (0, max(end[0] - start[0], 1)), (0, end[1] - start[1]))
    return replace(events, start_ns=events.start_ns + start[1] + np.rint(drift).astype(np.int64))


def misplaced_ns(call: TracedCall, found: CallCommands) -> int:
    """The shift that moves the range to its invocation's start, 0 if it is inside within 50 µs. It
    is outside if the wall clock was set during the session."""
    early, late = call.begin_ns - found.start_ns, found.end_ns - call.end_ns
    return early if max(early, late) > _SLACK_NS else 0


# --- torch.profiler sessions: torch has one profiler per process, which our sources share.
#
# The first traced invocation of a pipeline call starts a session, which records all later ones, and
# the pipeline's work between them: its host work, inside a range of ours. The session is stopped at
# the end of the pipeline call, before an untraced call, and between calls once it has recorded for
# `LONGEST_S` or would exceed `EVENT_CAP` events. Kineto writes its events when the pipeline rests,
# but before another session starts, so that only one session's events are in memory; they are cut
# (`cut`) later (`Conversions`).
#
# torch stops a session only on the thread that started it. Once a second thread has asked for one
# in a pipeline call, later sessions record all threads, and torch then reports no allocations. Such
# a session is stopped while no other thread runs a pipeline call: torch would free memory that an
# operator on another thread writes to.


_NOTICE = (
    "the script's own torch.profiler is running, and torch has one a process: calls that run "
    "meanwhile are recorded without their operators"
)
_OF_A_THREAD = (
    'if torch has just said "External init callback must run in same thread": that is harmless, a '
    "thread was the first to run a model, and nothing is lost"
)
EVENT_CAP = 50_000  # host events of a session, each of which takes 6 kB while torch stops it
LONGEST_S = 4.0  # up to the end of a call: with the wait for its conversion below 10 s


@dataclass(slots=True)
class _HostRange:
    """The range around the invocations of one thread's pipeline call, torch's own object, and the
    number of the session that it was entered in."""

    call: TracedCall
    opened: Any
    session: int


@dataclass(slots=True)
class _Session:
    """A running session. `start` is from `pair_clocks`; `hosts` are the open ranges of host work,
    by thread. `given_up`: it is no longer needed, and its thread must stop it."""

    profiler: Any
    thread: int
    all_threads: bool
    clock: Clock
    start: tuple[int, int]
    allocated: dict[str, int]
    kind: str
    until: float  # on `time.monotonic`: when it must be stopped
    touched: int  # pages touched by its thread before it started
    expected_events: int = 0
    calls: list[TracedCall] = field(default_factory=list)
    hosts: dict[int, _HostRange] = field(default_factory=dict)
    given_up: bool = False

    def withdraw(self, owner: object) -> None:
        """Tell an owner that its calls will not be delivered, since this session cannot be cut for
        it."""
        withdrawn = [call for call in self.calls if call.owner is owner]
        self.calls = [call for call in self.calls if call.owner is not owner]
        self.given_up = not self.calls
        for call in withdrawn:
            call.deliver(Note.of(DropReason.CLOSED_ON_OTHER_THREAD))

    def records(self, thread: int) -> bool:
        """Whether the session records a thread."""
        return self.all_threads or self.thread == thread

    def in_use(self) -> bool:
        """Whether a recorded call, or a pipeline call with recorded host work, is running."""
        return bool(self.hosts) or any(call.end_ns < 0 for call in self.calls)


def _exit_without_destructors() -> None:
    """Have this forked child end without the destructors of C++'s static objects: Kineto's waits
    for a thread that only the parent has. Exit functions of Python and streams of C are not
    affected."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # the last one that is registered runs first
        libc.on_exit(libc._exit, None)  # noqa: SLF001 - a function of C
        libc.on_exit(libc.fcloseall, None)


class Tracing:
    """The sessions of a process, one after the other, counted by `sessions`."""

    def __init__(self) -> None:
        self.sessions = 0
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._session: _Session | None = None
        self._conversions = Conversions(self._resting_since)
        self._held: StoppedSession | None = None  # whose results torch may still have
        self._running: dict[object, int] = {}  # running pipeline calls, by thread
        self._rest = time.monotonic()  # when the last of these, or a session, ended
        self._follows = False  # a session of this pipeline call was stopped
        self._levels: dict[str, int] = {}  # allocated bytes after the last converted one
        self._several_threads = False
        self._noticed = False
        self._explained = False
        self._starting = False
        self._threads: dict[Scalar, int] = {}

    def begin_pipeline(self, pipeline: object) -> None:
        """Delay conversions, since a pipeline call starts. Waits for a session that is being
        stopped."""
        with self._lock:
            self._running[pipeline] = threading.get_ident()

    def end_pipeline(self, pipeline: object) -> None:
        """Allow conversions again, since a pipeline call has ended."""
        with self._lock:
            self._running.pop(pipeline, None)
            self._rest = time.monotonic()

    def begin_call(
        self,
        call: TracedCall,
        clock: Clock,
        expected_events: int,
        cap: int = EVENT_CAP,
        host: Callable[[], TracedCall] | None = None,
        *,
        memory: bool = False,
    ) -> bool:
        """Open the range of an invocation on this thread, in the running session or a new one.

        `expected_events` is how many events it may have; a session that would exceed `cap` is
        stopped first. `host` creates the range of the host work around this thread's invocations,
        if none is open in a session; with `memory` a new session records allocations. False if the
        invocation cannot be traced: a session that records only another thread is running, or a
        profiler that is not ours.
        """
        thread = threading.get_ident()
        with self._lock:
            session = self._usable(thread)
            if session is not None and not session.records(thread):
                self._several_threads |= thread in self._running.values()
                return False
            self._threads.setdefault(threading.get_native_id(), len(self._threads) + 1)
            if session is not None and self._only_here(session, thread):
                full = session.expected_events + expected_events > cap
                if full or time.monotonic() >= session.until:
                    self._end(thread)
            session = self._session or self._start(clock, memory=memory)
            if session is None:
                return False
            if host is not None and thread not in session.hosts:
                session.hosts[thread] = self._open_host(host(), session)
            session.expected_events += expected_events
            session.calls.append(call)
            call.number = next(self._numbers)
        call.begin_ns = clock.now_ns()
        open_range(f"{CALL}{call.number}")
        return True

    def end_call(self, call: TracedCall, clock: Clock) -> None:
        """Close the range of an invocation, on the thread that started it."""
        close_range(f"{CALL}{call.number}")
        call.end_ns = clock.now_ns()

    def pause(self) -> bool:
        """Stop recording this thread until its next `begin_call`: the session is stopped if no
        other thread uses it. Returns whether it was."""
        with self._lock:
            before = self._session
            self._end(threading.get_ident())
            return self._session is not before

    def end_session(self) -> bool:
        """Pause, at the end of a pipeline call or of a call outside; returns whether the session
        was stopped."""
        with self._lock:
            stopped = self.pause()
            self._follows = False
            return stopped

    def release(self, owner: object) -> None:
        """Deliver what is recorded of the calls of an owner that will ask for nothing more. Calls
        recorded by another thread's session get nothing: that thread stops it at its next call."""
        thread = threading.get_ident()
        with self._lock:
            session = self._session
            if session is not None and any(call.owner is owner for call in session.calls):
                if session.records(thread) and not self._elsewhere(session, thread):
                    self._end(thread)
                    if self._session is session:
                        self._stop(session)
                else:
                    session.withdraw(owner)
        self._conversions.drain()
        self._write_held()
        PROFILERS.leave(owner)

    def forget(self) -> None:
        """Drop all sessions in a forked child: they are the parent's.

        If torch recorded the forking thread, it continues in the child, and is stopped. Not if it
        also records an accelerator, whose runtime does not survive a fork.
        """
        session, starting = self._session, self._starting
        self._lock = threading.RLock()
        self._session, self._starting, self._several_threads = None, False, False
        self._conversions.abandon()
        self._conversions, self._running = Conversions(self._resting_since), {}
        self._held = None
        self._follows, self._threads, self._levels = False, {}, {}
        if self.sessions:
            _exit_without_destructors()
        leave_modules()
        if "torch.autograd.profiler" not in sys.modules or not (starting or is_ours()):
            return
        here = session is not None and session.records(threading.get_ident())
        if session is not None and here and not session.profiler.use_device:
            with suppress(Exception):
                session.profiler.__exit__(None, None, None)
        say_running(ours=False)

    def give_way(self) -> None:
        """Stop the session, if this thread can, before a profiler of the script is prepared or
        started on it. Otherwise the session is marked as not ours, and its thread releases it."""
        thread = threading.get_ident()
        with self._lock:
            self._write_held()
            session = self._session
            if session is None or not is_ours():
                return
            if not session.records(thread) or self._elsewhere(session, thread):
                say_running(ours=False)
                return
            self._close_host(session, thread)
            cut_off = [call for call in session.calls if call.end_ns < 0]
            session.calls = [call for call in session.calls if call.end_ns >= 0]
            self._stop(session)
            self._write_held()
        for call in cut_off:
            call.deliver(Note.of(DropReason.PROFILER_IN_USE))

    def _usable(self, thread: int) -> _Session | None:
        """Return the running session. One that is no longer ours or needed, or whose thread has
        ended, is ended first."""
        session = self._session
        if session is None:
            return None
        if not is_ours():
            self._stop(session)
        elif session.given_up and session.records(thread):
            self._end(thread)
        elif not session.records(thread) and session.thread not in sys._current_frames():  # noqa: SLF001
            self._drop(session)
        return self._session

    def _drop(self, session: _Session) -> None:
        """Drop a session whose thread has ended: torch's recording is lost with it."""
        self._session = None
        for host in session.hosts.values():
            strand(host.opened)
        say_running(ours=False)
        for call in session.calls:
            call.deliver(Note.of(DropReason.THREAD_ENDED))

    def _resting_since(self) -> float | None:
        """The time since which no pipeline call or session is running; None while one is."""
        return None if self._running or self._session is not None else self._rest

    def _elsewhere(self, session: _Session, thread: int) -> bool:
        """Whether another thread that the session records runs a pipeline call."""
        others = {other for other in self._running.values() if other != thread}
        return session.all_threads and not others.isdisjoint(sys._current_frames())  # noqa: SLF001

    def _only_here(self, session: _Session, thread: int) -> bool:
        """Whether no call is open, and no host work or pipeline call except this thread's."""
        if self._elsewhere(session, thread):
            return False
        host = session.hosts.get(thread)
        still = [c for c in session.calls if c.end_ns < 0 and (host is None or c is not host.call)]
        return session.hosts.keys() <= {thread} and not still

    def _open_host(self, call: TracedCall, session: _Session) -> _HostRange:
        from torch._C._profiler import _RecordFunctionFast

        call.number = next(self._numbers)
        call.begin_ns = session.clock.now_ns()
        session.calls.insert(0, call)
        opened = _RecordFunctionFast(f"{CALL}{call.number}")
        opened.__enter__()
        return _HostRange(call, opened, running_session())

    def _end(self, thread: int) -> None:
        """Close the host work of a thread. Stop the session if it is unused, or if only this thread
        can."""
        session = self._session
        if session is None or not session.records(thread):
            return
        self._close_host(session, thread)
        used = session.in_use() or self._elsewhere(session, thread)
        if not session.all_threads or not used:
            self._stop(session)

    @staticmethod
    def _close_host(session: _Session, thread: int) -> None:
        """Close the range of a thread's host work, if it is open."""
        host = session.hosts.pop(thread, None)
        if host is not None:
            leave(host.opened, host.session)
            host.call.end_ns = session.clock.now_ns()

    def _start(self, clock: Clock, *, memory: bool) -> _Session | None:
        """Start a session; None if a profiler that is not ours is running."""
        if is_profiling():
            if not self._noticed:
                self._noticed = True
                notice(_NOTICE)
            return None
        self._write_held()
        profiler = new_profiler(all_threads=self._several_threads, memory=memory)
        self._starting = True
        running = started(profiler)
        if running:
            say_running(ours=True)
            self._explain_thread()
        self._starting = False
        if not running:
            return None
        self._session = _Session(
            profiler,
            threading.get_ident(),
            self._several_threads,
            clock,
            pair_clocks(clock),
            allocated(),
            accelerator() or "cuda",
            time.monotonic() + LONGEST_S,
            touched_pages(),
        )
        self.sessions += 1
        return self._session

    def _explain_thread(self) -> None:
        """Explain the line that torch prints when it first profiles on a thread."""
        if not self._explained and threading.current_thread() is not threading.main_thread():
            notice(_OF_A_THREAD)
        self._explained = True

    @interrupts_wait()
    def _write_held(self) -> None:
        """Have the last session's recording written before another one is started."""
        held, self._held = self._held, None
        if held is not None:
            held.write()

    @interrupts_wait()
    def _stop(self, session: _Session) -> None:
        """Stop the running session. Its recording is written and read later: when the pipeline
        rests, or another session is started. If the script has started a profiler meanwhile, torch
        has that one, which is left running."""
        self._session, self._rest = None, time.monotonic()
        end, here = pair_clocks(session.clock), session.thread == threading.get_ident()
        new_pages = touched_pages() - session.touched if here else 0
        for host in session.hosts.values():  # of other threads, which are interrupted
            host.call.end_ns = session.clock.now_ns()
            if not is_ours():
                strand(host.opened)
        if is_ours():
            try:
                session.profiler.__exit__(None, None, None)
            except RuntimeError:  # already stopped by other code: no results
                say_running(ours=False)
        self._held = StoppedSession(
            session.profiler.kineto_results,
            session.start,
            end,
            session.allocated,
            session.calls,
            dict(self._threads),
            session.kind,
            session.expected_events,
            new_pages,
            self._follows,
            self._levels,
        )
        session.profiler.kineto_results = None
        self._conversions.put(self._held)
        self._follows = True
