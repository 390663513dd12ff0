"""`profile-sd3 analyze`: the report of a run, in the terminal, as a page and as data."""

from __future__ import annotations

from pathlib import Path

from profiler.cli.commands.fleet import LOCAL_WORKERS, SCHEDULER, analyze_each
from profiler.cli.main import complete_runs, complete_sections
from profiler.cli.options import (
    CALL_DEVICES,
    CALL_STAGES,
    CALL_STEPS,
    CALL_SUBMODULES,
    DEVICE_PROFILE_FILE,
    IMPORT_OPTIONS,
    KEPT_IMPORT,
    PAGE_LANGUAGE,
    Language,
    list_option,
)
from profiler.cli.run_report import report_run
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import run_sections


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
        "--top N  Rows of each table; 0: leave out those that rank.  [default: 10, 15 operators]",
        min=0,
    )
    full: bool = opt("--full  Print all sections, not 40 lines.")
    section: list[str] = opt(
        "--section NAME  Print these sections alone, with commas: idle,roofline; may be repeated.",
        autocompletion=complete_sections,
    )
    list_sections: bool = list_option(run_sections)
    stage: list[str] = CALL_STAGES
    submodule: list[str] = CALL_SUBMODULES
    device: list[str] = CALL_DEVICES
    step: list[str] = CALL_STEPS
    json_file: Path | None = opt(
        "--json FILE  Write the report as JSON, over FILE if it exists; -: to stdout, and only "
        "that."
    )
    csv_dir: Path | None = opt("--csv DIR  Write one CSV a table into DIR, over those of before.")
    parquet_dir: Path | None = opt(
        "--parquet DIR  Write the run and its tables as Parquet into DIR, which is new or empty."
    )
    against: list[Path] = opt(
        "--against BASE  Compare with this run, or with all in a folder: one line and a section; "
        "may be repeated. `diff` prints all of it."
    )
    html: Path | None = opt(
        "--html FILE  Write the page there, over FILE if it exists.  [default: report.html in "
        "the bundle; beside a single .pb or what another profiler wrote, under its name]"
    )
    importing: list[str] = IMPORT_OPTIONS
    out: Path | None = KEPT_IMPORT
    device_profile: Path | None = DEVICE_PROFILE_FILE
    device_memory: list[str] = opt(
        "--device-memory [DEVICE=]SIZE  Memory of a device, 16GiB or cuda:0=80GB, for the "
        "head-room; may be repeated.  [default: what the run knows of its devices]"
    )
    language: Language | None = PAGE_LANGUAGE
    no_html: bool = opt("--no-html  Write no page.")
    watching: bool = opt(
        "--watch  Show a run that goes on, call by call, and report on it when it has ended."
    )
    every: bool = opt("--all  Analyze every bundle of a folder, not the newest only.")
    workers: int = LOCAL_WORKERS
    scheduler: str = SCHEDULER


def analyze(options: AnalyzeOptions) -> None:
    """Report where the time of a run went.

    Prints the most important figures and findings in 40 lines, and writes the whole report as a
    self-contained page. Of several runs, or with --all, each gets its page; --no-html alone counts.
    """
    if options.more or options.every or options.workers or options.scheduler:
        analyze_each(options)
    else:
        report_run(options)


SUBCOMMAND = Subcommand(analyze, place=40, about_runs=True)
