"""`profile-sd3 analyze`: the report of a run, in the terminal, as a page and as data."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.documents import STDOUT, check_documents, write_json
from profiler.cli.options import DeviceProfileFile, ImportOptions, import_options
from profiler.cli.progress import progress
from profiler.cli.subcommands import Subcommand
from profiler.cli.trace_files import damaged_files, left_out, load_whole, other_runs
from profiler.errors import InputError, OutputError
from profiler.events import DropKind
from profiler.filters import name_list

if TYPE_CHECKING:
    from profiler.analysis.comparison.compare import Comparison
    from profiler.analysis.result import Analysis
    from profiler.events import Loss
    from profiler.sources.imports import Imports
    from profiler.sources.resolve import Found, Source
    from profiler.table.run import Run

__all__ = ["SUBCOMMAND", "Language", "analyze"]


class Language(StrEnum):
    """Languages of the page, as `report.language.LANGUAGES` has them."""

    EN = "en"
    KO = "ko"


def analyze(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A bundle, a folder of bundles (the newest is taken), one .pb, a Parquet run, or "
            "what `import` takes.",
        ),
    ] = Path("traces"),
    top: Annotated[int, typer.Option(metavar="N", min=0, help="Operators to print; 0: none.")] = 15,
    stage: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these stages, with commas.")
    ] = None,
    submodule: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these submodules, with commas."),
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these devices, with commas.")
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(metavar="STEPS", help="Only these steps: 7, 0-3,7 or last."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the report as JSON, over FILE if it exists; -: to stdout, and only that.",
        ),
    ] = None,
    csv_dir: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="DIR", help="Write one CSV a table into DIR, over those of before."
        ),
    ] = None,
    parquet_dir: Annotated[
        Path | None,
        typer.Option(
            "--parquet",
            metavar="DIR",
            help="Write the run and its tables as Parquet into DIR, which is new or empty.",
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="BASE",
            help="Compare with this run, or with all in a folder: one line and a section; may "
            "be repeated. `diff` prints all of it.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the page there, over FILE if it exists.  [default: report.html in the "
            "bundle; beside a single .pb or what another profiler wrote, under its name]",
        ),
    ] = None,
    importing: ImportOptions = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep the bundle that is made of another profiler's trace there.  [default: it "
            "goes when the report is written]",
        ),
    ] = None,
    device_profile: DeviceProfileFile = None,
    device_memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DEVICE=]SIZE",
            help="Memory of a device, 16GiB or cuda:0=80GB, for the head-room; may be repeated.  "
            "[default: what the run knows of its devices]",
        ),
    ] = None,
    language: Annotated[
        Language | None,
        typer.Option(
            help="Language in which the page opens; its button changes it.  [default: its reader's]"
        ),
    ] = None,
    no_html: Annotated[bool, typer.Option("--no-html", help="Write no page.")] = False,
    watching: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Show a run that goes on, call by call, and report on it when it has ended.",
        ),
    ] = False,
) -> None:
    """Report where the time of a run went.

    Per stage, device, submodule, step and operator, with findings and what lies behind them. Prints
    the report and writes it as a self-contained page. Files of the trace itself are never written
    over.
    """
    from profiler.analysis.analyze import analyze as find
    from profiler.analysis.roofline.device_profiles import find_profiles, read_profiles
    from profiler.analysis.selection import Selection
    from profiler.cli.device_memory import device_sizes
    from profiler.sources.imports import Imports

    sizes = device_sizes(device_memory or ())
    spoken = language.value if language else "auto"
    outputs = _Outputs(json_file, csv_dir, parquet_dir, html)
    outputs.check()
    if html is not None and no_html:
        raise InputError("--html and --no-html contradict each other: give one of them")
    if watching:
        path = _watched(path)
    page: OutputError | None = None
    written: list[Path] = []
    with Imports(out) as imports, progress(f"reading {path}") as say:
        found, *bases = _resolved(path, against or [], import_options(importing), out)
        given = _open(found, imports)
        comparison = _compared(given, bases)
        filters = (stage, submodule, device, step)
        selection = Selection(*(name_list(names or ()) for names in filters))
        profiles = read_profiles(device_profile) if device_profile else find_profiles(given.place)
        say(f"analyzing {given.place}")
        analysis = find(given.run, selection, profiles, sizes)
        if not no_html:  # before anything is printed: `… | head` ends the program
            say("writing the page")
            try:
                written = [_write_page(given, analysis, html, comparison, spoken)]
            except OutputError as error:
                page = error
    written = [*outputs.write(given.run, analysis), *written]
    if not outputs.only_json:
        notes = (*_not_compared(comparison, against), *given.notes)
        _print(given, analysis, comparison, top, notes)
        _name(written)
    if page is not None:
        raise page
    _raise_damage(given)


def _watched(path: Path) -> Path:
    from profiler.cli.terminal import is_drawn_on, terminal
    from profiler.cli.watch import watch

    return watch(path, terminal(), drawn=is_drawn_on(sys.stdout))


@dataclass(frozen=True, slots=True)
class _Given:
    """The run that was found, where, and lines about how it was chosen."""

    run: Run
    source: Source
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> Path:
        """Where the user knows it."""
        return self.source.place


def _resolved(
    path: Path, against: list[Path], options: dict[str, str], out: Path | None
) -> list[Found]:
    """What was named: the run, then each baseline."""
    from profiler.sources.resolve import resolve

    found = resolve([[each] for each in (path, *against)], options)
    if out is not None and found[0].newest.foreign is None:
        raise InputError(f"--out keeps what is imported, and {path} is not: leave it out")
    return found


def _open(found: Found, imports: Imports) -> _Given:
    """Load the newest run of `found`; raises InputError where it holds no call."""
    from profiler.sources.load import load_source

    source = imports.ready(found.newest)
    given = _Given(load_source(source), source, (*other_runs(found), *left_out(found)))
    if given.run.calls.is_empty():
        raise InputError(_without_calls(given))
    return given


def _compared(given: _Given, against: list[Found]) -> Comparison | None:
    """The run against its baseline; None where none was given, or files of the run are damaged."""
    if not against:
        return None
    from profiler.analysis.comparison.compare import compare
    from profiler.analysis.comparison.measure import measure
    from profiler.sources.imports import Imports

    own = given.place.resolve()
    sources = [source for found in against for source in reversed(found.sources)]
    bases = [base for base in sources if base.place.resolve() != own]
    if not bases:
        raise InputError(f"--against names only {given.place} itself: give another run")
    with Imports() as imports:
        measured = [measure(load_whole(base, imports)) for base in bases]
    return None if damaged_files(given.run) else compare(measured, [measure(given.run)])


def _not_compared(comparison: Comparison | None, against: list[Path] | None) -> Iterable[str]:
    if comparison is None and against:
        yield "not compared: files of this run are damaged"


def _without_calls(given: _Given) -> str:
    from profiler.sources.resolve import Kind
    from profiler.trace.manifest import MANIFEST_NAME

    place = given.place
    if given.source.kind is not Kind.TRACE:
        return f"{place} holds no call: the run ended before its first, record it again"
    if (place.parent / MANIFEST_NAME).is_file():
        return f"{place} holds no call of its run: give the whole bundle {place.parent}"
    return (
        f"{place} is a Perfetto trace but holds no profile-sd3 call: look at its slices with "
        f"profiler.load, or run `profile-sd3 import {place}` if RBLN's profiler wrote it"
    )


def _print(
    given: _Given,
    analysis: Analysis,
    against: Comparison | None,
    top: int,
    notes: tuple[str, ...],
) -> None:
    from profiler.cli.terminal import terminal
    from profiler.report.build import build_report
    from profiler.report.extent import extent
    from profiler.report.model import ReportInput
    from profiler.report.terminal.report import print_report

    begin_ns, end_ns = extent(given.run)
    report = build_report(ReportInput(analysis, begin_ns, end_ns, against, given.source.path, top))
    print_report(terminal(), report, notes=notes)


def _name(written: list[Path]) -> None:
    if written:
        typer.echo()
    for path in written:
        typer.echo(f"wrote {path}")


@dataclass(frozen=True, slots=True)
class _Outputs:
    """The files and folders that were asked for; "-" as JSON file is stdout."""

    json: Path | None
    csv: Path | None
    parquet: Path | None
    html: Path | None

    @property
    def only_json(self) -> bool:
        """Whether the JSON document is all that goes to stdout."""
        return self.json == STDOUT

    def check(self) -> None:
        """Refuse, before any work, to write over what is a trace and no report."""
        if self.html == STDOUT:
            raise OutputError("--html - is not there: the page goes to a file")
        check_documents({"--json": self.json, "--html": self.html})

    def write(self, run: Run, analysis: Analysis) -> list[Path]:
        """Write what was asked for; returns what was written to disk."""
        from profiler.analysis.roles.of_commands import with_roles
        from profiler.report.document import to_json
        from profiler.report.tables import write_csv_tables, write_parquet_tables

        written: list[Path] = []
        if self.json is not None:
            write_json(self.json, to_json(analysis))
            written += [] if self.only_json else [self.json]
        if self.csv is not None:
            write_csv_tables(analysis, self.csv)
            written.append(self.csv)
        if self.parquet is not None:
            filled = with_roles(run, analysis.kinds, analysis.kind_roles)
            write_parquet_tables(filled, analysis, self.parquet)
            written.append(self.parquet)
        return written


def _write_page(
    given: _Given,
    analysis: Analysis,
    asked: Path | None,
    against: Comparison | None,
    language: str,
) -> Path:
    """Write the HTML page where it was asked for, or beside the trace; returns its path."""
    from profiler.analysis.roles.of_commands import with_roles
    from profiler.report.html.page import write_html
    from profiler.sources.page import page_path

    path = asked or page_path(given.source, filtered=bool(analysis.run.selection))
    try:
        run = with_roles(given.run, analysis.kinds, analysis.kind_roles)
        write_html(run, analysis, path, language, against=against, source=given.source.path)
    except (OSError, OutputError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = "give another place with --html FILE, or --no-html to leave it out"
        raise OutputError(f"the page {path} was not written ({reason}): {remedy}") from error
    return path


def _raise_damage(given: _Given) -> None:
    """End with one sentence where files of the trace are cut or missing; the report is out."""
    damaged = damaged_files(given.run)
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        raise InputError(_damage(given.source, damaged[0]) + more)


def _damage(source: Source, loss: Loss) -> str:
    from profiler.sources.resolve import Kind

    path = source.place if source.kind is Kind.TRACE else source.place / loss.where
    if loss.kind == DropKind.MISSING_FILE:
        return f"{path} is missing, so the report lacks it: copy it back or record the run again"
    detail = loss.detail.removesuffix(": copy it again")
    return f"{path} is not whole ({detail}): copy it again or record the run again"


SUBCOMMAND = Subcommand(analyze, place=40)
