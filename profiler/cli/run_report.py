"""The report of a run as `analyze` makes it: found, read, compared, analyzed, written, printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from profiler.cli.printed import Printed
from profiler.cli.progress import progress
from profiler.cli.runs import (
    check_whole,
    load_as_recorded,
    load_calls,
    opened,
    other_runs,
    unexpected_damage,
)
from profiler.errors import InputError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from profiler.analysis.context import Selection
    from profiler.analysis.document import Report
    from profiler.analysis.result import Analysis
    from profiler.cli.report_files import ReportFiles
    from profiler.compare.compare import Comparison
    from profiler.run.run import Run
    from profiler.sources import Found, Imports, Source

__all__ = ["Request", "report_run"]


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
