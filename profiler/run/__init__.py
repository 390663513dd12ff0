"""The hooks by which a `Run` and an `Analysis`, which import no report, give the report's figures
and show themselves in notebooks.

The package root sets them; they stand beside `annotation`, for the root imports no analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from profiler.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from profiler.run.run import Run


# --- The hook by which what an analysis derives of commands reaches a `Run`, which imports none.
#
# The package root sets it; where nobody has, a run knows what was recorded alone.


_COMMAND_HOOKS: list[Callable[[Run], pl.DataFrame]] = []


def annotate_with(hook: Callable[[Run], pl.DataFrame]) -> None:
    """Have `hook` give the commands of runs with role, FLOPs and bytes; it replaces the last."""
    _COMMAND_HOOKS[:] = [hook]


def annotated(run: Run) -> pl.DataFrame:
    """The commands of `run`, same rows and columns, with role, FLOPs and bytes where known."""
    return _COMMAND_HOOKS[0](run) if _COMMAND_HOOKS else run.commands


# --- The hooks by which a `Run` and an `Analysis`, which import no report, give the report's
# figures


_DRAWING_HOOKS: list[Callable[..., Any]] = []
_SHOWS: list[Callable[[Any], str]] = []


def draw_with(hook: Callable[..., Any]) -> None:
    """Have `hook` draw figures of analyses by name, with options; it replaces the last."""
    _DRAWING_HOOKS[:] = [hook]


def drawn(analysis: object, name: str, **options: Any) -> Any:
    """The figure of that name. Raises InputError where there is none."""
    if not _DRAWING_HOOKS:
        raise InputError(f"no figure {name!r}: nobody draws figures")
    return _DRAWING_HOOKS[0](analysis, name, **options)


def show_with(hook: Callable[[Any], str]) -> None:
    """Have `hook` make HTML of runs and analyses; it replaces the last."""
    _SHOWS[:] = [hook]


def shown_as_html(of: object) -> str | None:
    """What a notebook shows of a run or an analysis; None where nobody makes it, which leaves it to
    its `repr`."""
    return _SHOWS[0](of) if _SHOWS else None
