"""torch.profiler sessions: torch has one profiler a process, our sources share it.

The first invocation that is traced in a pipeline call starts a session, which records all that
follow, and what the pipeline does between them: a range of ours around all of them is its host
work. It is stopped when the pipeline call ends, ahead of a call that is left out, and between calls
once it has recorded for `LONGEST_S` or would have more than `EVENT_CAP` events. Kineto writes what
it has at once, so that its memory is free; it is cut (`cut`) later (`conversions`).

A session records the thread that started it, and torch stops it on that thread alone. When a
second thread has asked for one in a pipeline call, further sessions record all threads, and torch
then tells of no allocations. Such a session is stopped while no other thread runs a pipeline call:
torch frees what an operator that another thread executes meanwhile would write to.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from profiler.capture.clock import Clock
from profiler.capture.conversions import Conversions
from profiler.capture.interrupts import interrupts_wait
from profiler.capture.notices import notice
from profiler.capture.torch.cut import StoppedSession, TracedCall, pair_clocks, written
from profiler.capture.torch.modules import close_range, leave_modules, open_range
from profiler.capture.torch.profiler import (
    accelerator,
    allocated,
    is_ours,
    is_profiling,
    leave,
    new_profiler,
    running_session,
    say_running,
    started,
    strand,
)
from profiler.capture.torch.ranges import CALL
from profiler.drop_reasons import DropReason
from profiler.kineto.events import Scalar
from profiler.notes import Note

__all__ = ["EVENT_CAP", "LONGEST_S", "Tracing"]

_NOTICE = (
    "the script's own torch.profiler is running, and torch has one a process: calls that run "
    "meanwhile are recorded without their operators"
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
        self._running: dict[object, int] = {}  # pipeline calls, and the thread of each
        self._rest = time.monotonic()  # when the last of these, or a session, ended
        self._follows = False  # a session of this pipeline call was stopped
        self._levels: dict[str, int] = {}  # bytes that the last one converted left allocated
        self._several_threads = False
        self._noticed = False
        self._starting = False
        self._threads: dict[Scalar, int] = {}

    def begin_pipeline(self, pipeline: object) -> None:
        """A pipeline call begins: nothing is converted beside it, if that can wait. It waits for a
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
        where that is open in no session; with `memory` a new session tells of allocations.
        False where the invocation cannot be traced: another thread's session runs that records that
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
        """Close the range of an invocation, on the thread that began it."""
        close_range(f"{CALL}{call.number}")
        call.end_ns = clock.now_ns()

    def pause(self) -> bool:
        """Record no more of this thread until its next `begin_call`: the session is stopped where
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

    def forget(self) -> None:
        """In a forked child: all that runs and waits is the parent's.

        torch records the thread that has forked on in the child, where it did so before; it is told
        to stop, but where an accelerator is recorded, too, whose runtime survives no fork.
        """
        session, starting = self._session, self._starting
        self._lock = threading.RLock()
        self._session, self._starting, self._several_threads = None, False, False
        self._conversions.abandon()
        self._conversions, self._running = Conversions(self._resting_since), {}
        self._follows, self._threads, self._levels = False, {}, {}
        leave_modules()
        if "torch.autograd.profiler" not in sys.modules or not (starting or is_ours()):
            return
        here = session is not None and session.records(threading.get_ident())
        if session is not None and here and not session.profiler.use_device:
            with suppress(Exception):
                session.profiler.__exit__(None, None, None)
        say_running(ours=False)

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
        """Close the host work of a thread; stop the session where nobody uses it any more, and no
        other thread may."""
        session = self._session
        if session is None or not session.records(thread):
            return
        host = session.hosts.pop(thread, None)
        if host is not None:
            leave(host.opened, host.session)
            host.call.end_ns = session.clock.now_ns()
        used = session.in_use() or self._elsewhere(session, thread)
        if not session.all_threads or not used:
            self._stop(session)

    def _start(self, clock: Clock, *, memory: bool) -> _Session | None:
        """Start a session; None where a profiler that is not ours runs."""
        if is_profiling():
            if not self._noticed:
                self._noticed = True
                notice(_NOTICE)
            return None
        profiler = new_profiler(all_threads=self._several_threads, memory=memory)
        self._starting = True
        running = started(profiler)
        if running:
            say_running(ours=True)
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
        )
        self.sessions += 1
        return self._session

    @interrupts_wait()
    def _stop(self, session: _Session) -> None:
        """Stop the running session, and have written what it has recorded, which is read later.
        Where the script has started a profiler meanwhile, torch has that one, which is left
        alone."""
        self._session, self._rest = None, time.monotonic()
        end = pair_clocks(session.clock)
        for host in session.hosts.values():  # of other threads, which are interrupted
            host.call.end_ns = session.clock.now_ns()
            if not is_ours():
                strand(host.opened)
        if is_ours():
            try:
                session.profiler.__exit__(None, None, None)
            except RuntimeError:  # somebody has stopped it: it has no results
                say_running(ours=False)
        trace = written(session.profiler.kineto_results)
        session.profiler.kineto_results = None
        self._conversions.put(
            StoppedSession(
                trace,
                session.start,
                end,
                session.allocated,
                session.calls,
                dict(self._threads),
                session.kind,
                session.expected_events,
                self._follows,
                self._levels,
            )
        )
        self._follows = True
