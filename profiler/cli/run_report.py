"""Make the report of a run for `analyze`: find, import, analyze, write and print it.

with opened([path], importing, out) as (sources, imports):
    run = load_as_recorded(sources[0].newest, imports, notes)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from profiler.cli.terminal import STDOUT, Printed, check_documents, leave, progress, write_json
from profiler.errors import InputError, OutputError
from profiler.options import key_values
from profiler.trace.events import DropKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from profiler.analysis.context import Selection
    from profiler.analysis.document import Report
    from profiler.analysis.result import Analysis
    from profiler.compare.compare import Comparison
    from profiler.report.html.page import Packing
    from profiler.run.run import Run
    from profiler.sources import Found, Imports, Source
    from profiler.trace.events import Drop


# --- The files and folders that `analyze` writes beside what it prints.


class ReportFiles(Struct, frozen=True):
    """What was asked for, None: not; "-" as JSON file is stdout. `html` is None where the page goes
    beside the trace, `no_html` where there is none; `language` is that in which it opens."""

    json: Path | None
    csv: Path | None
    parquet: Path | None
    html: Path | None
    no_html: bool = False
    language: str = "auto"

    @property
    def only_json(self) -> bool:
        """Whether the JSON document is all that goes to stdout."""
        return self.json == STDOUT

    def check(self) -> None:
        """Refuse, before any work, to write over what is a trace and no report, or no page where
        one is asked for."""
        if self.html == STDOUT:
            raise OutputError("--html - is not there: the page goes to a file")
        check_documents({"--json": self.json, "--html": self.html})
        if self.html is not None and self.no_html:
            raise InputError("--html and --no-html contradict each other: give one of them")

    def packing(self, source: Source) -> Packing | None:
        """What packs the trace into the page, begun before the run is read; None without a page."""
        from profiler.report.html.page import Packing

        return None if self.no_html else Packing(source.path)

    def write_tables(self, run: Run, analysis: Analysis) -> list[Path]:
        """Write JSON, CSV and Parquet as asked for; returns what was written to disk."""
        from profiler.analysis.roles import with_roles
        from profiler.report.files import to_json, write_csv_tables, write_parquet_tables

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

    def write_page(
        self, run: Run, source: Source, analysis: Analysis, report: Report, packing: Packing
    ) -> Path:
        """Write the HTML page where it was asked for, or beside the trace; returns its path."""
        from profiler.analysis.roles import with_roles
        from profiler.report.html.page import write_html
        from profiler.sources import page_path

        path = self.html or page_path(source, filtered=bool(analysis.run.selection))
        try:
            run = with_roles(run, analysis.kinds, analysis.kind_roles)
            write_html(run, analysis, path, self.language, report=report, packing=packing)
        except (OSError, OutputError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            advice = "give another place with --html FILE, or --no-html to leave it out"
            raise OutputError(f"the page {path} was not written ({reason}): {advice}") from error
        return path


# --- Runs as the commands take them: found at paths, imported where they are foreign, whole where
# times count.
#
#     with opened([path], importing, out) as (found, imports):
#         run = load_as_recorded(found[0].newest, imports, notes)


_DAMAGE = (DropKind.TRUNCATED_FILE, DropKind.MISSING_FILE, DropKind.CHANGED_FILE)
_NAMED = 4  # other runs that are named


@contextmanager
def opened(
    paths: Iterable[Path], importing: Iterable[str] | None, out: Path | None
) -> Iterator[tuple[list[Found], Imports]]:
    """What each of `paths` stands for, and what imports those that are foreign: with the options
    `importing`, into the folder `out`, which keeps them, else for as long as the block lasts.

    Raises InputError for what cannot be read, and for an `out` without anything to keep.
    """
    from profiler.sources import Imports, check_kept, resolve

    found = resolve([[path] for path in paths], key_values(importing, "--import", "pipeline=sd3"))
    check_kept(found, out)
    with Imports(out, leave) as imports:
        yield found, imports


def other_runs(found: Found) -> Iterator[str]:
    """A line that names the older runs of a folder, and one for each that is left out."""
    others = found.others
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        names = ", ".join(others[:_NAMED])
        yield f"the newest of {len(others) + 1} runs in {found.given}; others: {names}{more}"
    yield from left_out(found)


def left_out(found: Found) -> Iterator[str]:
    """A line for each run that was killed, still goes on or has no call: the newest run may be one
    of them."""
    from profiler.trace.bundle import State

    for entry in found.unfinished:
        advice = f"`profile-sd3 merge {entry.path}`"
        if entry.state is State.RUNNING:
            yield f"the run in {entry.path} is still going on and was left out"
        elif entry.state is State.EMPTY:
            yield f"{entry.path} holds no call and was left out: its run ended before its first"
        elif entry.state is State.CUT:
            yield f"{entry.path} has not ended and was left out: {advice}"
        else:
            yield f"{entry.path} has no manifest and was left out: {advice}"


def load_as_recorded(
    source: Source, imports: Imports, notes: list[str], *, whole: bool = False
) -> Run:
    """Load a run, of which `notes` gets what its manifest says to be missing, as of one that was
    killed and merged. Raises InputError where it has no call, or files have been damaged since;
    where it is to be `whole`, also for files that were missing then."""
    from profiler.analysis.dropped_data import what_happened
    from profiler.sources import load_source

    run = load_source(imports.ready(source))
    damaged = damaged_files(run) if whole else unexpected_damage(run)
    if damaged:
        raise InputError(
            f"{source.place} is not whole ({damaged[0].where}: {what_happened(damaged[0])}): copy "
            "it again or record the run again"
        )
    if run.calls.is_empty():
        raise InputError(
            f"{source.place} holds no call of a submodule: give a bundle, or what another profiler "
            "recorded of a pipeline"
        )
    notes.extend(missing(run, source))
    return run


def missing(run: Run, source: Source) -> Iterator[str]:
    """A line for each thing that the run's manifest says to be missing of it."""
    from profiler.analysis.table_text import worded_note as worded

    for drop in run.info.drops:
        if drop.kind in _DAMAGE or drop.kind == DropKind.ABORTED_RUN:
            yield f"not whole: {source.place}: {drop.where}: {worded(drop.detail)}"


def load_calls(source: Source) -> Run:
    """Load a run, which may be damaged. Raises InputError where it has no call."""
    from profiler.sources import load_source

    run = load_source(source)
    if run.calls.is_empty():
        check_whole(run, source)
        raise InputError(_without_calls(source))
    return run


def damaged_files(run: Run) -> list[Drop]:
    """The files of `run` that are cut, missing or changed."""
    return [drop for drop in run.drops if drop.kind in _DAMAGE]


def unexpected_damage(run: Run) -> list[Drop]:
    """The files of `run` that are cut, missing or changed, and of which its manifest knows nothing:
    that of a run that was killed and merged tells what it lacks."""
    return [drop for drop in damaged_files(run) if drop not in run.info.drops]


def check_whole(run: Run, source: Source) -> None:
    """Raises InputError, in one sentence, where files of the run are cut, missing or changed since
    its manifest was written."""
    damaged = unexpected_damage(run)
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        raise InputError(_damage(source, damaged[0]) + more)


def _damage(source: Source, drop: Drop) -> str:
    from profiler.analysis.dropped_data import what_happened
    from profiler.sources import Kind

    path = source.place if source.kind is Kind.TRACE else source.place / drop.where
    if drop.kind == DropKind.MISSING_FILE:
        return f"{path} is missing, so the report lacks it: copy it back or record the run again"
    return f"{path} is not whole ({what_happened(drop)}): copy it again or record the run again"


def _without_calls(source: Source) -> str:
    from profiler.sources import Kind
    from profiler.trace.manifest import MANIFEST_NAME

    place = source.place
    if source.kind is not Kind.TRACE:
        return f"{place} holds no call: the run ended before its first, record it again"
    if (place.parent / MANIFEST_NAME).is_file():
        return f"{place} holds no call of its run: give the whole bundle {place.parent}"
    return (
        f"{place} is a Perfetto trace but holds no profile-sd3 call: look at its slices with "
        f"profiler.load, or run `profile-sd3 import {place}` if RBLN's profiler wrote it"
    )


# --- The report of a run as `analyze` makes it: found, read, compared, analyzed, written, printed.


class Request(Struct, frozen=True):
    """What is asked of the run at `path`: `importing` are the importer's options, `out` keeps what
    is imported, `against` are baselines, `memory` is bytes by device, `top` rows of each table,
    `printed` what the terminal shows."""

    path: Path
    selection: Selection
    files: ReportFiles
    against: Sequence[Path] = ()
    importing: Sequence[str] = ()
    out: Path | None = None
    device_profile: Path | None = None
    memory: Mapping[str, int] | None = None
    top: int | None = None
    printed: Printed = field(default_factory=Printed)


class _Reported(Struct, frozen=True):
    """The run, its report, what was written of it, and the page's failure."""

    run: Run
    source: Source
    analysis: Analysis
    report: Report
    notes: tuple[str, ...]
    pages: tuple[Path, ...] = ()
    failure: OutputError | None = None


def report_run(request: Request) -> None:
    """Report on the run; raises InputError, after all is out, where files of it are damaged, and
    OutputError where the page could not be written."""
    paths = [request.path, *request.against]
    with (
        progress(f"reading {request.path}") as say,
        opened(paths, request.importing, request.out) as (found, imports),
    ):
        done = _reported(request, found, imports, say)
    written = [*request.files.write_tables(done.run, done.analysis), *done.pages]
    if not request.files.only_json:
        _print(request.printed, done, written)
    if done.failure is not None:
        raise done.failure
    check_whole(done.run, done.source)


def _print(printed: Printed, done: _Reported, written: Sequence[Path]) -> None:
    """Print what was asked for of the report."""
    report, place, notes = done.report, done.source.place, done.notes
    if report.opening is None:
        printed.print(lambda: report, None, notes=notes, written=written)
        return
    opening = report.opening

    def brief(console: Console) -> None:
        from profiler.report.terminal import print_opening

        print_opening(console, opening, place, notes=notes, below=len(written))

    printed.print(lambda: report, brief, notes=notes, written=written)


def _reported(
    request: Request, found: Sequence[Found], imports: Imports, say: Callable[[str], None]
) -> _Reported:
    """Read and analyze the newest run of the first of `found`, and write its page: before anything
    is printed, since `… | head` ends the program."""
    from profiler.analysis.analyze import analyze
    from profiler.analysis.device_profiles import find_profiles, read_profiles
    from profiler.analysis.profiling_overhead import beside
    from profiler.metrics import summarize_analysis

    source = imports.ready(found[0].newest)
    packing = request.files.packing(source)
    run = load_calls(source)
    of_bases: list[str] = []
    comparison = _compared(run, found[0].newest.place, found[1:], imports, of_bases)
    measured = request.device_profile
    profiles = read_profiles(measured) if measured else find_profiles(source.place)
    say(f"analyzing {source.place}")
    analysis = analyze(run, request.selection, profiles, request.memory or {})
    report = _report(run, source, analysis, comparison, request.top)
    summarize_analysis(analysis, source)
    notes = (*_not_compared(comparison, found[1:]), *of_bases, *other_runs(found[0]))
    notes = (*notes, *beside(run.info))
    pages: tuple[Path, ...] = ()
    failure = None
    if packing is not None:
        say("writing the page")
        try:
            pages = (request.files.write_page(run, source, analysis, report, packing),)
        except OutputError as error:
            failure = error
    return _Reported(run, source, analysis, report, notes, pages, failure)


def _compared(
    run: Run, place: Path, against: Sequence[Found], imports: Imports, notes: list[str]
) -> Comparison | None:
    """The run, given as `place`, against its baseline; None where none was given, or files of the
    run have been damaged. What the baseline lacks is added to `notes`."""
    if not against:
        return None
    from profiler.compare.compare import compare
    from profiler.compare.measure import measure

    own = place.resolve()
    sources = [base for found in against for base in reversed(found.sources)]
    bases = [base for base in sources if base.place.resolve() != own]
    if not bases:
        raise InputError(f"--against names only {place} itself: give another run")
    measured = [measure(load_as_recorded(base, imports, notes)) for base in bases]
    return None if unexpected_damage(run) else compare(measured, [measure(run)])


def _not_compared(comparison: Comparison | None, against: Sequence[Found]) -> Iterator[str]:
    if comparison is None and against:
        yield "not compared: files of this run are damaged"


def _report(
    run: Run, source: Source, analysis: Analysis, against: Comparison | None, top: int | None
) -> Report:
    """The report that is printed and that the page shows."""
    from profiler.analysis.overview import extent
    from profiler.analysis.result import ReportInput
    from profiler.report.build import build_report

    begin_ns, end_ns = extent(run)
    return build_report(ReportInput(analysis, begin_ns, end_ns, against, source.path, top))
