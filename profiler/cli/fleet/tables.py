"""Tables and notes as the subcommands of `fleet` print them."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

__all__ = ["print_table"]

_ON_A_TERMINAL = 40  # rows


def print_table(frame: pl.DataFrame, *, rows: int | None = None) -> None:
    """Print a table: what fits on a terminal, all of it where it is piped."""
    from profiler.query import answer_lines

    terminal = sys.stdout.isatty()
    limit = (_ON_A_TERMINAL if terminal else None) if rows is None else rows or None
    width = shutil.get_terminal_size((80, 24)).columns if terminal else None
    for line in answer_lines([frame], limit, width):
        sys.stdout.write(f"{line}\n")
