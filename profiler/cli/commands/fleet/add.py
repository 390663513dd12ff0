"""`profile-sd3 fleet add`: add runs to a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.commands.fleet import DatasetPlace, LocalWorkers, Scheduler, workers_of
from profiler.cli.options import ImportOptions
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import progress, tell
from profiler.errors import InputError
from profiler.options import key_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profiler.fleet.add import Outcome


_LOOSE = 200  # files of runs that no compaction has merged

_Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="Bundles, folders of bundles (all of them), .pb files, Parquet runs, or what `import` "
        "takes.",
    ),
]
_Commit = Annotated[
    str | None,
    typer.Option(
        metavar="HASH",
        help="Commit of the program that ran.  [default: what was recorded with the run]",
    ),
]
_Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Label these runs; may be repeated."),
]


def add(  # one argument a column
    dataset: DatasetPlace,
    paths: _Paths,
    commit: _Commit = None,
    label: _Labels = None,
    importing: ImportOptions = None,
    workers: LocalWorkers = 0,
    scheduler: Scheduler = None,
) -> None:
    """Add runs to a data set, which is made where there is none.

    A run that the data set has is left out, whatever its folder is called. What cannot be read is
    said at the end, and stops nothing.
    """
    from profiler.fleet.add import Wishes
    from profiler.fleet.add import add as add_runs
    from profiler.fleet.storage import open_storage
    from profiler.metrics import checked_commit

    storage = open_storage(dataset)
    options = key_values(importing, "--import", "pipeline=sd3")
    named = None if commit is None else checked_commit(commit)
    wishes = Wishes(
        named, key_values(label, "--label", "branch=main"), options, workers_of(workers, scheduler)
    )
    with progress(f"looking for runs in {', '.join(map(str, paths[:3]))}", after_s=0.5) as show:

        def say(done: int, of: int, outcome: Outcome) -> None:
            show(f"{done:,} of {of:,} runs: {outcome.place}")

        outcomes = add_runs(storage, paths, wishes, say=say)
    _tell(dataset, outcomes)


def _tell(dataset: str, outcomes: Sequence[Outcome]) -> None:
    """Say what became of the runs. Raises InputError where some could not be read."""
    from profiler.fleet.add import State
    from profiler.fleet.storage import open_storage, snapshot
    from profiler.text import counted

    by_state = {state: [one for one in outcomes if one.state is state] for state in State}
    added, known = len(by_state[State.ADDED]), len(by_state[State.KNOWN])
    tell(f"added {counted(added, 'run')} to {dataset}" + (f", {known:,} it has" if known else ""))
    loose = snapshot(open_storage(dataset)).loose
    if loose >= _LOOSE:
        advice = f"`profile-sd3 fleet compact {dataset}` makes questions faster"
        tell(f"{dataset} has {loose:,} files of runs: {advice}", err=True)
    failed = by_state[State.FAILED]
    for one in failed:
        where = "" if one.reason.startswith(one.place) else f"{one.place}: "
        tell(f"not added: {where}{one.reason}", err=True)
    if failed:
        raise InputError(
            f"{counted(len(failed), 'run')} of {len(outcomes):,} could not be added: what is wrong "
            "with each is said above"
        )


SUBCOMMAND = Subcommand(add, place=10, about_runs=True)
