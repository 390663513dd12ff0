"""torch.profiler sessions: torch has one profiler a process, our sources share it.

The first invocation that is traced in a pipeline call starts a session, and the pipeline call's
end stops it and cuts it (`torch_cut`). What the pipeline does between invocations is recorded,
too: a range of ours around all of them is its host work. Ahead of a call that is left out the
session is stopped; it is cut with the others, when the pipeline call ends or before they outgrow
their memory: a host event takes 6 kB until it is cut (torch 2.13).

A session records the thread that started it. When a second thread has asked for one, further
sessions record all threads, until the last of them has ended; torch then tells of no allocations.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from profiler.capture.clock import Clock
from profiler.capture.notices import notice
from profiler.capture.torch_cut import StoppedSession, TracedCall, pair_clocks
from profiler.capture.torch_modules import close_range, open_range
from profiler.capture.torch_ranges import CALL
from profiler.kineto.trace_file import Scalar

__all__ = ["EVENT_CAP", "Tracing", "accelerator", "is_profiling", "new_profiler", "quiet"]

_OURS = 1  # torch's flag while our session runs; a profiler of the script's sets it to True
_NOTICE = (
    "the script's own torch.profiler is running, and torch has one a process: calls that run "
    "meanwhile are recorded without their operators"
)
EVENT_CAP = 200_000  # host events that are not yet cut: 1.2 GB
_LOG_LEVEL, _QUIET = "KINETO_LOG_LEVEL", "6"


@dataclass(slots=True)
class _HostRange:
    """The range around the invocations of one thread's pipeline call, and torch's own object."""

    call: TracedCall
    opened: Any


@dataclass(slots=True)
class _Session:
    """A running session. `start` is of `pair_clocks`; `hosts` are the open ranges of host work,
    by thread."""

    profiler: Any
    thread: int
    all_threads: bool
    clock: Clock
    start: tuple[int, int]
    allocated: dict[str, int]
    kind: str
    expected_events: int = 0
    calls: list[TracedCall] = field(default_factory=list)
    hosts: dict[int, _HostRange] = field(default_factory=dict)

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
        self._stopped: list[StoppedSession] = []
        self._stopped_events = 0
        self._several_threads = False
        self._noticed = False
        self._threads: dict[Scalar, int] = {}

    def begin_call(
        self,
        call: TracedCall,
        clock: Clock,
        expected_events: int,
        cap: int = EVENT_CAP,
        host: Callable[[], TracedCall] | None = None,
    ) -> bool:
        """Open the range of an invocation on this thread, in the running session or a new one.

        `expected_events` is how many events it may have; sessions that would have more than `cap`
        are cut first. `host` makes the range of the host work around this thread's invocations,
        where that is open in no session. False where the invocation cannot be traced: another
        thread's session runs that records that thread alone, or a profiler that is not ours.
        """
        thread = threading.get_ident()
        with self._lock:
            session = self._session
            if session is not None and not _is_ours():
                self._stop(session)
                session = None
            if session is not None and not session.records(thread):
                self._several_threads = True
                return False
            self._threads.setdefault(threading.get_native_id(), len(self._threads) + 1)
            waiting = self._stopped_events + (session.expected_events if session else 0)
            if waiting + expected_events > cap and self._only_here(session, thread):
                self._end(thread)
                self._cut()
            session = self._session or self._start(clock)
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

    def end_session(self, *, of_any_thread: bool = False) -> None:
        """Record no more of this thread, or of any; deliver the calls of what has been stopped."""
        with self._lock:
            self._end(threading.get_ident())
            if of_any_thread and self._session is not None:
                self._stop(self._session)
            self._cut()

    def _only_here(self, session: _Session | None, thread: int) -> bool:
        """Whether no call is open, and no host work of another thread."""
        if session is None:
            return True
        return session.hosts.keys() <= {thread} and all(c.end_ns >= 0 for c in session.calls)

    def _open_host(self, call: TracedCall, session: _Session) -> _HostRange:
        from torch._C._profiler import _RecordFunctionFast

        call.number = next(self._numbers)
        call.begin_ns = session.clock.now_ns()
        session.calls.insert(0, call)
        opened = _RecordFunctionFast(f"{CALL}{call.number}")
        opened.__enter__()
        return _HostRange(call, opened)

    def _end(self, thread: int) -> None:
        """Close the host work of a thread; stop the session where nobody uses it any more."""
        session = self._session
        if session is None or not session.records(thread):
            return
        host = session.hosts.pop(thread, None)
        if host is not None:
            host.opened.__exit__(None, None, None)
            host.call.end_ns = session.clock.now_ns()
        if not session.all_threads or not session.in_use():
            self._stop(session)

    def _start(self, clock: Clock) -> _Session | None:
        import torch.autograd.profiler as torch_profiler

        if is_profiling():
            if not self._noticed:
                self._noticed = True
                notice(_NOTICE)
            return None
        profiler = new_profiler(all_threads=self._several_threads)
        with quiet():
            profiler.__enter__()
        torch_profiler._is_profiler_enabled = _OURS  # noqa: SLF001
        self._session = _Session(
            profiler,
            threading.get_ident(),
            self._several_threads,
            clock,
            pair_clocks(clock),
            _allocated(),
            accelerator() or "cuda",
        )
        self.sessions += 1
        return self._session

    def _stop(self, session: _Session) -> None:
        """Stop the running session; what it has recorded is read later. Where the script has
        started a profiler meanwhile, torch has that one, which is left alone."""
        self._session = None
        end = pair_clocks(session.clock)
        for host in session.hosts.values():  # of other threads, which are interrupted
            host.call.end_ns = session.clock.now_ns()
        if _is_ours():
            session.profiler.__exit__(None, None, None)
        self._stopped_events += session.expected_events
        self._stopped.append(
            StoppedSession(
                session.profiler.kineto_results,
                session.start,
                end,
                session.allocated,
                session.calls,
                dict(self._threads),
                session.kind,
            )
        )

    def _cut(self) -> None:
        """Deliver the calls of the sessions that were stopped."""
        stopped, self._stopped, self._stopped_events = self._stopped, [], 0
        levels: dict[str, int] = {}
        for session in stopped:
            levels = session.cut(levels)


def _is_ours() -> bool:
    """Whether what torch is recording now is our session."""
    import torch.autograd.profiler as torch_profiler

    return torch_profiler._is_profiler_enabled is _OURS  # noqa: SLF001


def is_profiling() -> bool:
    """Whether any profiler of torch is running."""
    import torch.autograd.profiler as torch_profiler

    return bool(torch_profiler._is_profiler_enabled)  # noqa: SLF001 - there is no public question


def accelerator() -> str | None:
    """torch's name of the accelerator whose work a session records, None without one."""
    import torch

    return next((kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_available()), None)


def new_profiler(*, all_threads: bool = False) -> Any:
    """torch.autograd's profiler. torch.profiler's, which wraps it, imports torch's compiler when
    it starts: 800 modules, 2 s."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    return profile(
        use_device=accelerator(),
        use_kineto=True,
        record_shapes=True,
        profile_memory=True,
        experimental_config=_ExperimentalConfig(profile_all_threads=all_threads),
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Kineto prints two lines a session in torch 2.13, unless told not to before its first."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _QUIET
    try:
        yield
    finally:
        del os.environ[_LOG_LEVEL]


def _allocated() -> dict[str, int]:
    """What torch's allocators hold on CUDA devices now, bytes by device."""
    import torch

    if not torch.cuda.is_available():
        return {}
    return {f"cuda:{i}": torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count())}
