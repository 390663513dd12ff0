"""`profile-sd3 fleet history`: a metric over the runs of a data set, and where it changed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_result, write_text
from profiler.errors import InputError
from profiler.text import counted, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from profiler.compare.compare import Comparison
    from profiler.fleet.dataset import Dataset
    from profiler.fleet.history import HistoryChange, MetricHistory


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
    explained = _tell(options, histories, notes)
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
    """Return the runs comparable with the newest one, and lines about the others; it may be `alone`
    if runs have been left out already."""
    from profiler.fleet.compare import comparable, like
    from profiler.report.terminal_layout import clean

    if len(runs) == 1:
        return runs, []
    newest = runs.row(-1, named=True)
    same = like(runs, newest, assume_same)
    if len(same) < 1 + (not alone):
        same = comparable(runs, newest, assume_same)  # says why there is none
    apart = len(runs) - len(same)
    if not apart:
        return same, []
    line = (
        "left out: {runs} that are not comparable with the newest run, {newest}: --where selects "
        "others"
    )
    return same, [said(line, runs=counted(apart, "run"), newest=clean(newest["run_id"]))]


def _of_good_quality(runs: pl.DataFrame) -> pl.DataFrame:
    """Return these runs. Raises InputError, with what the newest lacks, if there is none."""
    from profiler.fleet.compare import bad_quality_text

    good = runs.filter(runs["quality"] == "")
    if good.is_empty():
        newest = runs.row(-1, named=True)
        why = bad_quality_text(newest["run_id"], newest["quality"])
        raise InputError(f"no run is of good quality; {why}, or take such runs with --bad-quality")
    return good


def _tell(
    options: HistoryOptions, histories: Sequence[MetricHistory], notes: Sequence[str]
) -> dict[str, str]:
    """Print the histories; return what differs between the bundles around a change, by its name."""
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
    """Print what differs between the bundles around a change; the same as a text."""
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


SUBCOMMAND = Subcommand(history, place=20)
