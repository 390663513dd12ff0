"""Forked children: what is being recorded stays the parent's, whoever has begun it.

Sessions, with and without the switch, are abandoned in the child; torch's profiler is forgotten.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

from profiler.capture.recorder import Scope, enter

__all__ = ["abandon_in_children"]

_SESSIONS: weakref.WeakSet[Any] = weakref.WeakSet()
_watching: list[bool] = []


def abandon_in_children(session: Any) -> None:
    """Call `session.abandon()` in every child that is forked while the session exists."""
    if not _watching and hasattr(os, "register_at_fork"):
        _watching.append(True)
        os.register_at_fork(after_in_child=_in_child)
    _SESSIONS.add(session)


def _in_child() -> None:
    for session in list(_SESSIONS):
        session.abandon()
    torch_operators = sys.modules.get("profiler.capture.torch.operators")
    tracing = getattr(torch_operators, "TRACING", None)  # None while it is being imported
    if tracing is not None:
        tracing.forget()
    enter(Scope())
