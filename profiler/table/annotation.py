"""The hook by which what an analysis derives of commands reaches a `Run`, which imports none.

The package root sets it; where nobody has, a run knows what was recorded alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from profiler.table.run import Run

__all__ = ["annotate_with", "annotated"]

_HOOKS: list[Callable[[Run], pl.DataFrame]] = []


def annotate_with(hook: Callable[[Run], pl.DataFrame]) -> None:
    """Have `hook` give the commands of runs with role, FLOPs and bytes; it replaces the last."""
    _HOOKS[:] = [hook]


def annotated(run: Run) -> pl.DataFrame:
    """The commands of `run`, same rows and columns, with role, FLOPs and bytes where known."""
    return _HOOKS[0](run) if _HOOKS else run.commands
