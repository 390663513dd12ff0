"""torch.profiler sessions shared by all sources: started, stopped, cut into calls.

torch has one profiler per process. A session starts at the first traced call and stops when the
pipeline call ends, before an untraced call, or after `LONGEST_S` or `EVENT_CAP` events. It must
be stopped on the thread that started it. If a second thread asks for one, later sessions record
all threads and have no allocations.
"""

from __future__ import annotations

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

from profiler.capture.backend import Mark, notice
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

# --- Sessions of torch.profiler that were stopped: read, put on the run's clock, cut into calls.


_SLACK_NS = 50_000  # by which a range may lie outside its invocation
_NAME = "session.json"
_EVENT_PAGES = 1.2  # of 4 kB that torch takes for an event at most: what is more is the program's
_NOTHING = DropReason.NO_SESSION_EVENTS


@dataclass(frozen=True, slots=True, eq=False)
class CutCall:
    """What a session tells of one invocation. `moved_ns` is by how much its events were moved to
    lie within it, 0 if they did. `new_pages` are those of the session, with one of its calls."""

    found: CallCommands
    commands: CommandColumns
    counters: tuple[Counter, ...]
    moved_ns: int
    new_pages: int = 0


@dataclass(slots=True)
class TracedCall:
    """One range of ours in a session: an invocation, or the host work around invocations. `layer`
    is what its operators outside all modules belong to, "" for each one's own name; `deliver` is
    told what the session has of it, or why it has nothing (`DropReason`); `owner` is who asked.
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
    """What torch has recorded: `results` are Kineto's until they are written, `trace` is what it
    has then written of them (`written`), or why it has not. `start` and `end` are of `pair_clocks`;
    `allocated` the bytes that torch held on each device when the session began. `threads` numbers
    threads by their system's id, `kind` is the accelerator's. `events` is how many host events it
    may have; its thread touched `new_pages`. `follows`: it goes on in the pipeline call of the
    session before it. `levels`, which all share, are the bytes that the last one to be converted
    left allocated, by device."""

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
        """Have Kineto write what it holds, some 4 kB an event, which is then free; once."""
        with self.writing:
            if self.results is not None:
                self.trace = written(self.results)
                self.results = None

    def convert(self) -> None:
        """Cut it, knowing what the session before it left."""
        self.write()
        after = self.cut(self.levels if self.follows else {})
        self.levels.clear()
        self.levels.update(after)

    def recorders(self) -> list[Recorder]:
        """Those that the owners of its calls have, each once."""
        found = [getattr(call.owner, "recorder", None) for call in self.calls]
        return list({id(one): one for one in found if one is not None}.values())

    def cut(self, levels: Mapping[str, int]) -> dict[str, int]:
        """Deliver what it has of each call: why not if it cannot be read, never an error.
        `levels` are the bytes that the session before it left allocated, by device; returns those
        that it leaves."""
        after = {**levels, **self.allocated}
        found: dict[int, CutCall] = {}
        failure = self.trace if isinstance(self.trace, Note) else Note.of(_NOTHING)
        try:
            if self.calls and not isinstance(self.trace, Note):
                found, after = self._read(self.trace, after)
        except (OSError, InputError, RuntimeError):
            failure = Note.of(DropReason.SESSION_UNREADABLE)
        except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
            let_pass(error)
            reason = f"{type(error).__name__}: {error}"
            failure = Note.of(DropReason.SESSION_NOT_CUT, error=reason)
        self.close()
        for call in self.calls:
            call.deliver(found.get(call.number, failure))
        return after

    def close(self) -> None:
        """Let go of what was recorded."""
        self.results = None
        if not isinstance(self.trace, Note):
            self.trace.close()
            self.trace = Note.of(_NOTHING)

    def _read(
        self, file: BinaryIO, before: Mapping[str, int]
    ) -> tuple[dict[int, CutCall], dict[str, int]]:
        """What it has, by the calls' numbers, and the bytes that it leaves allocated."""
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
    """What Kineto writes of its `results`, in a file that has no name any more: it goes with the
    process, however that ends. Why not, if there is none."""
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
    """How many pages of new memory this thread has touched; 0 if the system does not say."""
    thread = getattr(resource, "RUSAGE_THREAD", None)
    return 0 if thread is None else resource.getrusage(thread).ru_minflt


def pair_clocks(clock: Clock) -> tuple[int, int]:
    """CLOCK_REALTIME, in which Kineto counts, and what to add to it to get the run's clock."""
    best_width, best = 1 << 62, (0, 0)
    for _ in range(8):
        before = clock.now_ns()
        realtime = time.time_ns()
        after = clock.now_ns()
        if after - before < best_width:
            best_width, best = after - before, (realtime, (before + after) // 2 - realtime)
    return best


def on_clock(events: TorchEvents, start: tuple[int, int], end: tuple[int, int]) -> TorchEvents:
    """The events on the run's clock: the offset moves evenly from `start` to `end`."""
    elapsed = events.start_ns - start[0]
    drift = np.interp(elapsed, (0, max(end[0] - start[0], 1)), (0, end[1] - start[1]))
    return replace(events, start_ns=events.start_ns + start[1] + np.rint(drift).astype(np.int64))


def misplaced_ns(call: TracedCall, found: CallCommands) -> int:
    """0 where the range lies within its invocation, give or take 50 µs; else what moves it to the
    invocation's start: the wall clock was set while the session ran."""
    early, late = call.begin_ns - found.start_ns, found.end_ns - call.end_ns
    return early if max(early, late) > _SLACK_NS else 0


# --- Marks in the streams of GPUs: CUDA events, of AMD's by that name too.
#
# `torch.cuda.Event`: https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html; times
# lie 0.5 µs apart (`cudaEventElapsedTime`), and are reported in ms as a float of seven digits.


_KIND = "cuda"


@dataclass(frozen=True, slots=True)
class EventMark:
    """A `torch.cuda.Event` that was recorded in a stream."""

    event: Any

    def passed(self) -> bool:
        """Whether all ahead of it is done."""
        return bool(self.event.query())

    def since_ns(self, earlier: Mark) -> int:
        """How long after another event of its device."""
        if not isinstance(earlier, EventMark):
            raise TypeError("a mark of another kind")
        return round(float(earlier.event.elapsed_time(self.event)) * 1e6)


class StreamMarks:
    """Puts marks into this thread's current stream of a GPU, `cuda` being `torch.cuda`. It is not
    used before CUDA has been started, and not while it is captured as a graph: an event would
    become a part of that, and asking for one would spoil it."""

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda

    def ready(self, device: str) -> bool:
        """Whether the device is a GPU whose stream is not being captured."""
        kind, _, index = device.partition(":")
        if kind != _KIND or not index.isdecimal():
            return False
        if self._cuda is None:
            self._cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._cuda is None or not self._cuda.is_initialized():
            return False
        with self._cuda.device(int(index)):
            return not self._cuda.is_current_stream_capturing()

    def mark(self, device: str) -> EventMark:
        """An event behind all that has been launched on the stream."""
        event = self._cuda.Event(enable_timing=True)
        with self._cuda.device(_index(device)):
            event.record()
        return EventMark(event)

    def empty(self, device: str) -> bool:
        """Whether the stream has nothing to do."""
        with self._cuda.device(_index(device)):
            return bool(self._cuda.current_stream().query())


def _index(device: str) -> int:
    return int(device.partition(":")[2])


# --- torch.profiler sessions: torch has one profiler a process, our sources share it.
#
# The first invocation that is traced in a pipeline call starts a session, which records all that
# follow, and what the pipeline does between them: a range of ours around all of them is its host
# work. It is stopped when the pipeline call ends, ahead of a call that is left out, and between
# calls once it has recorded for `LONGEST_S` or would have more than `EVENT_CAP` events. Kineto
# writes what it has when the pipeline rests, but before another session starts, so that no more
# than one's events are in memory; they are cut (`cut`) later (`conversions`).
#
# A session records the thread that started it, and torch stops it on that thread alone. When a
# second thread has asked for one in a pipeline call, further sessions record all threads, and torch
# then tells of no allocations. Such a session is stopped while no other thread runs a pipeline
# call: torch frees what an operator that another thread executes meanwhile would write to.


_NOTICE = (
    "the script's own torch.profiler is running, and torch has one a process: calls that run "
    "meanwhile are recorded without their operators"
)
_OF_A_THREAD = (
    'if torch has just said "External init callback must run in same thread": that is harmless, a '
    "thread was the first to run a model, and nothing is lost"
)
EVENT_CAP = 50_000  # host events of a session, each of which takes 6 kB while torch stops it
LONGEST_S = 4.0  # of one, up to the end of a call: with the wait for its conversion below 10 s


@dataclass(slots=True)
class _HostRange:
    """The range around the invocations of one thread's pipeline call, torch's own object, and the
    number of the session that it was entered in."""

    call: TracedCall
    opened: Any
    session: int


@dataclass(slots=True)
class _Session:
    """A running session. `start` is of `pair_clocks`; `hosts` are the open ranges of host work,
    by thread. `given_up`: nobody wants it any more, its thread is to stop it."""

    profiler: Any
    thread: int
    all_threads: bool
    clock: Clock
    start: tuple[int, int]
    allocated: dict[str, int]
    kind: str
    until: float  # on `time.monotonic`: from then on it is to be stopped
    touched: int  # pages, by its thread, before it started
    expected_events: int = 0
    calls: list[TracedCall] = field(default_factory=list)
    hosts: dict[int, _HostRange] = field(default_factory=dict)
    given_up: bool = False

    def withdraw(self, owner: object) -> None:
        """Deliver nothing to an owner, whose calls it cannot have cut."""
        withdrawn = [call for call in self.calls if call.owner is owner]
        self.calls = [call for call in self.calls if call.owner is not owner]
        self.given_up = not self.calls
        for call in withdrawn:
            call.deliver(Note.of(DropReason.CLOSED_ON_OTHER_THREAD))

    def records(self, thread: int) -> bool:
        """Whether it records what a thread does."""
        return self.all_threads or self.thread == thread

    def in_use(self) -> bool:
        """Whether a pipeline call runs whose host work it records, or a call."""
        return bool(self.hosts) or any(call.end_ns < 0 for call in self.calls)


class Tracing:
    """The sessions of a process, one after the other. `sessions` counts them."""

    def __init__(self) -> None:
        self.sessions = 0
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._session: _Session | None = None
        self._conversions = Conversions(self._resting_since)
        self._held: StoppedSession | None = None  # whose results torch may still hold
        self._running: dict[object, int] = {}  # pipeline calls, and the thread of each
        self._rest = time.monotonic()  # when the last of these, or a session, ended
        self._follows = False  # a session of this pipeline call was stopped
        self._levels: dict[str, int] = {}  # bytes that the last one converted left allocated
        self._several_threads = False
        self._noticed = False
        self._explained = False
        self._starting = False
        self._threads: dict[Scalar, int] = {}

    def begin_pipeline(self, pipeline: object) -> None:
        """A pipeline call starts: nothing is converted beside it, if that can wait. It waits for a
        session that is being stopped."""
        with self._lock:
            self._running[pipeline] = threading.get_ident()

    def end_pipeline(self, pipeline: object) -> None:
        """It has ended."""
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

        `expected_events` is how many events it may have; a session that would have more than `cap`
        is stopped first. `host` makes the range of the host work around this thread's invocations,
        if that is open in no session; with `memory` a new session tells of allocations.
        False if the invocation cannot be traced: another thread's session runs that records that
        thread alone, or a profiler that is not ours.
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
        """Record no more of this thread until its next `begin_call`: the session is stopped if
        no other thread uses it. Returns whether it was."""
        with self._lock:
            before = self._session
            self._end(threading.get_ident())
            return self._session is not before

    def end_session(self) -> bool:
        """The same, at the end of a pipeline call or of a call outside of any."""
        with self._lock:
            stopped = self.pause()
            self._follows = False
            return stopped

    def release(self, owner: object) -> None:
        """Deliver what there is of all calls; the owner asks for nothing more. Those that a session
        of another thread records have nothing: that thread stops it, when it comes here next."""
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
        """In a forked child: all that runs and waits is the parent's.

        torch records the thread that has forked on in the child, if it did so before; it is told
        to stop, but where an accelerator is recorded, too, whose runtime survives no fork.
        """
        session, starting = self._session, self._starting
        self._lock = threading.RLock()
        self._session, self._starting, self._several_threads = None, False, False
        self._conversions.abandon()
        self._conversions, self._running = Conversions(self._resting_since), {}
        self._held = None
        self._follows, self._threads, self._levels = False, {}, {}
        leave_modules()
        if "torch.autograd.profiler" not in sys.modules or not (starting or is_ours()):
            return
        here = session is not None and session.records(threading.get_ident())
        if session is not None and here and not session.profiler.use_device:
            with suppress(Exception):
                session.profiler.__exit__(None, None, None)
        say_running(ours=False)

    def give_way(self) -> None:
        """A profiler of the script's is about to be prepared or started on this thread: stop the
        session, if this thread can; else it is ours no more, and its thread lets go of it."""
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
        """The running session; first that ends which is ours no more, or nobody's."""
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
        """The thread that a session records has ended, and with it what torch had recorded."""
        self._session = None
        for host in session.hosts.values():
            strand(host.opened)
        say_running(ours=False)
        for call in session.calls:
            call.deliver(Note.of(DropReason.THREAD_ENDED))

    def _resting_since(self) -> float | None:
        """Since when no pipeline call has run, and nothing was recorded; None while either is."""
        return None if self._running or self._session is not None else self._rest

    def _elsewhere(self, session: _Session, thread: int) -> bool:
        """Whether another thread that the session records runs a pipeline call."""
        others = {other for other in self._running.values() if other != thread}
        return session.all_threads and not others.isdisjoint(sys._current_frames())  # noqa: SLF001

    def _only_here(self, session: _Session, thread: int) -> bool:
        """Whether no call is open, and no host work or pipeline call but this thread's."""
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
        """Close the host work of a thread; stop the session if nobody uses it any more, and no
        other thread may."""
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
        """Start a session; None if a profiler that is not ours runs."""
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
        """Say what torch means by the line that it prints when it first profiles in a thread."""
        if not self._explained and threading.current_thread() is not threading.main_thread():
            notice(_OF_A_THREAD)
        self._explained = True

    @interrupts_wait()
    def _write_held(self) -> None:
        """Have what the last session recorded written before another one is started."""
        held, self._held = self._held, None
        if held is not None:
            held.write()

    @interrupts_wait()
    def _stop(self, session: _Session) -> None:
        """Stop the running session; what it has recorded is written and read later: when the
        pipeline rests, or another session is started. If the script has started a profiler
        meanwhile, torch has that one, which is left alone."""
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
            except RuntimeError:  # somebody has stopped it: it has no results
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
