"""Forked children: what is being recorded stays the parent's, whoever has begun it.

Sessions, with and without the switch, are abandoned in the child; what a backend keeps of the
process is forgotten.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from profiler.capture.scopes import Scope, enter
from profiler.trace import schema

__all__ = ["abandon_in_children", "forget_in_children"]

_SESSIONS: weakref.WeakSet[Any] = weakref.WeakSet()
_watching: list[bool] = []
_forgetting: list[Callable[[], None]] = []


def abandon_in_children(session: Any) -> None:
    """Call `session.abandon()` in every child that is forked while the session exists."""
    if not _watching and hasattr(os, "register_at_fork"):
        _watching.append(True)
        os.register_at_fork(before=_before, after_in_child=_in_child)
    _SESSIONS.add(session)


def forget_in_children(forget: Callable[[], None]) -> None:
    """Call `forget()`, once sessions are abandoned, in every child that is forked of a process that
    has had one."""
    _forgetting.append(forget)


def _before() -> None:
    """Let a writing thread end its first import: a child could never take that module's lock."""
    schema.load()


def _in_child() -> None:
    for session in list(_SESSIONS):
        session.abandon()
    for forget in _forgetting:
        forget()
    enter(Scope())
