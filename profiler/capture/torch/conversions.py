"""Sessions that were stopped become commands while the pipeline rests.

    conversions = Conversions(resting_since)
    conversions.put(session)          # on the thread that stopped it: nothing is converted there
    conversions.drain()               # now, on this thread, all that waits

Reading and cutting a session takes 12 µs of Python an event, in which no other thread runs Python:
beside a pipeline it would take from that what it saves. So the thread that converts waits until
nothing has been recorded for `_LINGER_S`; what has waited for `_LONGEST_S` is converted all the
same, so that a killed process loses no more. What waits lies on the disk, 0.4 kB an event, not in
memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from profiler.capture.interrupts import interrupts_wait
from profiler.capture.own_work import OwnWork
from profiler.capture.recorder import Recorder
from profiler.capture.torch.cut import StoppedSession
from profiler.interruptions import let_pass

__all__ = ["EVENT_LIMIT", "SESSION_LIMIT", "Conversions"]

EVENT_LIMIT = 2_000_000  # that wait: 0.8 GB of disk
SESSION_LIMIT = 64  # that wait, each with an open file
_LINGER_S = 0.2  # of rest, until the thread begins
_LONGEST_S = 10.0  # that a session waits


class Conversions:
    """Converts sessions in the order in which they were stopped, one at a time.

    `resting_since` tells since when, on `time.monotonic`, nothing is recorded; None while something
    is. Owners of calls that have a `recorder` are told there what converting took.
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
        self._waiting: deque[tuple[float, StoppedSession]] = deque()
        self._levels: dict[str, int] = {}
        self._converting = threading.RLock()  # one at a time
        self._changing = threading.RLock()  # what waits, and the thread
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, session: StoppedSession) -> None:
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
    def drain(self) -> None:
        """Convert all that waits; what is being converted has been when this returns."""
        with self._converting:
            while self._convert_next():
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
        thread = threading.Thread(target=self._work, name="profile-sd3-torch", daemon=True)
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
                with self._converting:
                    self._convert_next()
            elif pause is not None:
                with suppress(Empty):
                    self._wake.get(timeout=pause)
            else:
                with self._changing:
                    if not self._waiting:
                        self._thread = None
                        return

    def _convert_next(self) -> bool:
        try:
            _, session = self._waiting.popleft()
        except IndexError:
            return False
        recorders = _recorders(session)
        begun = [(recorder, recorder.clock.now_ns()) for recorder in recorders]
        self._levels = session.cut(self._levels if session.follows else {})
        for recorder, begin_ns in begun:
            recorder.add_own_work(OwnWork.CONVERT, begin_ns, recorder.clock.now_ns())
            try:
                recorder.settle()
            except Exception as error:  # noqa: BLE001 - heard when the run ends: it is asked again
                let_pass(error)
        return True


def _recorders(session: StoppedSession) -> list[Recorder]:
    """Those that the owners of its calls have, each once."""
    found = [getattr(call.owner, "recorder", None) for call in session.calls]
    return list({id(recorder): recorder for recorder in found if recorder is not None}.values())
