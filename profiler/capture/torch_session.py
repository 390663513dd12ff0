"""torch.profiler sessions: torch has one profiler a process, our sources share it.

The first invocation that is traced in a pipeline call starts a session, and the pipeline call's
end stops it and cuts it into invocations. A session that could outgrow its memory is renewed
between two invocations: a host event takes 6 kB until it is cut (torch 2.13).

A session records the thread that started it. When a second thread has asked for one, further
sessions record all threads; torch then tells of no allocations.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from profiler.capture.clock import Clock
from profiler.capture.torch_commands import CallCommands, find_commands
from profiler.capture.torch_events import TorchEvents, read_events
from profiler.capture.torch_memory import device_memory
from profiler.capture.torch_modules import close_range, open_range
from profiler.capture.torch_ranges import CALL
from profiler.trace.columns import CommandColumns, Counter

__all__ = ["EVENT_CAP", "CutCall", "TracedCall", "Tracing", "misplaced_ns", "on_clock"]

EVENT_CAP = 200_000  # host events of a session: 1.2 GB
_LOG_LEVEL, _QUIET = "KINETO_LOG_LEVEL", "6"
_SLACK_NS = 50_000  # by which a range may lie outside its invocation


@dataclass(frozen=True, slots=True, eq=False)
class CutCall:
    """What a session tells of one invocation. `moved_ns` is by how much its events were moved to
    lie within it, 0 where they did."""

    found: CallCommands
    commands: CommandColumns
    counters: tuple[Counter, ...]
    moved_ns: int


@dataclass(slots=True)
class TracedCall:
    """One invocation in a session. `layer` is what its operators outside all modules belong to;
    `deliver` is told when the session has ended, of None where that has no events of it."""

    layer: str
    deliver: Callable[[CutCall | None], None]
    number: int = -1
    begin_ns: int = -1
    end_ns: int = -1


@dataclass(slots=True)
class _Session:
    """A running session. `start` is a pair of `_paired`, `levels` the bytes that torch held on
    each device when it began."""

    profiler: Any
    thread: int
    all_threads: bool
    clock: Clock
    start: tuple[int, int]
    levels: dict[str, int]
    expected_events: int = 0
    calls: list[TracedCall] = field(default_factory=list)


class Tracing:
    """The sessions of a process, one after the other."""

    def __init__(self) -> None:
        self.sessions = 0
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._session: _Session | None = None
        self._several_threads = False

    def begin_call(
        self, call: TracedCall, clock: Clock, expected_events: int, cap: int = EVENT_CAP
    ) -> bool:
        """Open the range of an invocation on this thread, in the running session or a new one.

        `expected_events` is how many events it may have; a session that would have more than
        `cap` is renewed. False where it cannot be traced: another thread's session runs that
        records that thread alone, or a profiler that is not ours.
        """
        thread = threading.get_ident()
        with self._lock:
            session = self._session
            if session is not None and session.thread != thread and not session.all_threads:
                self._several_threads = True
                return False
            if session is not None and session.thread == thread:
                full = session.expected_events + expected_events > cap
                if full and all(other.end_ns >= 0 for other in session.calls):
                    session = self._start(clock, self._stop())
            if session is None:
                session = self._start(clock, {})
            if session is None:
                return False
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

    def end_session(self, *, of_any_thread: bool = False) -> None:
        """Stop the session of this thread, if there is one, and deliver its invocations."""
        with self._lock:
            session = self._session
            if session is not None and (of_any_thread or session.thread == threading.get_ident()):
                self._stop()

    def _start(self, clock: Clock, levels: dict[str, int]) -> _Session | None:
        import torch.autograd.profiler as torch_profiler

        if torch_profiler._is_profiler_enabled:  # noqa: SLF001 - there is no public question
            return None
        profiler = _new_profiler(all_threads=self._several_threads)
        with _quiet():
            profiler.__enter__()
        thread, paired = threading.get_ident(), _paired(clock)
        self._session = _Session(
            profiler, thread, self._several_threads, clock, paired, {**levels, **_allocated()}
        )
        self.sessions += 1
        return self._session

    def _stop(self) -> dict[str, int]:
        """Stop the running session; returns the bytes that torch then held, by device."""
        session, self._session = self._session, None
        assert session is not None
        end = _paired(session.clock)
        session.profiler.__exit__(None, None, None)
        results = session.profiler.kineto_results
        session.profiler = None
        if results is None:
            return _deliver(session, TorchEvents.of(()))
        return _deliver(session, on_clock(read_events(results), session.start, end))


def _new_profiler(*, all_threads: bool) -> Any:
    """torch.autograd's profiler. torch.profiler's, which wraps it, imports torch's compiler when
    it starts: 800 modules, 2 s."""
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    device = next((kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_available()), None)
    config = _ExperimentalConfig(
        profile_all_threads=all_threads,
        expose_kineto_event_metadata=device is not None,  # the bytes of copies
    )
    return profile(
        use_device=device,
        use_kineto=True,
        record_shapes=True,
        profile_memory=True,
        experimental_config=config,
    )


@contextmanager
def _quiet() -> Iterator[None]:
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


def _paired(clock: Clock) -> tuple[int, int]:
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


def _deliver(session: _Session, events: TorchEvents) -> dict[str, int]:
    """Give every invocation of the session its commands and counters; returns the levels."""
    closed = {call.number: call for call in session.calls if call.end_ns >= 0}
    found = find_commands(events, {number: call.layer for number, call in closed.items()})
    memory = device_memory(events, session.levels)
    for call in session.calls:
        commands = found.pop(call.number, None)
        if commands is None:
            call.deliver(None)
            continue
        moved = misplaced_ns(call, commands)
        columns = commands.build()
        counters = [series.between(commands.start_ns, commands.end_ns) for series in memory]
        call.deliver(
            CutCall(
                found=commands,
                commands=replace(columns, start_ns=columns.start_ns + moved),
                counters=tuple(replace(c, times_ns=c.times_ns + moved) for c in counters),
                moved_ns=moved,
            )
        )
    return session.levels | {series.device: series.after for series in memory}


def misplaced_ns(call: TracedCall, found: CallCommands) -> int:
    """0 where the range lies within its invocation, give or take 50 µs; else what moves it to the
    invocation's begin: the wall clock was set while the session ran."""
    early, late = call.begin_ns - found.start_ns, found.end_ns - call.end_ns
    return early if max(early, late) > _SLACK_NS else 0
