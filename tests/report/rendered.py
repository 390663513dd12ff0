"""Reports of tests, as the terminal and the page have them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from profiler.analysis import Analysis, Report, ReportInput
from profiler.compare.compare import Comparison
from profiler.report import body_of, build_report, print_report
from profiler.report.html.page import Body
from profiler.report.terminal import print_opening
from tests.runs import EPOCH

__all__ = ["opened", "page_of", "part_lines", "printed", "report_of", "section_lines"]

_SPAN = 1000  # ns, of tests.runs.tiny_run


def report_of(
    analysis: Analysis,
    begin_ns: int = EPOCH,
    against: Comparison | None = None,
    **options: Any,
) -> Report:
    """The report of an analysis; `options` as in `ReportInput`."""
    return build_report(ReportInput(analysis, begin_ns, begin_ns + _SPAN, against, **options))


def page_of(analysis: Analysis, begin_ns: int = EPOCH, against: Comparison | None = None) -> Body:
    """Its sections as the page has them."""
    return body_of(report_of(analysis, begin_ns, against))


def printed(
    analysis: Analysis,
    width: int = 100,
    *,
    notes: Sequence[str] = (),
    tty: dict[str, Any] | None = None,
    **options: Any,
) -> str:
    """What the terminal shows of it; `tty` are options of rich's console."""
    console = Console(file=io.StringIO(), width=width, highlight=False, **(tty or {}))
    print_report(console, report_of(analysis, **options), notes=notes)
    text: str = console.file.getvalue()
    return text


def opened(
    analysis: Analysis,
    width: int = 80,
    *,
    place: Path = Path("traces/tiny"),
    notes: Sequence[str] = (),
    below: int = 0,
    **options: Any,
) -> str:
    """The 40 lines of a terminal; `options` as in `ReportInput`."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    opening = report_of(analysis, **options).opening
    print_opening(console, opening, place, notes=notes, below=below)
    text: str = console.file.getvalue()
    return text


def section_lines(text: str, title: str) -> list[str]:
    """The lines of one section of the terminal, words separated by single blanks."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith(f"{title} ─")]
    if not starts:
        return []
    end = next((n for n in range(starts[0] + 1, len(lines)) if " ──" in lines[n]), len(lines))
    return [" ".join(line.split()) for line in lines[starts[0] + 1 : end]]


def part_lines(text: str, title: str) -> list[str]:
    """The lines below a title of the terminal, up to the next blank one, likewise."""
    lines = text.splitlines()
    start = next(
        n for n, line in enumerate(lines) if line == title or line.startswith(f"{title} ─")
    )
    end = next((n for n in range(start, len(lines)) if not lines[n].strip()), len(lines))
    return [" ".join(line.split()) for line in lines[start + 1 : end]]
