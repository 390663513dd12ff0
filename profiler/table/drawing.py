"""The hooks by which a `Run` and an `Analysis`, which import no report, give the report's figures
and show themselves in notebooks.

The package root sets them; they stand beside `annotation`, for the root imports no analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profiler.errors import InputError

__all__ = ["draw_with", "drawn", "show_with", "shown_as_html"]

_HOOKS: list[Callable[..., Any]] = []
_SHOWS: list[Callable[[Any], str]] = []


def draw_with(hook: Callable[..., Any]) -> None:
    """Have `hook` draw figures of analyses by name, with options; it replaces the last."""
    _HOOKS[:] = [hook]


def drawn(analysis: object, name: str, **options: Any) -> Any:
    """The figure of that name. Raises InputError where there is none."""
    if not _HOOKS:
        raise InputError(f"no figure {name!r}: nobody draws figures")
    return _HOOKS[0](analysis, name, **options)


def show_with(hook: Callable[[Any], str]) -> None:
    """Have `hook` make HTML of runs and analyses; it replaces the last."""
    _SHOWS[:] = [hook]


def shown_as_html(of: object) -> str | None:
    """What a notebook shows of a run or an analysis; None where nobody makes it, which leaves it to
    its `repr`."""
    return _SHOWS[0](of) if _SHOWS else None
