"""What a command prints of a report: what matters most in 40 lines, everything, or some sections.

    printed = Printed.of(section, run_sections, full=full)
    printed.print(lambda: report, brief)

The same options do the same for the report of a run and for that of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.errors import InputError
from profiler.options import name_list

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.analysis.document import Report

__all__ = ["Printed", "Titles", "comparison_sections", "listing", "run_sections"]

Titles = Callable[[], Mapping[str, str]]
"""The sections of a kind of report: heading by key, in their order."""


def run_sections() -> Mapping[str, str]:
    """Those of the report of a run."""
    from profiler.report.build import section_kinds

    return {kind.key: kind.title for kind in section_kinds()}


def comparison_sections() -> Mapping[str, str]:
    """Those of a comparison."""
    from profiler.compare.report import TITLES

    return TITLES


class Printed(Struct, frozen=True):
    """At most 40 lines; with `full` everything, with `sections` these, by key."""

    full: bool = False
    sections: tuple[str, ...] = ()

    @classmethod
    def of(cls, sections: Sequence[str], titles: Titles, *, full: bool) -> Printed:
        """What the options say. Raises InputError where a section is none, or both are given."""
        named = name_list(sections)
        if named and full:
            raise InputError("--full and --section contradict each other: give one of them")
        known = titles() if named else {}
        for key in named:
            if key not in known:
                raise InputError(f"there is no section {key!r}: there is {', '.join(known)}")
        return cls(full, named)

    def print(
        self,
        whole: Callable[[], Report],
        brief: Callable[[Console], None] | None,
        *,
        notes: Sequence[str] = (),
        written: Sequence[Path] = (),
        above: bool = False,
    ) -> None:
        """Print it: the `whole` report or sections of it, else what `brief` prints, where there is
        such. `notes` say how the run was chosen, `written` are files that are named at the end;
        sections stand below the report's first lines where these are wanted `above`."""
        from profiler.cli.terminal import tell, terminal
        from profiler.report.terminal import print_report, print_sections

        console = terminal()
        apart = True
        if self.sections:
            for note in notes:
                tell(note)
            keys = ("summary", *self.sections) if above else self.sections
            print_sections(console, whole(), keys)
        elif self.full or brief is None:
            print_report(console, whole(), notes=notes)
            apart = self.full
        else:
            brief(console)
            apart = False
        if written and apart:
            tell()
        for path in written:
            tell(f"wrote {path}")


def listing(titles: Titles) -> Callable[[bool], None]:
    """The callback of `--list-sections`: prints the key and the heading of each, and ends."""

    def list_sections(wanted: bool) -> None:
        if not wanted:
            return
        import typer

        from profiler.cli.terminal import tell

        known = titles()
        width = max(map(len, known))
        for key, title in known.items():
            tell(f"{key:<{width}}  {title}")
        raise typer.Exit

    return list_sections
