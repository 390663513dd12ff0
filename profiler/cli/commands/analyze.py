"""`profile-sd3 analyze`: the report of a run, in the terminal, as a page and as data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli import terminal
from profiler.cli.main import complete_runs, complete_sections
from profiler.cli.runs import (
    as_host_work,
    check_whole,
    damage_line,
    exit_if_damaged,
    load_as_recorded,
    load_calls,
    opened,
    other_runs,
    tell_failed,
    unexpected_damage,
)
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import STDOUT, tell
from profiler.errors import InputError, OutputError
from profiler.text import name_list

if TYPE_CHECKING:
    from profiler.analysis.document import Report
    from profiler.analysis.result import Analysis
    from profiler.compare.compare import Comparison
    from profiler.report.html.library import Packing
    from profiler.run.run import Run
    from profiler.tools.sources import Found, Imports, Source


@cli_options
class AnalyzeOptions:
    """Options of `profile-sd3 analyze`."""

    path: Path = arg(
        "PATH  A bundle, a folder of bundles (the newest is taken), one .pb, a Parquet run, or "
        "what `import` takes.",
        default=Path("traces"),
        autocompletion=complete_runs,
    )
    more: list[Path] = arg("[PATH...]  Further runs: each gets its page and a line.", default=None)
    top: int | None = opt(
        "N  Rows of each table; 0: leave out those that rank.  [default: 10, 15 operators]", min=0
    )
    full: bool = opt("Print all sections, not 40 lines.")
    section: list[str] = opt(
        "NAME  Print these sections alone, with commas: idle,roofline; may be repeated.",
        autocompletion=complete_sections,
    )
    list_sections: bool = shared.list_option(terminal.run_sections)
    stage: list[str] = shared.CALL_STAGES
    submodule: list[str] = shared.CALL_SUBMODULES
    device: list[str] = shared.CALL_DEVICES
    step: list[str] = shared.CALL_STEPS
    json_file: Path | None = opt(
        "--json FILE  Write the report as JSON, over FILE if it exists; -: to stdout, and only "
        "that."
    )
    csv_dir: Path | None = opt("--csv DIR  Write one CSV a table into DIR, over those of before.")
    parquet_dir: Path | None = opt(
        "--parquet DIR  Write the run and its tables as Parquet into DIR, which is new or empty."
    )
    against: list[Path] = opt(
        "BASE  Compare with this run, or with all in a folder: one line and a section; may be "
        "repeated. `diff` prints all of it."
    )
    html: Path | None = opt(
        "FILE  Write the page there, over FILE if it exists.  [default: report.html in the bundle; "
        "of a single .pb or what another profiler wrote NAME.report.html in the current folder]"
    )
    importing: list[str] = shared.IMPORT_OPTIONS
    out: Path | None = shared.KEPT_IMPORT
    device_profile: Path | None = shared.DEVICE_PROFILE_FILE
    device_memory: list[str] = opt(
        "[DEVICE=]SIZE  Memory of a device, 16GiB or cuda:0=80GB, for the head-room; may be "
        "repeated.  [default: what the run knows of its devices]"
    )
    language: shared.Language | None = shared.PAGE_LANGUAGE
    no_html: bool = opt("Write no page.")
    watching: bool = opt(
        "--watch  Follow a run in progress, call by call, and report on it when it ends."
    )
    every: bool = opt("--all  Analyze every bundle of a folder, not the newest only.")
    strict: bool = shared.STRICT
    as_recorded: bool = opt(
        "Use the recorded durations of work that was shortened because it cannot have run that "
        "long."
    )
    workers: int = shared.LOCAL_WORKERS
    scheduler: str = shared.SCHEDULER


def analyze(options: AnalyzeOptions) -> None:
    """Report where the time of a run went.

    Prints the most important figures and findings in 40 lines, and writes the whole report as a
    self-contained page. Of several runs, or with --all, each gets its page; of the options
    of files only --no-html applies then. Exit code 3, with --strict: the recording is damaged.
    """
    if options.more or options.every or options.workers or options.scheduler:
        _analyze_each(options)
        return
    memory = shared.device_sizes(options.device_memory)
    sections = terminal.chosen_sections(options.section, terminal.run_sections, full=options.full)
    terminal.keep_to_the_end()
    _check_files(options)
    path = options.path
    if options.watching:
        from profiler.cli.commands.record import watch

        path = watch(path, terminal.terminal(), drawn=terminal.is_drawn_on(sys.stdout))
    selected = [*map(name_list, (options.stage, options.submodule, options.device, options.step))]
    paths = [path, *options.against]
    packing = None
    with opened(paths, options.importing, options.out) as (found, imports):
        with terminal.progress(f"reading {path}", of=path) as say:
            # The modules of a report are imported only once there is a run.
            from profiler.analysis.analyze import analyze
            from profiler.analysis.context import Selection
            from profiler.analysis.device_profiles import find_profiles, read_profiles
            from profiler.analysis.dropped_data import beside
            from profiler.analysis.overview import extent
            from profiler.analysis.result import ReportInput
            from profiler.report.build import first_screen, with_sections
            from profiler.run.health import as_recorded
            from profiler.tools.metrics import summarize_analysis

            source, of_host = as_host_work(found[0].newest)
            source = imports.ready(source)
            if not options.no_html:
                from profiler.report.html.library import Packing

                packing = Packing(source.path)  # the trace is packed meanwhile
            run = load_calls(source)
            if options.as_recorded:
                run = as_recorded(run)
            of_bases: list[str] = []
            comparison = _compared(run, found[0].newest.place, found[1:], imports, of_bases)
            measured = options.device_profile
            profiles = read_profiles(measured) if measured else find_profiles(source.place)
            say(f"analyzing {source.place}")
            analysis = analyze(run, Selection(*selected), profiles, memory)
            shown = ReportInput(analysis, *extent(run), comparison, source.path, options.top)
            report = first_screen(shown)
            whole = cache(partial(with_sections, report, shown))
            if not options.as_recorded:
                summarize_analysis(analysis, source)
            notes = [*of_bases, *of_host, *other_runs(found[0]), *beside(run.info)]
            if comparison is None and options.against and not of_bases:
                notes.insert(0, "not compared: files of this run are damaged")
        # The text first: the page takes longer.
        broken = _print_text(options, report, whole, source.place, notes, sections)
        files = run, source, analysis, whole
        written, failure = _write_files(options, *files, packing)
    if broken is not None:
        raise broken
    if options.json_file != STDOUT:
        terminal.print_written(written, apart=bool(sections or options.full))
    if failure is not None:
        raise failure
    check_whole(run, source)
    if options.strict:
        exit_if_damaged(run)


def _print_text(
    options: AnalyzeOptions,
    report: Report,
    whole: Callable[[], Report],
    place: Path,
    notes: Sequence[str],
    sections: Sequence[str],
) -> BrokenPipeError | None:
    """Print the report as asked for, with room for a line about each file that is written
    afterwards. Returns the error if stdout was closed (`… | head`), so that the files are still
    written."""
    from profiler.report.terminal import print_opening

    if options.json_file == STDOUT:
        return None
    files = (options.json_file, options.csv_dir, options.parquet_dir)
    below = sum(one is not None for one in files) + (not options.no_html)
    brief = None
    if report.opening is not None:
        brief = partial(
            print_opening, opening=report.opening, place=place, notes=notes, below=below
        )
    try:
        terminal.print_chosen(whole, brief, sections, full=options.full, notes=notes)
        sys.stdout.flush()
    except BrokenPipeError as error:
        return error
    return None


def _write_files(
    options: AnalyzeOptions,
    run: Run,
    source: Source,
    analysis: Analysis,
    whole: Callable[[], Report],
    packing: Packing | None,
) -> tuple[list[Path], OutputError | None]:
    """Write the page and the tables; return their paths, and why the page could not be written."""
    pages, failure = [], None
    if packing is not None:
        try:
            with terminal.progress("writing the page"):
                pages = [_write_page(options, run, source, analysis, whole(), packing)]
        except OutputError as error:
            failure = error
    return [*_write_tables(options, run, analysis), *pages], failure


def _analyze_each(options: AnalyzeOptions) -> None:
    """Analyze every run of the paths, all of a folder. Raises InputError, after all others are
    done, if some could not be read."""
    if options.strict or options.as_recorded:
        name = "--strict" if options.strict else "--as-recorded"
        raise InputError(f"{name} is about one run: leave out --all, --workers and further paths")
    from profiler.fleet.add import analyze_many, found_runs
    from profiler.fleet.workers import Workers
    from profiler.text import duration

    workers = Workers(options.workers, options.scheduler)
    places, failed = found_runs([options.path, *options.more], {})
    with terminal.progress("analyzing", after_s=0.5) as show:
        done = analyze_many(places, workers, pages=not options.no_html, say=terminal.of_many(show))
    for one in done:
        if not one.reason:
            tell("  ".join([one.place, duration(one.end_to_end_ns), *one.written]))
    tell_failed([*done, *failed], "left out", "read")


def _check_files(options: AnalyzeOptions) -> None:
    """Refuse, before any work, to overwrite a file that is no report, or options that contradict
    each other."""
    if options.html == STDOUT:
        raise OutputError("--html - is not there: the page goes to a file")
    terminal.check_documents({"--json": options.json_file, "--html": options.html})
    if options.html is not None and options.no_html:
        raise InputError("--html and --no-html contradict each other: give one of them")


def _compared(
    run: Run, place: Path, against: Sequence[Found], imports: Imports, notes: list[str]
) -> Comparison | None:
    """Compare the run, given as `place`, with its baseline; None if none was given, or files of the
    run are damaged. Adds to `notes` what the baseline lacks."""
    if not against:
        return None
    from profiler.compare.compare import compare
    from profiler.compare.measure import measure

    own = place.resolve()
    sources = [base for found in against for base in reversed(found.sources)]
    bases = [base for base in sources if base.place.resolve() != own]
    if not bases:
        raise InputError(f"--against names only {place} itself: give another run")
    damaged, measured = damage_line(place, run.info), []
    for base in bases:
        loaded = load_as_recorded(base, imports, notes)
        damaged += damage_line(base.place, loaded.info)
        measured.append(measure(loaded))
    if damaged:
        notes[:0] = [f"not compared: {line}" for line in damaged]
        return None
    return None if unexpected_damage(run) else compare(measured, [measure(run)])


def _write_tables(options: AnalyzeOptions, run: Run, analysis: Analysis) -> Iterator[Path]:
    """Write JSON, CSV and Parquet as asked for; yield what was written to disk."""
    if not (options.json_file or options.csv_dir or options.parquet_dir):
        return
    from profiler.analysis.roles import with_roles
    from profiler.report.files import to_json, write_csv_tables, write_parquet_tables

    if options.json_file is not None:
        terminal.write_json(options.json_file, to_json(analysis))
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
    from profiler.tools.sources import page_path

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


SUBCOMMAND = Subcommand(
    analyze,
    place=40,
    about_runs=True,
    examples=(
        ("profile-sd3 analyze", "the newest run in traces/"),
        ("profile-sd3 analyze trace.json.gz", "a file of torch.profiler"),
        ("profile-sd3 analyze --section idle,steps", "two sections alone"),
        ("profile-sd3 analyze new --against old", "what changed since"),
    ),
    panels={
        "What to show": "top full section list_sections stage submodule device step language "
        "watching",
        "Compare": "against",
        "Files": "html no_html json_file csv_dir parquet_dir out every",
        "Devices": "device_memory device_profile",
    },
)
