"""Make the report of a run for `analyze`: find, import, analyze, write and print it.

with opened([path], importing, out) as (sources, imports):
    run = load_as_recorded(sources[0].newest, imports, notes)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli.options import device_sizes
from profiler.cli.terminal import (
    STDOUT,
    check_documents,
    chosen_sections,
    is_drawn_on,
    keep_to_the_end,
    leave,
    print_chosen,
    progress,
    run_sections,
    terminal,
    write_json,
)
from profiler.errors import InputError, OutputError
from profiler.options import key_values, name_list
from profiler.trace.events import DropKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profiler.analysis.document import Report
    from profiler.analysis.result import Analysis
    from profiler.cli.commands.analyze import AnalyzeOptions
    from profiler.compare.compare import Comparison
    from profiler.report.html.page import Packing
    from profiler.run.run import Run
    from profiler.sources import Found, Imports, Source
    from profiler.trace.events import Drop


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
    """Yield the runs at each of `paths`, and what imports those that are foreign: with the options
    `importing`, into the folder `out`, which keeps them, else until the block ends.

    Raises InputError for what cannot be read, and for an `out` without anything to keep.
    """
    from profiler.sources import Imports, check_kept, resolve

    found = resolve([[path] for path in paths], key_values(importing, "--import", "pipeline=sd3"))
    check_kept(found, out)
    with Imports(out, leave) as imports:
        yield found, imports


def other_runs(found: Found) -> Iterator[str]:
    """Yield a line with the older runs of a folder, and one for each that is left out."""
    others = found.others
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        names = ", ".join(others[:_NAMED])
        yield f"the newest of {len(others) + 1} runs in {found.given}; others: {names}{more}"
    yield from left_out(found)


def left_out(found: Found) -> Iterator[str]:
    """Yield a line for each run that was killed, still goes on or has no call: the newest run may
    be one of them."""
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
    """Yield a line for each thing that is missing according to the run's manifest."""
    from profiler.analysis.table_text import worded_note as worded

    for drop in run.info.drops:
        if drop.kind in _DAMAGE or drop.kind == DropKind.ABORTED_RUN:
            yield f"not whole: {source.place}: {drop.where}: {worded(drop.detail)}"


def load_calls(source: Source) -> Run:
    """Load a run, which may be damaged. Raises InputError if it has no call."""
    from profiler.sources import load_source

    run = load_source(source)
    if run.calls.is_empty():
        check_whole(run, source)
        raise InputError(_without_calls(source))
    return run


def damaged_files(run: Run) -> list[Drop]:
    """Return the files of `run` that are cut, missing or changed."""
    return [drop for drop in run.drops if drop.kind in _DAMAGE]


def unexpected_damage(run: Run) -> list[Drop]:
    """Return the files of `run` that are cut, missing or changed, and that its manifest does not
    report: that of a run that was killed and merged lists what it lacks."""
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


def report_run(options: AnalyzeOptions) -> None:
    """Report on the run; raises InputError, after all is out, if files of it are damaged, and
    OutputError if the page could not be written."""
    memory = device_sizes(options.device_memory)
    sections = chosen_sections(options.section, run_sections, full=options.full)
    keep_to_the_end()
    _check_files(options)
    path = _watched(options.path) if options.watching else options.path
    selected = [*map(name_list, (options.stage, options.submodule, options.device, options.step))]
    paths, pages, failure = [path, *options.against], [], None
    with (
        progress(f"reading {path}") as say,
        opened(paths, options.importing, options.out) as (found, imports),
    ):
        # What makes a report is imported once there is a run.
        from profiler.analysis.analyze import analyze
        from profiler.analysis.context import Selection
        from profiler.analysis.device_profiles import find_profiles, read_profiles
        from profiler.analysis.overview import extent
        from profiler.analysis.profiling_overhead import beside
        from profiler.analysis.result import ReportInput
        from profiler.metrics import summarize_analysis
        from profiler.report.build import build_report
        from profiler.report.html.page import Packing

        source = imports.ready(found[0].newest)
        # The trace is packed meanwhile.
        packing = None if options.no_html else Packing(source.path)
        run = load_calls(source)
        of_bases: list[str] = []
        comparison = _compared(run, found[0].newest.place, found[1:], imports, of_bases)
        measured = options.device_profile
        profiles = read_profiles(measured) if measured else find_profiles(source.place)
        say(f"analyzing {source.place}")
        analysis = analyze(run, Selection(*selected), profiles, memory)
        shown = ReportInput(analysis, *extent(run), comparison, source.path, options.top)
        report = build_report(shown)
        summarize_analysis(analysis, source)
        notes = [*of_bases, *other_runs(found[0]), *beside(run.info)]
        if comparison is None and options.against:
            notes.insert(0, "not compared: files of this run are damaged")
        if packing is not None:
            # Before anything is printed, because `… | head` ends the program.
            say("writing the page")
            try:
                pages = [_write_page(options, run, source, analysis, report, packing)]
            except OutputError as error:
                failure = error
    written = [*_write_tables(options, run, analysis), *pages]
    if options.json_file != STDOUT:
        from profiler.report.terminal import print_opening

        opening, full, lines = report.opening, options.full, len(written)
        brief = None
        if opening is not None:
            brief = partial(
                print_opening, opening=opening, place=source.place, notes=notes, below=lines
            )
        print_chosen(lambda: report, brief, sections, full=full, notes=notes, written=written)
    if failure is not None:
        raise failure
    check_whole(run, source)


def _check_files(options: AnalyzeOptions) -> None:
    """Refuse, before any work, to write over what is a trace and no report, or no page if one is
    asked for."""
    if options.html == STDOUT:
        raise OutputError("--html - is not there: the page goes to a file")
    check_documents({"--json": options.json_file, "--html": options.html})
    if options.html is not None and options.no_html:
        raise InputError("--html and --no-html contradict each other: give one of them")


def _watched(path: Path) -> Path:
    """Show the run that goes on at `path` until it has ended; return the path to report on."""
    from profiler.cli.commands.record import watch

    return watch(path, terminal(), drawn=is_drawn_on(sys.stdout))


def _compared(
    run: Run, place: Path, against: Sequence[Found], imports: Imports, notes: list[str]
) -> Comparison | None:
    """Compare the run, given as `place`, with its baseline; None if none was given, or files of
    the run have been damaged. What the baseline lacks is added to `notes`."""
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


def _write_tables(options: AnalyzeOptions, run: Run, analysis: Analysis) -> Iterator[Path]:
    """Write JSON, CSV and Parquet as asked for; yield what was written to disk."""
    from profiler.analysis.roles import with_roles
    from profiler.report.files import to_json, write_csv_tables, write_parquet_tables

    if options.json_file is not None:
        write_json(options.json_file, to_json(analysis))
        if options.json_file != STDOUT:
            yield options.json_file
    if options.csv_dir is not None:
        write_csv_tables(analysis, options.csv_dir)
        yield options.csv_dir
    if options.parquet_dir is not None:
        filled = with_roles(run, analysis.kinds, analysis.kind_roles)
        write_parquet_tables(filled, analysis, options.parquet_dir)
        yield options.parquet_dir


def _write_page(
    options: AnalyzeOptions,
    run: Run,
    source: Source,
    analysis: Analysis,
    report: Report,
    packing: Packing,
) -> Path:
    """Write the HTML page to `--html`, or beside the trace; return its path."""
    from profiler.analysis.roles import with_roles
    from profiler.report.html.page import write_html
    from profiler.sources import page_path

    path = options.html or page_path(source, filtered=bool(analysis.run.selection))
    try:
        run = with_roles(run, analysis.kinds, analysis.kind_roles)
        language = options.language or "auto"
        write_html(run, analysis, path, language, report=report, packing=packing)
    except (OSError, OutputError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        advice = "give another place with --html FILE, or --no-html to leave it out"
        raise OutputError(f"the page {path} was not written ({reason}): {advice}") from error
    return path
