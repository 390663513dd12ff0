"""What is open in a thread or task: a pipeline call, a submodule call, host work.

It belongs to the thread (or task) that opened it: pipelines that run in threads at the same time
never see each other.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from profiler.capture.timeline import PipelineCall

__all__ = ["Scope", "enter", "scope"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is open in one thread or task. `owner` began the pipeline call `pipeline`, whose labels
    are `labels`; `call` is an open submodule call, whose inner calls are part of it; `host` is
    open host work."""

    owner: Any = None
    pipeline: PipelineCall | None = None
    labels: Any = None
    call: Any = None
    host: Any = None


_NOTHING_OPEN = Scope()
_SCOPE: ContextVar[Scope] = ContextVar("profile_sd3_scope", default=_NOTHING_OPEN)


def scope() -> Scope:
    """What is open in this thread or task; nothing where it is of a pipeline call that has ended,
    which an interrupt kept from leaving."""
    found = _SCOPE.get()
    if found.pipeline is not None and found.pipeline.end_ns >= 0:
        return _NOTHING_OPEN
    return found


def enter(new: Scope) -> None:
    """Make `new` what is open in this thread or task."""
    _SCOPE.set(new)
