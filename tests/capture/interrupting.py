"""A signal whose handler raises, at each place in our code where Python asks for signals."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import profiler

__all__ = ["KINDS", "Interruptions", "TimeIsUp", "handled"]

_OURS = str(Path(profiler.__file__).parent / "capture")


class TimeIsUp(Exception):  # noqa: N818
    """Of the user's program."""


KINDS: tuple[type[BaseException], ...] = (TimeIsUp, TimeoutError, KeyboardInterrupt, SystemExit)


@contextmanager
def handled(raised: Callable[[], BaseException]) -> Iterator[None]:
    """A block in which SIGALRM's handler raises what `raised` returns."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise raised()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


class Interruptions:
    """Counts the places that calls of `profiler.capture` pass at which Python runs signal handlers:
    where a function begins, and where one written in C has returned. At the one numbered `at` there
    is a signal."""

    def __init__(self) -> None:
        self.places, self.at, self.where = 0, -1, ""

    def run(self, at: int, action: Callable[..., Any], *arguments: Any) -> bool:
        """Run `action`, interrupted at a place; whether there was one. What the handler raises must
        reach us."""
        kind = KINDS[at % len(KINDS)]
        error = kind("the time is up")
        self.places, self.at = 0, at
        with handled(lambda: error):
            sys.setprofile(self._seen)
            try:
                action(*arguments)
            except kind as found:
                if found is not error:
                    raise
                return True
            finally:
                sys.setprofile(None)
        assert self.places <= at, f"swallowed at {self.where}"
        return False

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or not code.co_filename.startswith(_OURS):
            return
        if event == "call" and code.co_flags & inspect.CO_GENERATOR:
            return  # it may be closed, where Python asks for no signals
        self.places += 1
        if self.places - 1 == self.at:
            sys.setprofile(None)
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({event})"
            signal.raise_signal(signal.SIGALRM)
