"""What a script says itself: names of submodules, and which denoising step it is in.

give_name(module, "upscaler")
for i in range(28):
    with profiler.step(i):
        ...
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from profiler.capture.scopes import scope
from profiler.errors import InputError

__all__ = ["SaidStep", "give_name", "name_of", "named", "said_step", "step"]

_LAST_STEP = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class SaidStep:
    """One pass through a `with step(…)`."""

    step: int


_NAMES: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_STEP: ContextVar[SaidStep | None] = ContextVar("profile_sd3_step", default=None)


def give_name(value: Any, name: str) -> None:
    """Have calls of `value` recorded under `name`, whatever a pipeline calls it."""
    _NAMES[value] = name


@contextmanager
def step(index: int) -> Iterator[None]:
    """What runs inside is denoising step `index`, from 0: for loops without a scheduler. Raises
    InputError for what is no such number."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= _LAST_STEP:
        raise InputError(f"{index!r} is no step: give a whole number from 0 on")
    token = _STEP.set(SaidStep(index))
    try:
        yield
    finally:
        _STEP.reset(token)
        open_now = scope()
        if open_now.pipeline is not None:
            open_now.pipeline.end_step(index, open_now.owner.recorder.clock.now_ns())


def said_step() -> SaidStep | None:
    """The step that the script says it is in."""
    return _STEP.get()


def named() -> dict[str, Any]:
    """The objects that have got a name and are still there."""
    return {name: value for value, name in list(_NAMES.items())}


def name_of(value: Any) -> str:
    """The name that the script gave an object, "" for none."""
    try:
        return _NAMES.get(value, "") if _NAMES else ""
    except TypeError:  # it cannot be a key
        return ""
