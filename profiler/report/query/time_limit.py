"""How long a query may compute, over all of its batches: who reads them takes the time it takes.

limit = TimeLimit(60.0, connection.interrupt)
with limit.computing():
    batch = next(reader)
limit.exceeded
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["TimeLimit"]

_AGAIN_S = 0.05


class TimeLimit:
    """Calls `end` on a thread of its own when what computes has had `seconds`, and goes on to until
    it has ended: a query that has not begun yet forgets that it was. None: never. `exceeded` tells
    that its time is up."""

    def __init__(self, seconds: float | None, end: Callable[[], object]) -> None:
        self.seconds = seconds
        self.exceeded = False
        self._left_s = seconds or 0.0
        self._end = end

    @contextmanager
    def computing(self) -> Iterator[None]:
        """A block whose time counts."""
        if self.seconds is None:
            yield
            return
        begin, ended = time.monotonic(), threading.Event()
        thread = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._left_s -= time.monotonic() - begin

    def _watch(self, ended: threading.Event) -> None:
        if ended.wait(max(self._left_s, 0.0)):
            return
        self.exceeded = True
        self._end()
        while not ended.wait(_AGAIN_S):
            self._end()
