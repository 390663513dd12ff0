"""What `diff` prints of a comparison: what matters most in 40 lines, everything, or some
sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from profiler.errors import InputError
from profiler.filters import name_list

if TYPE_CHECKING:
    from profiler.analysis.comparison.side_by_side import Compared
    from profiler.report.model import Report

__all__ = ["PrintedDiff", "print_names"]

_TOP = 15  # rows of roles, modules and shapes


@dataclass(frozen=True, slots=True)
class PrintedDiff:
    """At most 40 lines of two sides; with `full` everything, with `sections` these, by key. Further
    sides have a column each, which is everything. `top` limits the rows of tables that rank."""

    full: bool = False
    sections: tuple[str, ...] = ()
    top: int = _TOP

    @classmethod
    def of(cls, sections: Sequence[str], *, full: bool, top: int | None) -> PrintedDiff:
        """What the options say. Raises InputError where a section is none, or both are given."""
        named = name_list(sections)
        if named and full:
            raise InputError("--full and --section contradict each other: give one of them")
        if named:
            from profiler.report.comparing import TITLES

            for key in named:
                if key not in TITLES:
                    known = ", ".join(TITLES)
                    raise InputError(f"there is no section {key!r}: there is {known}")
        return cls(full or top is not None, named, _TOP if top is None else top)

    def report(self, base: str, columns: Sequence[Compared]) -> Report:
        """All of it."""
        from profiler.report.comparing import comparison_report
        from profiler.report.side_by_side import columns_report

        if len(columns) == 1:
            return comparison_report(columns[0].comparison, columns[0].gates, top=self.top)
        return columns_report(base, columns, top=self.top)

    def print(self, base: str, columns: Sequence[Compared]) -> None:
        """Print it to the terminal; the gates always."""
        from profiler.cli.terminal import terminal
        from profiler.report.terminal.report import print_report

        console = terminal()
        if self.sections:
            whole = self.report(base, columns)
            chosen = tuple(one for one in whole.sections if one.key in self.sections)
            print_report(console, replace(whole, sections=chosen))
        elif self.full or len(columns) > 1:
            print_report(console, self.report(base, columns))
        else:
            from profiler.report.brief_comparison import brief_report
            from profiler.report.terminal.brief import print_brief

            first = columns[0]
            print_brief(console, partial(brief_report, first.comparison, first.gates))


def print_names(wanted: bool) -> None:
    """Print the key and the heading of each section, and end, where that is `wanted`."""
    if not wanted:
        return
    from profiler.cli.terminal import tell
    from profiler.report.comparing import TITLES

    width = max(map(len, TITLES))
    for key, title in TITLES.items():
        tell(f"{key:<{width}}  {title}")
    raise typer.Exit
