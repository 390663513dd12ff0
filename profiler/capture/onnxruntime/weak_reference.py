"""A pipeline's part as its operator source holds it: not alive.

A part may know its pipeline (those of optimum do), so a source that kept it would keep every model
of a pipeline that the script has let go of.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from profiler.capture.wraps import weakly
from profiler.interruptions import let_pass

__all__ = ["WeakPart", "when_gone"]


class WeakPart:
    """Stands for `part`. Once that is gone it has no attributes, and what is set is dropped."""

    def __init__(self, part: Any) -> None:
        object.__setattr__(self, "_part", weakly(part))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        part = self._part()
        if part is not None:
            setattr(part, name, value)

    def __delattr__(self, name: str) -> None:
        part = self._part()
        if part is not None:
            delattr(part, name)


def when_gone(part: Any, action: Callable[[], None]) -> Callable[[], None]:
    """Run `action` when `part` goes, in this process only: a forked child has no part in it.
    Returns what calls that off."""
    try:
        finalizer = weakref.finalize(part, _in_process, os.getpid(), action)
    except TypeError as error:  # it knows no weak references, and is kept
        let_pass(error)
        return lambda: None
    finalizer.atexit = False

    def call_off() -> None:
        finalizer.detach()

    return call_off


def _in_process(process: int, action: Callable[[], None]) -> None:
    if os.getpid() == process:
        action()
