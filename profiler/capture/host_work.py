"""Host work of a pipeline: commands outside submodule calls, converted when idle.

    conversions = Conversions(resting_since)
    conversions.put(session)          # on the thread that stopped it; converts nothing
    conversions.drain()               # converts all that waits, on this thread

Conversion takes 12 µs of Python per event, so it waits until the pipeline rests. Waiting
sessions are on disk, about 0.4 kB per event.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.capture.calls import HostCommands, HostWork, OwnWork, PipelineCall
from profiler.capture.imports import interrupts_wait
from profiler.capture.recorder import Recorder
from profiler.files import FORKS_WAIT
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.bundle import HOST_NAME, BundleWriter
from profiler.trace.columns import (
    CommandBuilder,
    CommandColumns,
    Int32s,
    Int64s,
    join_commands,
    take_commands,
)
from profiler.trace.events import (
    HOST_TRACK,
    NO_PIPELINE,
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    STAGES,
    Drop,
    DropKind,
    DropReason,
    Span,
    Track,
)

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# --- Recordings of a runtime's profiler become commands while the pipeline rests.
#
# While the 12 µs per event are spent, no other thread runs Python: next to a pipeline, that would
# slow it down. So the converting thread waits until nothing has been recorded for `_LINGER_S`. What
# has waited for `_LONGEST_S` is converted anyway, so that a killed process loses no more.


EVENT_LIMIT = 2_000_000  # in waiting sessions: 0.8 GB of disk
SESSION_LIMIT = 64  # waiting, each with an open file; at most an eighth of those allowed
_LINGER_S = 0.2  # of rest, until the thread starts
_LONGEST_S = 4.0  # that a session waits at most


class Stopped(Protocol):
    """A profiler's session that has been stopped; `events` is how many it may have."""

    @property
    def events(self) -> int:
        """The most events that it may contain."""

    def convert(self) -> None:
        """Pass on the commands of each call, or why it has none; never raises."""

    def recorders(self) -> Sequence[Recorder]:
        """The recorders of the runs whose calls it has recorded."""

    def close(self) -> None:
        """Release its files, unconverted."""


def _open_files() -> int:
    """The maximum number of files that the process may have open."""
    if resource is None:
        return 8 * SESSION_LIMIT
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 8 * SESSION_LIMIT if most == resource.RLIM_INFINITY else most


class Conversions:
    """Converts sessions in the order in which they were stopped, one at a time.

    `resting_since` returns the `time.monotonic` since which nothing is recorded, None while
    something is. The recorders of a session are notified when it has been converted, with the time
    that took.
    """

    def __init__(
        self,
        resting_since: Callable[[], float | None],
        *,
        now: Callable[[], float] = time.monotonic,
        events: int = EVENT_LIMIT,
        sessions: int = SESSION_LIMIT,
    ) -> None:
        self._resting_since = resting_since
        self._now = now
        self._most = events, min(sessions, _open_files() // 8)
        self._waiting: deque[tuple[float, Stopped]] = deque()
        self._converting = threading.RLock()  # one conversion at a time
        self._changing = threading.RLock()  # the queue, and the thread
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, session: Stopped) -> None:
        """Have a session converted later; now, on this thread, if too much waits."""
        with self._changing:
            self._waiting.append((self._now(), session))
            events, sessions = self._most
            waiting = list(self._waiting)  # the thread may take one meanwhile
            full = len(waiting) > sessions or sum(s.events for _, s in waiting) > events
            if not full and self._thread is None:
                self._thread = self._started()
            alone = self._thread is None
        if full or alone:
            self.drain()
        else:
            self._wake.put(None)

    @interrupts_wait()
    def drain(self, *, tell: bool = True) -> None:
        """Convert all waiting sessions; also waits for the one being converted. Without `tell` the
        recorders are not notified: the caller takes all results anyway."""
        while self._convert_next(tell=tell):
            pass
        self._wake.put(None)

    def abandon(self) -> None:
        """Drop all waiting sessions, in a forked child: they are the parent's."""
        while self._waiting:
            self._waiting.popleft()[1].close()
        self._wake.put(None)

    def pause_s(self) -> float | None:
        """The time in s until the first waiting session is due, 0 if it is due, None if none
        waits."""
        try:
            put, _ = self._waiting[0]
        except IndexError:
            return None
        now, since = self._now(), self._resting_since()
        latest = put + _LONGEST_S
        due = latest if since is None else min(latest, max(since, put) + _LINGER_S)
        return max(due - now, 0.0)

    def _started(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._work, name="profile-sd3-convert", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down
            return None
        return thread

    def _work(self) -> None:
        """Convert on this thread until no session waits."""
        with FORKS_WAIT:  # a child would wait forever for an import that a fork cuts short
            import numpy.ma  # noqa: F401 - as `numpy.unique` does
        while True:
            pause = self.pause_s()
            if pause == 0.0:
                self._convert_next()
            elif pause is not None:
                with suppress(Empty):
                    self._wake.get(timeout=pause)
            else:
                with self._changing:
                    if not self._waiting:
                        self._thread = None
                        return

    def _convert_next(self, *, tell: bool = True) -> bool:
        with self._converting:
            try:
                _, session = self._waiting.popleft()
            except IndexError:
                return False
            recorders = session.recorders()
            begun = [(recorder, recorder.clock.now_ns()) for recorder in recorders]
            session.convert()
            for recorder, begin_ns in begun:
                recorder.add_own_work(OwnWork.CONVERT, begin_ns, recorder.clock.now_ns())
        for recorder in recorders if tell else ():
            recorder.converted()
        return True


# --- Commands outside calls: what the pipeline itself does between its submodules' calls.
#
# A run may have any number of pipeline calls. Their commands are placed in stages and steps as each
# one ends, and written in pieces, so that no more than a piece is in memory.


PIECE_LIMIT = 2_000  # commands of a piece; its texts and descriptions take some 2 KB
_MOST_WAITING = 64  # parts of a piece: each takes 2 KB, however few commands it has
_HOST = Track(ROOT_DEVICE, HOST_TRACK, "host")
_EARLIER_NS = 1_000_000_000  # by how much calls of several threads may be out of order
_Found = TypeVar("_Found", HostCommands, HostWork)


class HostPieces:
    """Writes the commands outside calls to `host.pb`. A piece that cannot be written is a drop."""

    def __init__(self, bundle: BundleWriter, limit: int = PIECE_LIMIT) -> None:
        self._bundle = bundle
        self._limit = limit
        self._waiting: list[CommandColumns] = []
        self._numbers: dict[str, int] = {}  # of the next command of each layer
        self._lost: dict[str, int] = {}  # commands that could not be written, by reason

    def add(self, commands: CommandColumns) -> None:
        """Add commands, and write a piece of `host.pb` once there are enough."""
        self._waiting.append(commands)
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting = [join_commands(self._waiting)]
        if sum(map(len, self._waiting)) < self._limit:
            return
        piece = self._joined()
        try:
            self._bundle.add_host(piece, ROOT_DEVICE)
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            self._lost[str(error)] = self._lost.get(str(error), 0) + len(piece)

    def write(self, spans: Iterable[Span]) -> None:
        """Write the rest of `host.pb`. Raises OutputError."""
        self._bundle.write_host(spans, self._joined(), ROOT_DEVICE)

    def drops(self) -> Iterator[Drop]:
        """The commands that could not be written, as drops."""
        for reason, count in self._lost.items():
            detail = Note.of(DropReason.ERROR, error=reason)
            yield Drop(DropKind.DROPPED_EVENTS, HOST_NAME, count, "events", detail)

    def _joined(self) -> CommandColumns:
        """Join the waiting commands and number them on from the pieces before."""
        columns = join_commands(self._waiting)
        self._waiting = []
        counts = np.bincount(columns.layer, minlength=len(columns.strings))
        first = np.array([self._numbers.get(text, 0) for text in columns.strings], dtype=np.int32)
        for code in np.flatnonzero(counts).tolist():
            self._numbers[columns.strings[code]] = int(first[code] + counts[code])
        return replace(columns, command_index=columns.command_index + first[columns.layer])


def take_host_commands(recorder: Recorder, *, all_left: bool = False) -> list[CommandColumns]:
    """Take the host work and commands of ended pipeline calls from the recorder, or of all, per
    pipeline call."""
    work: dict[PipelineCall | None, CommandBuilder] = {}
    for piece in _taken(recorder.host_work, all_left):
        duration_ns = piece.end_ns - piece.start_ns
        builder = work.setdefault(piece.pipeline, CommandBuilder())
        builder.add(_HOST, piece.name, "", piece.start_ns, duration_ns)
    found = [place_commands(builder.build(), pipeline) for pipeline, builder in work.items()]
    for host in _taken(recorder.host_commands, all_left):
        calls = _calls_of(host.pipeline, recorder)
        found.append(place_commands(host.commands, host.pipeline, calls))
    return found


def place_commands(
    columns: CommandColumns,
    pipeline: PipelineCall | None,
    calls: Sequence[tuple[int, int]] = (),
) -> CommandColumns:
    """The commands, with the stage and step of their pipeline call at their launch. Those launched
    inside one of `calls` (start and end in ns) are left out: they are work of that call, which is
    untraced."""
    launched = columns.start_ns.copy()
    launched[columns.flows[:, 1]] = columns.start_ns[columns.flows[:, 0]]
    outside = np.flatnonzero(~_inside(launched, calls))
    taken, launched = take_commands(columns, outside), launched[outside]
    if pipeline is None or pipeline.end_ns < 0:
        stage = np.zeros(len(taken), dtype=np.int32)
        step = np.full(len(taken), NO_STEP, dtype=np.int32)
    else:
        borders = np.array(pipeline.stage_borders_ns(), dtype=np.int64)
        nth = np.searchsorted(borders, launched, side="right")
        if pipeline.is_run:
            nth[:] = len(STAGES)
        stage = (nth + len(taken.strings)).astype(np.int32)
        step = _steps(launched, pipeline)
    number = NO_PIPELINE if pipeline is None else pipeline.number
    return replace(
        taken,
        strings=(*taken.strings, *STAGES, RUN_STAGE),
        stage=stage,
        step=step,
        pipeline=np.full(len(taken), number, dtype=np.int32),
    )


def _inside(times_ns: Int64s, calls: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """A mask of the times that are inside a call."""
    if not calls:
        return np.zeros(len(times_ns), dtype=bool)
    begin_ns, end_ns = np.array(sorted(calls), dtype=np.int64).T
    before = np.searchsorted(begin_ns, times_ns, side="right") - 1
    inside: npt.NDArray[np.bool_] = (before >= 0) & (times_ns < end_ns[before])
    return inside


def _steps(times_ns: Int64s, pipeline: PipelineCall) -> Int32s:
    """The step of each time, `NO_STEP` outside the denoising loop."""
    numbers = [step for step, _ in pipeline.step_ends_ns]
    ends_ns = np.array([end for _, end in pipeline.step_ends_ns], dtype=np.int64)
    steps = np.array([*numbers, NO_STEP], dtype=np.int32)[
        np.searchsorted(ends_ns, times_ns, side="right")
    ]
    steps[times_ns < pipeline.loop_start_ns] = NO_STEP
    return steps


def _taken(found: deque[_Found], all_left: bool) -> Iterator[_Found]:
    """Remove and yield the entries of ended pipeline calls, or all entries; the others stay."""
    for _ in range(len(found)):
        try:
            one = found.popleft()
        except IndexError:  # another thread takes entries, too
            return
        if all_left or one.pipeline is None or one.pipeline.end_ns >= 0:
            yield one
        else:
            found.append(one)


def _calls_of(pipeline: PipelineCall, recorder: Recorder) -> list[tuple[int, int]]:
    """Start and end of the calls of a pipeline call that have returned, latest first."""
    found = []
    for call in reversed(list(recorder.invocations)):  # earlier ones are packed meanwhile
        if call.start_ns < pipeline.start_ns - _EARLIER_NS:
            break
        if call.pipeline is pipeline and call.end_ns >= 0:
            found.append((call.start_ns, call.end_ns))
    return found
