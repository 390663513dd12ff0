"""The console that reports are printed to."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["terminal"]


def terminal() -> Console:
    """Standard output as it is: no highlighting, no markup. Printing raises BrokenPipeError where
    its reader has gone."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which says that a gate failed
            raise BrokenPipeError

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without µ or … still gets a report
    return Terminal(highlight=False, markup=False, emoji=False, soft_wrap=False)
