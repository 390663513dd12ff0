"""`profile-sd3 fleet add`: add runs to a data set."""

from __future__ import annotations

from pathlib import Path

from profiler.cli import options as shared
from profiler.cli.runs import tell_failed
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import of_many, progress, tell
from profiler.text import key_values

_LOOSE = 200  # files of runs that no compaction has merged


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
    from profiler.fleet.add import State, Wishes
    from profiler.fleet.add import add as add_runs
    from profiler.fleet.storage import open_storage, snapshot
    from profiler.fleet.workers import Workers
    from profiler.text import counted
    from profiler.tools.metrics import checked_commit

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


SUBCOMMAND = Subcommand(add, place=10, about_runs=True)
