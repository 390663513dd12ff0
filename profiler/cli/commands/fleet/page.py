"""`profile-sd3 fleet page`: all runs of a data set as one HTML page."""

from __future__ import annotations

from pathlib import Path

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_text


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

    A workload is a group of comparable runs. Each run is held against the median of its own.
    """
    from profiler.fleet.dataset import Dataset, checked_fields
    from profiler.fleet.history import overview
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


SUBCOMMAND = Subcommand(page, place=25)
