"""`profile-sd3 diff`: how runs differ from a baseline, and a gate for CI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.main import complete_comparison_sections, complete_runs
from profiler.cli.options import ImportOptions, KeptImport, gate_limit
from profiler.cli.run_report import left_out, load_as_recorded, opened
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import (
    STDOUT,
    Printed,
    check_documents,
    comparison_sections,
    listing,
    progress,
    tell,
    write_json,
    write_text,
)
from profiler.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.analysis.document import Report
    from profiler.compare.compare import Compared, Comparison
    from profiler.compare.measure import Measurement
    from profiler.run.run import Run
    from profiler.sources import Found, Source


_ROWS = 15  # of tables that rank


class By(StrEnum):
    """What sides are put side by side by: a section each."""

    SHAPE = "shape"
    KERNEL = "kernel"
    NODE = "node"
    MODULE = "module"
    ROLE = "role"
    STEP = "step"

    @property
    def section(self) -> str:
        """The section of a comparison that has it."""
        return f"{self.value}s"


_Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="BASE NEW...",
        help="Bundles, .pb files, Parquet runs, what `import` takes, or folders of bundles, "
        "all of which are taken. The first is the baseline; each further one is a column. With "
        "--against all are new runs.",
        autocompletion=complete_runs,
    ),
]
_Against = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="BASE",
        help="A baseline, or a folder of them; may be repeated.",
        autocompletion=complete_runs,
    ),
]
_FailOver = Annotated[
    str | None,
    typer.Option(
        metavar="PERCENT",
        help="Exit with 1 where a metric is slower by more than this, as in 5%, beyond noise.",
    ),
]
_Metric = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="What --fail-over looks at: end_to_end, stage.denoise, denoise.step, "
        "submodule.vae, submodule.transformer.role.norm, …; may be repeated.  "
        "[default: end_to_end]",
    ),
]
_Top = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Rows of roles, modules and shapes; implies --full; 0: none.  [default: 15]",
    ),
]
_Full = Annotated[bool, typer.Option("--full", help="Print everything, not 40 lines.")]
_Sections = Annotated[
    list[str] | None,
    typer.Option(
        "--section",
        metavar="NAME",
        help="Print these sections alone, with commas: shapes,modules; may be repeated.",
        autocompletion=complete_comparison_sections,
    ),
]
_ListSections = Annotated[
    bool,
    typer.Option(
        "--list-sections",
        callback=listing(comparison_sections),
        is_eager=True,
        help="Name the sections, and end.",
    ),
]
_By = Annotated[
    By | None,
    typer.Option(
        help="Print what differs by this alone, a column for each side: attention backends or "
        "cards side by side.",
    ),
]
_HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write a page of two sides: both timelines, a waterfall, the largest differences.",
    ),
]
_JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write all metrics as JSON; -: to stdout."),
]
_MarkdownFile = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="FILE", help="Write the report as Markdown; -: likewise."),
]


def diff(
    runs: _Runs,
    against: _Against = None,
    fail_over: _FailOver = None,
    metric: _Metric = None,
    importing: ImportOptions = None,
    out: KeptImport = None,
    top: _Top = None,
    full: _Full = False,
    sections: _Sections = None,
    by: _By = None,
    list_sections: _ListSections = False,  # noqa: ARG001 (its callback ends the command)
    json_file: _JsonFile = None,
    markdown_file: _MarkdownFile = None,
    html_file: _HtmlFile = None,
) -> None:
    """Compare runs, part by part.

    A change is called slower or faster only where it exceeds noise.
    """
    sides = _sides(runs, against or [])
    files = _Files(json_file, markdown_file, html_file)
    files.check(len(sides))
    named = [*(sections or []), *([by.section] if by else [])]
    printed = Printed.of(named, comparison_sections, full=full)
    limit = gate_limit(fail_over, metric)
    compared, lines = _compared(
        [*sides.values()], importing, out, gated=limit is not None, drawn=html_file is not None
    )
    base, *names = sides
    columns = _columns(names, compared, metric or ["end_to_end"], limit)
    whole = partial(_report, base, columns, _ROWS if top is None else top)
    files.write(base, columns, whole)
    if STDOUT not in (json_file, markdown_file):
        _print(Printed(printed.full or top is not None, printed.sections), columns, whole, files)
    for line in lines:
        tell(line, err=True)
    if any(gate.failed for column in columns for gate in column.gates):
        raise typer.Exit(1)


def _report(base: str, columns: Sequence[Compared], top: int) -> Report:
    """All of it, with the `top` rows of tables that rank."""
    from profiler.compare.report import comparison_report
    from profiler.compare.side_by_side import columns_report

    if len(columns) == 1:
        return comparison_report(columns[0].comparison, columns[0].gates, top=top)
    return columns_report(base, columns, top=top)


def _print(
    printed: Printed, columns: list[Compared], whole: Callable[[], Report], files: _Files
) -> None:
    """What was asked for, to the terminal; three sides have no brief form."""
    brief = partial(_print_brief, columns[0]) if len(columns) == 1 else None
    written = [] if files.html is None else [files.html]
    printed.print(whole, brief, written=written, above=True)


def _print_brief(column: Compared, console: Console) -> None:
    """What matters most, in 40 lines; the gates always."""
    from profiler.compare.side_by_side import brief_report
    from profiler.report.terminal import print_brief

    print_brief(console, partial(brief_report, column.comparison, column.gates))


def _sides(runs: list[Path], against: list[Path]) -> dict[str, list[Path]]:
    """The paths of each side by its name, the baseline first."""
    if against:
        return {"base": against, "new": runs}
    if len(runs) < 2:
        raise InputError(
            f"diff compares runs, but was given {runs[0]} alone: give the baseline before it, or "
            "behind --against"
        )
    if len(runs) == 2:
        return {"base": runs[:1], "new": runs[1:]}
    names = [path.resolve().name for path in runs]
    if len({*names}) < len(names):
        names = [str(path) for path in runs]
    if len({*names}) < len(names):
        twice = next(path for path in runs if runs.count(path) > 1)
        raise InputError(f"{twice} is given twice: name every run once")
    return {name: [path] for name, path in zip(names, runs, strict=True)}


def _compared(
    sides: list[list[Path]],
    importing: list[str] | None,
    out: Path | None,
    *,
    gated: bool,
    drawn: bool,
) -> tuple[tuple[Comparison, ...], list[str]]:
    """Each further side against the first, and lines about what runs lack and runs that were left
    out. A gate takes whole runs alone: one that was killed looks fast. Timelines are read where
    they are `drawn`."""
    from profiler.compare.compare import compare_each

    paths = [path for side in sides for path in side]
    with progress("reading runs") as say, opened(paths, importing, out) as (found, imports):
        rest = iter(found)
        resolved = [list(islice(rest, len(side))) for side in sides]
        notes: list[str] = []
        load = partial(load_as_recorded, imports=imports, notes=notes, whole=gated)
        measured = [_measured(side, load, say, drawn=drawn) for side in resolved]
        say("comparing")
        return compare_each(measured), notes + [line for each in found for line in left_out(each)]


def _columns(
    names: list[str], compared: Sequence[Comparison], metrics: list[str], limit: float | None
) -> list[Compared]:
    """Each comparison under its name, with the gates of `metrics` where there is a `limit`."""
    from profiler.compare.compare import Compared, check_gate

    looked_at = [] if limit is None else metrics
    gates = [[check_gate(each, name, limit or 0.0) for name in looked_at] for each in compared]
    return [Compared(*each) for each in zip(names, compared, gates, strict=True)]


def _measured(
    side: list[Found],
    load: Callable[[Source], Run],
    say: Callable[[str], None],
    *,
    drawn: bool,
) -> list[Measurement]:
    """What is compared of each run, oldest first; one is in memory at a time."""
    from profiler.compare.measure import measure

    measured = []
    for source in (source for found in side for source in reversed(found.sources)):
        say(f"reading {source.place}")
        measured.append(measure(load(source), timeline=drawn))
    return measured


@dataclass(frozen=True, slots=True)
class _Files:
    """The documents that were asked for; None: not."""

    json: Path | None
    markdown: Path | None
    html: Path | None

    def check(self, sides: int) -> None:
        """Raises OutputError where one cannot be written, InputError where a page of so many sides
        was asked for."""
        if self.html is not None and sides > 2:
            raise InputError(
                f"--html shows two sides, and there are {sides}: give BASE and NEW, or --markdown "
                "for a column each"
            )
        if self.html == STDOUT:
            raise InputError("--html writes a file: give its name")
        check_documents({"--json": self.json, "--markdown": self.markdown, "--html": self.html})

    def write(self, base: str, columns: list[Compared], whole: Callable[[], Report]) -> None:
        """Write them."""
        from profiler.compare import text as diff_document
        from profiler.report.files import markdown

        first = columns[0]
        if self.json is not None:
            text = (
                diff_document.diff_to_json(first.comparison, first.gates)
                if len(columns) == 1
                else diff_document.side_by_side_to_json(base, columns)
            )
            write_json(self.json, text)
        if self.markdown is not None:
            write_text(self.markdown, markdown(whole()))
        if self.html is not None:
            from profiler.report.html.two_runs import write_two_runs

            write_two_runs(first.comparison, self.html, first.gates)


SUBCOMMAND = Subcommand(diff, place=50, about_runs=True)
