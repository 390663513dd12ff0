"""A report of which a terminal shows at most 40 lines.

print_brief(Console(highlight=False), partial(brief_report, comparison, gates))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO

from rich.console import Console

from profiler.report.brief_comparison import ROOMS, Room
from profiler.report.model import Report
from profiler.report.terminal.report import print_report

__all__ = ["LINES", "print_brief"]

LINES = 40


def print_brief(
    console: Console, made: Callable[[Room], Report], rooms: Sequence[Room] = ROOMS
) -> None:
    """Print what is `made` for the first of the `rooms` that gives few enough lines, else the
    last."""
    reports = map(made, rooms)
    found = next(reports)
    while _lines(found, console.width) > LINES:
        smaller = next(reports, None)
        if smaller is None:
            break
        found = smaller
    print_report(console, found)


def _lines(report: Report, width: int) -> int:
    text = StringIO()
    print_report(Console(file=text, width=width, highlight=False), report)
    return text.getvalue().count("\n")
