"""What a runtime's profiler has recorded becomes commands while the pipeline rests.

    conversions = Conversions(resting_since)
    conversions.put(session)          # on the thread that stopped it: nothing is converted there
    conversions.drain()               # now, on this thread, all that waits

Converting takes 12 µs of Python an event, in which no other thread runs Python: beside a pipeline
it would take from that what it saves. So the thread that converts waits until nothing has been
recorded for `_LINGER_S`; what has waited for `_LONGEST_S` is converted all the same, so that a
killed process loses no more. What waits lies on the disk, 0.4 kB an event, not in memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol

from profiler.capture.interrupts import interrupts_wait
from profiler.capture.own_work import OwnWork
from profiler.capture.recorder import Recorder

__all__ = ["EVENT_LIMIT", "SESSION_LIMIT", "Conversions", "Stopped"]

EVENT_LIMIT = 2_000_000  # that wait: 0.8 GB of disk
SESSION_LIMIT = 64  # that wait, each with an open file
_LINGER_S = 0.2  # of rest, until the thread begins
_LONGEST_S = 4.0  # that a session waits


class Stopped(Protocol):
    """A profiler's session that has been stopped; `events` is how many it may have."""

    @property
    def events(self) -> int:
        """How many it may have."""

    def convert(self) -> None:
        """Hand over what it has of each call, or why it has nothing; never an error."""

    def recorders(self) -> Sequence[Recorder]:
        """The runs whose calls it has recorded."""

    def close(self) -> None:
        """It is never converted: let go of what it holds."""


class Conversions:
    """Converts sessions in the order in which they were stopped, one at a time.

    `resting_since` tells since when, on `time.monotonic`, nothing is recorded; None while something
    is. The recorders of a session are told when it has been converted, and what that took.
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
        self._most = events, sessions
        self._waiting: deque[tuple[float, Stopped]] = deque()
        self._converting = threading.RLock()  # one at a time; held while nobody is told
        self._changing = threading.RLock()  # what waits, and the thread
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, session: Stopped) -> None:
        """Have a session converted later; now, on this thread, where too much waits."""
        with self._changing:
            self._waiting.append((self._now(), session))
            events, sessions = self._most
            full = len(self._waiting) > sessions or sum(s.events for _, s in self._waiting) > events
            if not full and self._thread is None:
                self._thread = self._started()
            alone = self._thread is None
        if full or alone:
            self.drain()
        else:
            self._wake.put(None)

    @interrupts_wait()
    def drain(self, *, tell: bool = True) -> None:
        """Convert all that waits; what is being converted has been when this returns. Without
        `tell` nobody is told: who asks takes it all anyway."""
        while self._convert_next(tell=tell):
            pass
        self._wake.put(None)

    def abandon(self) -> None:
        """In a forked child: all that waits is the parent's."""
        while self._waiting:
            self._waiting.popleft()[1].close()
        self._wake.put(None)

    def pause_s(self) -> float | None:
        """How long until the first that waits is due, 0 where it is; None where none waits."""
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
        """Until nothing waits."""
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
