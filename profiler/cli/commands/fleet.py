"""`profile-sd3 fleet`: the subcommands that work on data sets of many runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profiler.cli import options as shared
from profiler.cli.commands.query import answer, answer_files, print_rows
from profiler.cli.runs import tell_failed
from profiler.cli.subcommands import Subcommand, arg, cli_options, command_group, opt
from profiler.cli.terminal import (
    STDOUT,
    check_documents,
    of_many,
    progress,
    tell,
    write_result,
    write_text,
)
from profiler.errors import InputError, OutputError
from profiler.text import counted, key_values, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from profiler.compare.compare import Comparison
    from profiler.fleet.dataset import Dataset
    from profiler.fleet.history import HistoryChange, MetricHistory


# --- `profile-sd3 fleet add`: add runs to a data set.


_LOOSE = 200  # files of runs that were not compacted


@cli_options
class AddOptions:
    """Options of `profile-sd3 fleet add`."""

    dataset: str = shared.DATASET_PLACE
    paths: list[Path] = arg(
        "PATH...  Bundles, folders of bundles (all of them), .pb files, Parquet runs, or what "
        "`import` takes."
    )
    commit: str | None = opt(
        "HASH  Commit of the program that ran.  [default: what was recorded with the run]"
    )
    label: list[str] = opt("KEY=VALUE  Label these runs; may be repeated.")
    keep_paths: bool = opt(
        "Keep where each bundle is, for queries of bundles, comparisons and links to reports."
    )
    importing: list[str] = shared.IMPORT_OPTIONS
    workers: int = shared.LOCAL_WORKERS
    scheduler: str = shared.SCHEDULER


def add(options: AddOptions) -> None:
    """Add runs to a data set, which is made if there is none.

    A run that the data set has is left out, whatever its folder is called. What cannot be read is
    said at the end, and stops nothing.
    """
    from profiler.cli.commands.record import checked_commit
    from profiler.fleet.add import State, Wishes
    from profiler.fleet.add import add as add_runs
    from profiler.fleet.storage import open_storage, snapshot
    from profiler.fleet.workers import Workers

    storage = open_storage(options.dataset)
    importing = key_values(options.importing, "--import", "pipeline=sd3")
    wishes = Wishes(
        None if options.commit is None else checked_commit(options.commit),
        key_values(options.label, "--label", "branch=main"),
        importing,
        Workers(options.workers, options.scheduler),
        options.keep_paths,
    )
    looked_at = ", ".join(map(str, options.paths[:3]))
    with progress(f"looking for runs in {looked_at}", after_s=0.5) as show:
        outcomes = add_runs(storage, options.paths, wishes, say=of_many(show, " runs"))
    states = [one.state for one in outcomes]
    added, known = states.count(State.ADDED), states.count(State.KNOWN)
    dataset = options.dataset
    tell(f"added {counted(added, 'run')} to {dataset}" + (f", {known:,} it has" if known else ""))
    loose = snapshot(storage).loose
    if loose >= _LOOSE:
        advice = f"`profile-sd3 fleet compact {dataset}` makes questions faster"
        tell(f"{dataset} has {loose:,} files of runs: {advice}", err=True)
    tell_failed(outcomes, "not added", "added", "run")


# --- `profile-sd3 fleet remove`: remove runs from a data set.


@cli_options
class RemoveOptions:
    """Options of `profile-sd3 fleet remove`."""

    dataset: str = shared.DATASET_PLACE
    runs: list[str] = arg(
        "[RUN...]  Runs by key, its first 8 digits at least, or name.", default=None
    )
    older_than: str | None = opt("AGE  Only runs that started longer ago: 12h, 90d, 6w, 1y.")
    where: list[str] = shared.WHERE_RUNS
    dry_run: bool = opt("Say which, and remove none.")


def remove(options: RemoveOptions) -> None:
    """Remove runs from a data set; their bundles stay where they are.

    They stop to count at once, and their rows go with the next `fleet compact`.
    """
    from profiler.fleet.dataset import remove as remove_runs
    from profiler.fleet.dataset import selected
    from profiler.fleet.storage import open_storage, period

    if not options.runs and not options.where and options.older_than is None:
        raise InputError("name runs, or say which: --older-than 90d, --where label.branch=old")
    storage = open_storage(options.dataset)
    age = None if options.older_than is None else period(options.older_than)
    found = selected(storage, options.runs, options.where, age)
    for key, name in found.select("run", "run_id").rows() if options.dry_run else ():
        tell(f"{key}  {name}")
    if options.dry_run:
        tell(f"{counted(len(found), 'run')} would be removed")
        return
    tell(f"removed {counted(remove_runs(storage, found), 'run')} from {options.dataset}")


# --- `profile-sd3 fleet compact`: merge the files of a data set.


@cli_options
class CompactOptions:
    """Options of `profile-sd3 fleet compact`."""

    dataset: str = shared.DATASET_PLACE
    grace: int = opt(
        "--keep SECONDS  How long replaced files stay for readers that use them.",
        default=3600,
        min=0,
    )


def compact(options: CompactOptions) -> None:
    """Merge the files of a data set into few of about 256 MB.

    Others may read and add meanwhile. Runs that were removed go; files that an earlier compaction
    replaced are deleted.
    """
    from profiler.fleet.add import compact as merge
    from profiler.fleet.storage import open_storage

    with progress(f"compacting {options.dataset}"):
        done = merge(open_storage(options.dataset), grace_s=options.grace)
    deleted = f", deleted {done.deleted:,} that earlier ones replaced" if done.deleted else ""
    tell(f"{done.before:,} files are {done.after:,} now{deleted}")


# --- `profile-sd3 fleet query`: SQL over the runs and metrics of a data set.


@cli_options
class DatasetQueryOptions:
    """Options of `profile-sd3 fleet query`."""

    dataset: str = shared.DATASET_PLACE
    sql: str = arg("SQL  The query (DuckDB's SQL) over `runs` and `metrics`.")
    where: list[str] = shared.WHERE_RUNS
    bundle: list[str] = opt(
        "RUN  Read the bundle of this run (key or name), too: its commands, calls and tables, "
        "whose column `run` is the key; may be repeated."
    )
    rows: int | None = shared.ANSWER_ROWS
    csv: Path | None = shared.ANSWER_CSV
    parquet: Path | None = shared.ANSWER_PARQUET
    json: Path | None = shared.ANSWER_JSON
    timeout: float = shared.ANSWER_TIMEOUT


def query(options: DatasetQueryOptions) -> None:
    """Ask a data set in SQL (DuckDB's).

    Tables: `runs`, a row a run; `metrics`, a row a number. A query only reads, reaches no file, and
    has the limits of `profile-sd3 query`.
    """
    from profiler.fleet.dataset import Dataset, bundles_of, open_database

    wanted = answer_files(options)
    data = Dataset(options.dataset)
    with progress(f"reading {options.dataset}"):
        runs = bundles_of(data, options.bundle)
        database = open_database(data, options.sql, options.where, runs, options.timeout or None)
    with database:
        answer(database, options.sql, wanted, options.rows)


# --- `profile-sd3 fleet history`: a metric over the runs of a data set, and where it changed.


_SPARKS = 72  # characters


@cli_options
class HistoryOptions:
    """Options of `profile-sd3 fleet history`."""

    dataset: str = shared.DATASET_PLACE
    metric: list[str] = opt(
        "NAME  Which metric, such as denoise.step or transformer.time[role=attention]; may be "
        "repeated.  [default: elapsed]"
    )
    where: list[str] = shared.WHERE_RUNS
    assume_same: list[str] = shared.ASSUME_SAME
    bad_quality: bool = shared.BAD_QUALITY
    explain: int = opt("N  Compare the bundles around the newest N changes.", default=3, min=0)
    json_file: Path | None = shared.RESULT_FILE
    html: Path | None = opt("FILE  Write a page with curves and runs.")
    language: shared.Language | None = shared.PAGE_LANGUAGE


def history(options: HistoryOptions) -> None:
    """Show a metric over comparable runs, and where it changed: the last good run, the first bad
    one, and what differs between their bundles.

    Runs that are comparable with the newest one are taken. A drift is called drift, a second mode
    as two modes; neither is a change.
    """
    from profiler.fleet.dataset import Dataset

    check_documents({"--json": options.json_file, "--html": options.html})
    with progress(f"reading {options.dataset}", after_s=0.5):
        data = Dataset(options.dataset)
        names = [*dict.fromkeys(options.metric or ["elapsed"])]
        histories, notes = _histories(options, data, names)
    explained = _tell_histories(options, histories, notes)
    if options.html is not None:
        from profiler.fleet.page import history_page

        language = options.language or "auto"
        page = history_page(options.dataset, histories, explained, notes, language)
        write_text(options.html, page)
        tell(f"wrote {options.html}", err=STDOUT in (options.json_file, options.html))


def _histories(
    options: HistoryOptions, data: Dataset, names: Sequence[str]
) -> tuple[list[MetricHistory], list[str]]:
    """Return the histories of these metrics, and lines about the runs that are left out."""
    import polars as pl

    from profiler.fleet.dataset import IDENTIFYING, checked_fields
    from profiler.fleet.history import accepted_changes, metric_history

    where, bad_quality = options.where, options.bad_quality
    runs = data.some_runs(where, IDENTIFYING)
    good = runs if bad_quality else _of_good_quality(runs)
    bad = len(runs) - len(good)
    assumed = checked_fields(options.assume_same, "--assume-same")
    same, notes = _comparable(good, assumed, alone=bad > 0)
    if bad:
        left_out = "left out: {runs} of bad quality: --bad-quality includes them"
        notes.append(said(left_out, runs=counted(bad, "run")))
    frame = data.metrics(names, where, quality=bad_quality)
    frame = frame.join(same.select("run"), on="run", how="semi", maintain_order="left")
    accepted = accepted_changes(data.storage)
    found = []
    for name in names:
        rows = frame.filter(pl.col("name") == name)
        if rows.is_empty():
            known = ", ".join(data.names(where)[:6])
            raise InputError(f"no comparable run of good quality has {name}: there is {known}, …")
        found.append(metric_history(name, rows, accepted, family=len(names)))
    return found, notes


def _comparable(
    runs: pl.DataFrame, assume_same: Sequence[str], *, alone: bool
) -> tuple[pl.DataFrame, list[str]]:
    """Return the runs comparable with the newest one, and lines about the others. No other run is
    required (`alone`) if runs have been left out already."""
    from profiler.fleet.compare import comparable, like
    from profiler.report.terminal_layout import clean

    if len(runs) == 1:
        return runs, []
    newest = runs.row(-1, named=True)
    same = like(runs, newest, assume_same)
    if len(same) < 1 + (not alone):
        same = comparable(runs, newest, assume_same)  # raises with the reason
    apart = len(runs) - len(same)
    if not apart:
        return same, []
    line = (
        "left out: {runs} that are not comparable with the newest run, {newest}: --where selects "
        "others"
    )
    return same, [said(line, runs=counted(apart, "run"), newest=clean(newest["run_id"]))]


def _of_good_quality(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs of good quality. Raises InputError, with the newest run's problem, if there
    is none."""
    from profiler.fleet.compare import bad_quality_text

    good = runs.filter(runs["quality"] == "")
    if good.is_empty():
        newest = runs.row(-1, named=True)
        why = bad_quality_text(newest["run_id"], newest["quality"])
        raise InputError(f"no run is of good quality; {why}, or take such runs with --bad-quality")
    return good


def _tell_histories(
    options: HistoryOptions, histories: Sequence[MetricHistory], notes: Sequence[str]
) -> dict[str, str]:
    """Print the histories; return the comparison of bundles around each change as text, by the
    change's name."""
    from profiler.fleet.text import change_lines, history_document, history_lines
    from profiler.report.terminal_layout import sparkline

    explained: dict[str, str] = {}
    free = write_result(
        options.json_file,
        "fleet_history",
        lambda: {"histories": [*map(history_document, histories)]},
    )
    for past in histories if free else ():
        for number, line in enumerate(history_lines(past)):
            tell(line)
            if number == 0:
                tell(sparkline(past.values.tolist(), _SPARKS))
        newest = past.changes[-options.explain :] if options.explain else ()
        for each in past.changes:
            tell("")
            for line in change_lines(each, past.unit):
                tell(line)
            if each in newest:
                explained[each.name] = _explain(each)
        tell("")
    for note in notes:
        tell(note, err=True)
    return explained


def _explain(each: HistoryChange) -> str:
    """Print how the bundles around a change differ; return the same as text."""
    from profiler.fleet.history import explanation

    found = explanation(each.good, each.bad)
    if isinstance(found, str):
        tell(f"  {found}")
        return found
    places = shlex.join(("profile-sd3", "diff", each.good["place"], each.bad["place"], "--full"))
    text = _compared(found)
    tell(f"everything: {places}")
    return f"{text}\neverything: {places}\n"


def _compared(found: Comparison) -> str:
    from functools import partial
    from io import StringIO

    from rich.console import Console

    from profiler.cli.terminal import terminal
    from profiler.compare.side_by_side import brief_report
    from profiler.report.terminal import print_brief

    made = partial(brief_report, found, (), hints=False)
    print_brief(terminal(), made)
    text = StringIO()
    print_brief(Console(file=text, width=100, highlight=False), made)
    return text.getvalue()


# --- `profile-sd3 fleet accept`: end an alarm, with a reason.


@cli_options
class AcceptOptions:
    """Options of `profile-sd3 fleet accept`."""

    dataset: str = shared.DATASET_PLACE
    change: str = arg("CHANGE  Its name, METRIC@RUN, as history and gate print it.")
    because: str = opt("REASON  Why: it stands in the history from then on.", default=...)


def accept(options: AcceptOptions) -> None:
    """Accept a change of a metric: later runs are compared with its new level."""
    from profiler.fleet.dataset import Dataset
    from profiler.fleet.history import accept as accept_change

    data = Dataset(options.dataset)
    made = accept_change(data.storage, data.runs(), options.change, options.because)
    tell(f"accepted {made.name}: {made.because}")


# --- `profile-sd3 fleet page`: all runs of a data set as one HTML page.


@cli_options
class PageOptions:
    """Options of `profile-sd3 fleet page`."""

    dataset: str = shared.DATASET_PLACE
    metric: list[str] = opt(
        "NAME  Metric whose histories the page has; the first ranks the runs; may be repeated.  "
        "[default: elapsed]"
    )
    where: list[str] = shared.WHERE_RUNS
    assume_same: list[str] = shared.ASSUME_SAME
    bad_quality: bool = shared.BAD_QUALITY
    out: Path = opt("FILE  File to write; -: to stdout.", default=Path("fleet.html"))
    language: shared.Language | None = shared.PAGE_LANGUAGE


def page(options: PageOptions) -> None:
    """Write a page of all runs: changes, the history of each workload, newest and slowest runs.

    A workload is a group of comparable runs. Each run is compared with the median of its own.
    """
    from profiler.fleet.compare import overview
    from profiler.fleet.dataset import Dataset, checked_fields
    from profiler.fleet.page import overview_headline, overview_page, reports_beside

    check_documents({"--out": options.out})
    same = checked_fields(options.assume_same, "--assume-same")
    with progress(f"reading {options.dataset}", after_s=0.5):
        found = overview(
            Dataset(options.dataset),
            options.metric or ["elapsed"],
            options.where,
            assume_same=same,
            quality=options.bad_quality,
        )
        beside = reports_beside(None if options.out == STDOUT else options.out.parent)
        text = overview_page(options.dataset, found, beside, options.language or "auto")
    write_text(options.out, text)
    quiet = options.out == STDOUT
    tell(overview_headline(found), err=quiet)
    if not quiet:
        tell(f"wrote {options.out}")


# --- `profile-sd3 fleet gate`: whether a run is outside the history of comparable runs.


_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


@cli_options
class GateOptions:
    """Options of `profile-sd3 fleet gate`."""

    dataset: str = shared.DATASET_PLACE
    run: str = arg(
        "[RUN]  Key of a run of the data set, its first 8 digits at least, or its name.  [default: "
        "newest]",
        default="newest",
        show_default=False,
    )
    metric: list[str] = opt(
        "NAME  What is gated, such as denoise.step; may be repeated, which lowers the level of "
        "each.  [default: elapsed]"
    )
    fail_over: str = opt(
        "PERCENT  Fail if a metric is outside its history, and slower by more than this.",
        default="5%",
    )
    where: list[str] = shared.WHERE_RUNS
    assume_same: list[str] = shared.ASSUME_SAME
    json_file: Path | None = shared.RESULT_FILE
    markdown_file: Path | None = opt(
        "--markdown FILE  Write it as Markdown; -: to stdout. In GitHub Actions the step summary "
        "has it."
    )


def gate(options: GateOptions) -> None:
    """Fail if a run is outside the history of comparable runs.

    Exit code 0: not slower, 1: slower, 2: it is not known, with the reason.
    """
    from profiler.compare.compare import parse_limit
    from profiler.fleet.compare import gate as hold
    from profiler.fleet.dataset import Dataset, checked_fields
    from profiler.fleet.text import gate_document, gate_line, gate_markdown

    check_documents({"--json": options.json_file, "--markdown": options.markdown_file})
    limit = parse_limit(options.fail_over)
    same = checked_fields(options.assume_same, "--assume-same")
    metrics = options.metric or ["elapsed"]
    with progress(f"reading {options.dataset}", after_s=0.5):
        data = Dataset(options.dataset)
        found = hold(data, options.run, metrics, limit, where=options.where, assume_same=same)
    free = write_result(options.json_file, "fleet_gate", lambda: gate_document(found))
    if options.markdown_file is not None:
        write_text(options.markdown_file, gate_markdown(found))
    if summary := os.environ.get(_STEP_SUMMARY):
        try:  # earlier commands of the step may have created it
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(gate_markdown(found))
        except OSError as error:
            raise OutputError(
                f"cannot write {summary}, which ${_STEP_SUMMARY} names: {error.strerror or error}"
            ) from error
    if free and options.markdown_file != STDOUT:
        for each in found.verdicts:
            tell(gate_line(each, found.limit))
    if found.failed:
        raise typer.Exit(1)


# --- `profile-sd3 fleet compare`: runs side by side by hardware, software or another field.


@cli_options
class CompareOptions:
    """Options of `profile-sd3 fleet compare`."""

    dataset: str = shared.DATASET_PLACE
    by: str = opt(
        "FIELD  The field to compare by: hardware, software, resolution, cache, …",
        default="hardware",
    )
    metric: list[str] = opt(
        "NAME  Metric, such as transformer.call; may be repeated.  [default: elapsed, denoise.step]"
    )
    where: list[str] = shared.WHERE_RUNS
    assume_same: list[str] = shared.ASSUME_SAME
    ignore: list[str] = opt("FIELD  Let this field differ, too; may be repeated.")
    bad_quality: bool = shared.BAD_QUALITY
    json_file: Path | None = shared.RESULT_FILE


def compare(options: CompareOptions) -> None:
    """Compare runs by hardware, software, resolution or another field.

    Two values are compared if all other fields agree: workload, variant, recipe, hardware and
    software. A field that nobody recorded is unknown, and agrees with nothing.
    """
    from profiler.fleet.compare import DEFAULT_METRICS
    from profiler.fleet.compare import compare as compare_runs
    from profiler.fleet.dataset import Dataset, checked_fields
    from profiler.fleet.text import apart_line

    fields = checked_fields([options.by], "--by")
    if len(fields) != 1:
        raise InputError(f"--by {options.by} is several fields: give one of {', '.join(fields)}")
    same = checked_fields(options.assume_same, "--assume-same")
    ignored = checked_fields(options.ignore, "--ignore")
    check_documents({"--json": options.json_file})
    with progress(f"comparing runs of {options.dataset}"):
        compared = compare_runs(
            Dataset(options.dataset),
            fields[0],
            tuple(options.metric or DEFAULT_METRICS),
            options.where,
            assume_same=same,
            ignored=ignored,
            quality=options.bad_quality,
        )
    if write_result(options.json_file, "fleet_compare", lambda: {"rows": compared.rows.to_dicts()}):
        for (workload,), rows in compared.rows.group_by("workload", maintain_order=True):
            tell(workload)
            print_rows([_shown_rows(rows, fields[0])], 0)
    for apart in compared.apart:
        tell(apart_line(apart), err=True)
    if compared.rows.is_empty():
        raise InputError("no two runs are comparable, or none has the metric: see `fleet query`")


def _shown_rows(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Format the rows for printing."""
    import polars as pl

    from profiler.fleet.text import value_text, verdict_text

    shown = [
        (
            row["value"],
            row["metric"],
            row["runs"],
            value_text(row["median"], row["unit"]),
            _interval(value_text(row["low"], row["unit"]), value_text(row["high"], row["unit"])),
            "" if row["ratio"] is None or row["verdict"] == "alone" else f"{row['ratio']:.3f}×",
            "" if row["ratio_low"] is None or row["verdict"] in ("base", "alone") else _interval(
                f"{row['ratio_low']:.3f}", f"{row['ratio_high']:.3f}"
            ),
            verdict_text(row["verdict"], row["needs"]),
        )
        for row in rows.iter_rows(named=True)
    ]  # fmt: skip
    names = [by, "metric", "runs", "median", "95 % interval", "ratio", "95 % of ratio", "verdict"]
    return pl.DataFrame(shown, schema=names, orient="row")


def _interval(low: str, high: str) -> str:
    return f"{low} to {high}" if low else ""


# --- The group itself.


_GROUP = command_group(
    "fleet",
    "Keep many runs in a data set, and ask what changed.",
    add=Subcommand(add, about_runs=True),
    history=Subcommand(history),
    page=Subcommand(page),
    gate=Subcommand(gate),
    accept=Subcommand(accept),
    compare=Subcommand(compare),
    query=Subcommand(query, about_runs=True),
    compact=Subcommand(compact),
    remove=Subcommand(remove),
)

SUBCOMMAND = Subcommand(_GROUP, place=110, advanced=True)
