"""`profile-sd3 analyze`: the report of a run, in the terminal, as a page and as data."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from profiler.cli.commands.fleet import LocalWorkers, Scheduler, analyze_each
from profiler.cli.main import complete_runs, complete_sections
from profiler.cli.options import (
    CallDevices,
    CallStages,
    CallSteps,
    CallSubmodules,
    DeviceProfileFile,
    ImportOptions,
    KeptImport,
    PageLanguage,
    device_sizes,
)
from profiler.cli.run_report import ReportFiles
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import Printed, keep_to_the_end, listing, run_sections
from profiler.options import name_list

_Path = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A bundle, a folder of bundles (the newest is taken), one .pb, a Parquet run, or "
        "what `import` takes.",
        autocompletion=complete_runs,
    ),
]
_Top = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Rows of each table; 0: leave out those that rank.  [default: 10, 15 operators]",
    ),
]
_Full = Annotated[bool, typer.Option("--full", help="Print all sections, not 40 lines.")]
_Sections = Annotated[
    list[str] | None,
    typer.Option(
        "--section",
        metavar="NAME",
        help="Print these sections alone, with commas: idle,roofline; may be repeated.",
        autocompletion=complete_sections,
    ),
]
_ListSections = Annotated[
    bool,
    typer.Option(
        "--list-sections",
        callback=listing(run_sections),
        is_eager=True,
        help="Name the sections, and end.",
    ),
]
_JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the report as JSON, over FILE if it exists; -: to stdout, and only that.",
    ),
]
_CsvDir = Annotated[
    Path | None,
    typer.Option(
        "--csv", metavar="DIR", help="Write one CSV a table into DIR, over those of before."
    ),
]
_ParquetDir = Annotated[
    Path | None,
    typer.Option(
        "--parquet",
        metavar="DIR",
        help="Write the run and its tables as Parquet into DIR, which is new or empty.",
    ),
]
_Against = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="BASE",
        help="Compare with this run, or with all in a folder: one line and a section; may "
        "be repeated. `diff` prints all of it.",
    ),
]
_Html = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the page there, over FILE if it exists.  [default: report.html in the "
        "bundle; beside a single .pb or what another profiler wrote, under its name]",
    ),
]
_DeviceMemory = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[DEVICE=]SIZE",
        help="Memory of a device, 16GiB or cuda:0=80GB, for the head-room; may be repeated.  "
        "[default: what the run knows of its devices]",
    ),
]
_NoHtml = Annotated[bool, typer.Option("--no-html", help="Write no page.")]
_Watching = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Show a run that goes on, call by call, and report on it when it has ended.",
    ),
]


_More = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[PATH...]", help="Further runs: each gets its page and a line."),
]
_Every = Annotated[
    bool, typer.Option("--all", help="Analyze every bundle of a folder, not the newest only.")
]


def analyze(
    path: _Path = Path("traces"),
    more: _More = None,
    top: _Top = None,
    full: _Full = False,
    section: _Sections = None,
    _sections: _ListSections = False,
    stage: CallStages = None,
    submodule: CallSubmodules = None,
    device: CallDevices = None,
    step: CallSteps = None,
    json_file: _JsonFile = None,
    csv_dir: _CsvDir = None,
    parquet_dir: _ParquetDir = None,
    against: _Against = None,
    html: _Html = None,
    importing: ImportOptions = None,
    out: KeptImport = None,
    device_profile: DeviceProfileFile = None,
    device_memory: _DeviceMemory = None,
    language: PageLanguage = None,
    no_html: _NoHtml = False,
    watching: _Watching = False,
    every: _Every = False,
    workers: LocalWorkers = 0,
    scheduler: Scheduler = None,
) -> None:
    """Report where the time of a run went.

    Prints the most important figures and findings in 40 lines, and writes the whole report as a
    self-contained page. Of several runs, or with --all, each gets its page; --no-html alone counts.
    """
    if more or every or workers or scheduler:
        return analyze_each([path, *(more or ())], workers, scheduler, pages=not no_html)
    memory = device_sizes(device_memory or ())
    files = ReportFiles(json_file, csv_dir, parquet_dir, html, no_html, language or "auto")
    filters = (name_list(names or ()) for names in (stage, submodule, device, step))
    where = (against or (), importing or (), out, device_profile, memory, top)
    printed = Printed.of(section or (), run_sections, full=full)
    return _report(path, filters, files, where, printed, watching)


def _report(
    path: Path,
    filters: Iterable[tuple[str, ...]],
    files: ReportFiles,
    where: tuple[Any, Any, Any, Any, Any, Any],
    printed: Printed,
    watching: bool,
) -> None:
    """Report on one run."""
    keep_to_the_end()
    from profiler.analysis.context import Selection
    from profiler.cli.run_report import Request, report_run

    files.check()
    run = _watched(path) if watching else path
    report_run(Request(run, Selection(*filters), files, *where, printed))


def _watched(path: Path) -> Path:
    from profiler.cli.commands.record import watch
    from profiler.cli.terminal import is_drawn_on, terminal

    return watch(path, terminal(), drawn=is_drawn_on(sys.stdout))


SUBCOMMAND = Subcommand(analyze, place=40, about_runs=True)
