"""`profile-sd3 fleet page`: all runs of a data set as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.commands.fleet import AssumeSame, BadQuality, DatasetPlace, WhereRuns
from profiler.cli.options import PageLanguage
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_text

_Metric = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Metric whose histories the page has; the first ranks the runs; may be repeated.  "
        "[default: elapsed]",
    ),
]
_Out = Annotated[Path, typer.Option(metavar="FILE", help="File to write; -: to stdout.")]


def page(
    dataset: DatasetPlace,
    metric: _Metric = None,
    where: WhereRuns = None,
    assume_same: AssumeSame = None,
    bad_quality: BadQuality = False,
    out: _Out = Path("fleet.html"),
    language: PageLanguage = None,
) -> None:
    """Write a page of all runs: changes, the history of each workload, newest and slowest runs.

    A workload is a group of comparable runs. Each run is held against the median of its own.
    """
    from profiler.fleet.dataset import Dataset, checked_fields
    from profiler.fleet.history import overview
    from profiler.fleet.page import overview_headline, overview_page, reports_beside

    check_documents({"--out": out})
    same = checked_fields(assume_same, "--assume-same")
    with progress(f"reading {dataset}", after_s=0.5):
        found = overview(
            Dataset(dataset),
            metric or ["elapsed"],
            where or [],
            assume_same=same,
            quality=bad_quality,
        )
        beside = reports_beside(None if out == STDOUT else out.parent)
        text = overview_page(dataset, found, beside, language or "auto")
    write_text(out, text)
    quiet = out == STDOUT
    tell(overview_headline(found), err=quiet)
    if not quiet:
        tell(f"wrote {out}")


SUBCOMMAND = Subcommand(page, place=25)
