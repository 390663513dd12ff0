"""The hook by which an `Analysis`, which imports no report, gives the report's figures.

The package root sets it; it stands beside `annotation`, for the root imports no analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profiler.errors import InputError

__all__ = ["draw_with", "drawn"]

_HOOKS: list[Callable[..., Any]] = []


def draw_with(hook: Callable[..., Any]) -> None:
    """Have `hook` draw figures of analyses by name, with options; it replaces the last."""
    _HOOKS[:] = [hook]


def drawn(analysis: object, name: str, **options: Any) -> Any:
    """The figure of that name. Raises InputError where there is none."""
    if not _HOOKS:
        raise InputError(f"no figure {name!r}: nobody draws figures")
    return _HOOKS[0](analysis, name, **options)
