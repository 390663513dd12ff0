"""Signals that wait while something of ours must not be cut in two: a profiler whose results are
not kept as it is stopped loses all that it has recorded."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["interrupts_wait"]

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Inside, a signal that Python handles (Ctrl-C, or the script's own handler) waits for the end
    of the block; the same one a second time does not. Other threads than the main one are never
    interrupted, so nothing happens there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    waiting: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number not in waiting:
            waiting.append(number)
            return
        waiting.remove(number)
        handlers[number](number, frame)

    try:
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            handler = None if number is None else signal.getsignal(number)
            if number is not None and callable(handler):
                handlers[number] = handler
                signal.signal(number, note)
        yield
    finally:
        try:
            _give_back(handlers)
        except BaseException:  # a handler that is back has raised
            _give_back(handlers)
            raise
        finally:
            for number in waiting:
                signal.raise_signal(number)


def _give_back(handlers: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
    for number in reversed(handlers):  # SIGINT's, which raises, at last
        signal.signal(number, handlers[number])
