"""Writes calls to disk during the run: a journal line immediately, their files later.

    writer = CallWriter(bundle)
    writer.note(invocation, awaits_operators=False)   # on the thread that ran it: some µs
    writer.put(OperatorTrace(invocation, commands, counters))
    writer.put_call(invocation)   # one without operators: nothing ever waits for its file
    writer.put_host(commands)          # of no call
    writer.flush()                     # a pipeline call has ended
    writer.finish()                    # the run has
    writer.write_host(spans)

A file takes some 0.1 ms of Python, which would compete with the pipeline for cores and the
interpreter. So the writing thread sleeps while a pipeline call runs, until the queue is half full.
If the queue is full, `put` waits, which `backpressure_ns` counts.

The journal has all data of calls without operators: their files are written while no pipeline call
runs, in at most a fiftieth of the time, and the rest at the end of the run.

Nothing here takes a Python lock, so a signal handler can end the run at any point.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import numpy as np

from profiler.capture.calls import Invocation
from profiler.capture.host_work import HostPieces
from profiler.capture.operator_source import OperatorSource, OperatorTrace, SizeLimit
from profiler.errors import OutputError
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.bundle import BundleWriter, Journal
from profiler.trace.columns import CommandBuilder, CommandColumns, Counter
from profiler.trace.events import UNKNOWN, Drop, DropKind, DropReason, Span

QUEUE_LIMIT = 256  # calls that wait to be written
_NAP_S = 0.0005
_DUTY = 0.02  # share of the time spent on writing calls without operators
_LARGEST_RATIO = 1e12
_LONG_S = 0.05  # until the thread looks again whether the pipeline is at rest


@dataclass(frozen=True, slots=True)
class _Failure:
    """A call file that could not be written, its number of commands, and the reason."""

    file: str
    commands: int
    reason: str


class _Indices(Set[int]):
    """A dense set of numbers from 0 on: one byte each."""

    def __init__(self) -> None:
        self._there = bytearray()

    def add(self, index: int) -> None:
        """Add a number."""
        if index >= len(self._there):
            self._there.extend(bytes(index + 1 - len(self._there)))
        self._there[index] = 1

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and 0 <= index < len(self._there) and self._there[index] == 1

    def __iter__(self) -> Iterator[int]:
        return (index for index, there in enumerate(self._there) if there)

    def __len__(self) -> int:
        return sum(self._there)


class CallWriter:
    """Writes the call files of one bundle on a thread of its own.

    `written` has the indices of the calls whose files exist. An error in writing never reaches the
    pipeline: it is in `drops()`. `nap` waits while the queue is full; `resting` returns whether no
    pipeline call is running. Beyond `limit_size`, calls are written without operators.
    """

    def __init__(
        self,
        bundle: BundleWriter,
        *,
        limit: int = QUEUE_LIMIT,
        nap: Callable[[float], None] = time.sleep,
        resting: Callable[[], bool] = lambda: True,
        limit_size: SizeLimit | None = None,
    ) -> None:
        self.written = _Indices()
        self.writing_ns = 0  # while the thread worked
        self.journal = Journal.create(bundle.directory)
        self._bundle = bundle
        self._nothing = CommandBuilder().build()
        self._limit = limit
        self._nap = nap
        self._resting = resting
        self._waits: list[int] = []
        self._size = limit_size or SizeLimit()
        self._failed: dict[int, _Failure] = {}
        self._unread: list[Drop] = []
        self._host = HostPieces(bundle)
        self._items: SimpleQueue[OperatorTrace | CommandColumns] = SimpleQueue()
        self._bare: SimpleQueue[Invocation] = SimpleQueue()  # calls without operators
        self._trickling = False  # whether the thread writes these now and then
        self._wake: SimpleQueue[bool] = SimpleQueue()  # False: one last time
        self._thread = threading.Thread(target=self._work, name="profile-sd3", daemon=True)
        with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
            self._thread.start()

    @property
    def backpressure_ns(self) -> int:
        """Total time in ns that threads of the pipeline waited in `put` because the queue was
        full."""
        return sum(self._waits)

    def note(self, invocation: Invocation, *, awaits_operators: bool) -> None:
        """Write a returned call to the journal, from which `merge` reads it if its file is
        missing."""
        self.journal.add(invocation.as_call(), awaits_operators=awaits_operators)

    def put(self, trace: OperatorTrace) -> None:
        """Queue a call's file for writing; waits while the queue is full."""
        self._put(trace)

    def put_host(self, commands: CommandColumns) -> None:
        """Queue commands outside calls for writing; waits while the queue is full."""
        self._put(commands)

    def _put(self, item: OperatorTrace | CommandColumns) -> None:
        if not self._thread.is_alive():
            self._write(item)
            return
        if self._items.qsize() >= self._limit:
            self._wait()
        self._items.put(item)
        if self._items.qsize() >= max(self._limit // 2, 1):
            self._wake.put(True)

    def put_call(self, invocation: Invocation) -> None:
        """Queue the file of a call without operators, written eventually: see `write_rest`."""
        self._bare.put(invocation)
        if not self._trickling and invocation.pipeline is None:
            self._trickling = True
            self._wake.put(True)

    def put_rest(self, source: OperatorSource, submodule: str) -> None:
        """Queue all that a source still has, at the end of the run. If reading it fails, the
        submodule's operators are lost, which `drops()` reports, and nothing else."""
        try:
            for trace in source.traces():
                self.put(trace)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            detail = Note.of(DropReason.OPERATORS_UNREADABLE, error=str(error))
            self._unread.append(Drop(DropKind.UNTRACED_CALL, submodule, UNKNOWN, "calls", detail))

    def flush(self) -> None:
        """Start to write the queue on the thread now."""
        if not (self._items.empty() and self._bare.empty()):
            self._wake.put(True)

    def finish(self) -> None:
        """Write the queue, except calls without operators, and end the thread."""
        if self._thread.is_alive():
            self._wake.put(False)
            self._thread.join()
        self._drain()

    def write_rest(self, invocations: Iterable[Invocation]) -> None:
        """Write the calls that have no file yet, without operators, on this thread; after `finish`.
        Files that cannot be written are tried once more at the end."""
        rest = [invocation for invocation in invocations if invocation.index not in self.written]
        for invocation in rest:
            self._write(OperatorTrace(invocation, self._nothing, ()))
        for invocation in rest:
            if invocation.index in self._failed:
                self._write(OperatorTrace(invocation, self._nothing, ()))

    def write_host(self, spans: Iterable[Span]) -> None:
        """Write `host.pb` with these spans and the commands outside calls; after `finish`. Raises
        OutputError."""
        self._host.write(spans)

    def drops(self) -> Iterator[Drop]:
        """The operators or whole calls that could not be read or written, as drops."""
        yield from self._unread
        yield from self._host.drops()
        for index, failure in self._failed.items():
            detail = Note.of(DropReason.ERROR, error=failure.reason)
            if index not in self.written:
                yield Drop(DropKind.MISSING_FILE, failure.file, 1, "files", detail)
            elif failure.commands:
                count = failure.commands
                yield Drop(DropKind.DROPPED_EVENTS, failure.file, count, "events", detail)

    def error(self) -> OutputError | None:
        """Why calls are missing in the bundle, in one sentence, or None."""
        missing = [f.reason for index, f in self._failed.items() if index not in self.written]
        if not missing:
            return None
        calls = "1 call is" if len(missing) == 1 else f"{len(missing):,} calls are"
        return OutputError(f"{calls} missing in {self._bundle.directory}: {missing[0]}")

    def _wait(self) -> None:
        begin = time.perf_counter_ns()
        while self._items.qsize() >= self._limit and self._thread.is_alive():
            self._nap(_NAP_S)
        self._waits.append(time.perf_counter_ns() - begin)

    def _work(self) -> None:
        pause_s: float | None = None
        while True:
            try:
                go_on = self._wake.get(timeout=pause_s)
            except Empty:
                go_on = True
            begin = time.perf_counter_ns()
            self._drain()
            pause_s = self._trickle() if go_on else None
            self.writing_ns += time.perf_counter_ns() - begin
            if not go_on:
                return

    def _trickle(self) -> float | None:
        """Write one call without operators if no pipeline call is running. Returns the s until the
        next one is due, None if there is none, or all wait for a device time or a branch."""
        if not self._resting():
            return _LONG_S
        begin = time.perf_counter_ns()
        self._trickling, waiting = True, self._bare.qsize()
        for _ in range(waiting):
            invocation = self._bare.get_nowait()  # no other thread takes from it
            if not (invocation.noting or invocation.branch_open):
                self._write(OperatorTrace(invocation, self._nothing, ()))
                return (time.perf_counter_ns() - begin) / _DUTY * 1e-9
            self._bare.put(invocation)
        self._trickling = False
        return None if self._bare.qsize() == waiting else _LONG_S

    def _drain(self) -> None:
        while True:
            try:
                item = self._items.get_nowait()
            except Empty:
                return
            self._write(item)

    def _write(self, item: OperatorTrace | CommandColumns) -> None:
        if isinstance(item, CommandColumns):
            self._host.add(item)
        else:
            self._write_call(item)

    def _write_call(self, trace: OperatorTrace) -> None:
        call = trace.invocation.as_call()
        if call.index < 0 or call.index in self.written:
            return  # it was interrupted while it ended; a file is never overwritten
        commands, counters = trace.commands, trace.counters
        if self._size.reached and len(commands):
            commands, counters = self._nothing, ()
            trace.invocation.ops_traced = False
            self._size.lost(trace.invocation)
            call = trace.invocation.as_call()
        try:
            counters = (*counters, *_ratio(trace.invocation))
            self._bundle.write_call(call, commands, counters)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            failure = _Failure(call.file_name, len(commands), str(error))
            self._failed.setdefault(call.index, failure)
            trace.invocation.ops_traced = False
        else:
            self.written.add(call.index)
            self._size.wrote(self._bundle.written_bytes)


def _ratio(invocation: Invocation) -> tuple[Counter, ...]:
    """The counter of FirstBlockCache's residual ratio, which it compares with its threshold, at the
    call's end."""
    ratio = None if invocation.skipped is None else invocation.skipped.residual_ratio
    if ratio is None or not 0 <= ratio < _LARGEST_RATIO:
        return ()
    name = f"{invocation.submodule} residual ratio (millionths)"
    times, values = np.array([invocation.end_ns]), np.array([round(ratio * 1e6)])
    return (Counter(invocation.device, name, "count", times, values),)
