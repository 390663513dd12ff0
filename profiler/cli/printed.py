"""What a command prints of the report of a run: the opening, everything, or some sections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.errors import InputError
from profiler.filters import name_list

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.report.model import Report

__all__ = ["Printed", "list_sections"]


class Printed(Struct, frozen=True):
    """At most 40 lines; with `full` everything, with `sections` these, by key."""

    full: bool = False
    sections: tuple[str, ...] = ()

    @classmethod
    def of(cls, sections: Sequence[str], *, full: bool) -> Printed:
        """What the options say. Raises InputError where a section is none, or both are given."""
        named = name_list(sections)
        if named and full:
            raise InputError("--full and --section contradict each other: give one of them")
        if named:
            from profiler.report.build import section_kinds

            known = [kind.key for kind in section_kinds()]
            for key in named:
                if key not in known:
                    raise InputError(f"there is no section {key!r}: there is {', '.join(known)}")
        return cls(full, named)

    def print(
        self,
        report: Report,
        place: Path,
        notes: Sequence[str] = (),
        written: Sequence[Path] = (),
    ) -> None:
        """Print it of the `report` of the run at `place`; `notes` say how the run was chosen,
        `written` are files that are named at the end."""
        from profiler.cli.terminal import tell, terminal

        console = terminal()
        if self.sections:
            _print_sections(console, report, notes, self.sections)
        elif self.full or report.opening is None:
            from profiler.report.terminal.report import print_report

            print_report(console, report, notes=notes)
        else:
            from profiler.report.terminal.opening import print_opening

            below = len(written)
            print_opening(console, report.opening, place, notes=notes, below=below)
        if written and (self.full or self.sections):
            tell()
        for path in written:
            tell(f"wrote {path}")


def list_sections(wanted: bool) -> None:
    """Print the key and the heading of each section, and end, where that is `wanted`."""
    if not wanted:
        return
    import typer

    from profiler.cli.terminal import tell
    from profiler.report.build import section_kinds

    kinds = section_kinds()
    width = max(len(kind.key) for kind in kinds)
    for kind in kinds:
        tell(f"{kind.key:<{width}}  {kind.title}")
    raise typer.Exit


def _print_sections(
    console: Console, report: Report, notes: Sequence[str], keys: Sequence[str]
) -> None:
    from profiler.cli.terminal import tell
    from profiler.report.terminal.report import print_sections

    for note in notes:
        tell(note)
    print_sections(console, report, keys)
