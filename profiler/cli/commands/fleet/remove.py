"""`profile-sd3 fleet remove`: remove runs from a data set."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler.cli.commands.fleet import DatasetPlace, WhereRuns
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import tell
from profiler.errors import InputError

_Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN...]", help="Runs by key, its first 8 digits at least, or name."),
]
_OlderThan = Annotated[
    str | None,
    typer.Option(metavar="AGE", help="Only runs that began longer ago: 12h, 90d, 6w, 1y."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say which, and remove none.")]


def remove(
    dataset: DatasetPlace,
    runs: _Runs = None,
    older_than: _OlderThan = None,
    where: WhereRuns = None,
    dry_run: _DryRun = False,
) -> None:
    """Remove runs from a data set; their bundles stay where they are.

    They stop to count at once, and their rows go with the next `fleet compact`.
    """
    from profiler.fleet.dataset import remove as remove_runs
    from profiler.fleet.dataset import selected
    from profiler.fleet.storage import open_storage, period
    from profiler.text import counted

    if not runs and not where and older_than is None:
        raise InputError("name runs, or say which: --older-than 90d, --where label.branch=old")
    storage = open_storage(dataset)
    age = None if older_than is None else period(older_than)
    found = selected(storage, runs or (), where or (), age)
    for key, name in found.select("run", "run_id").rows() if dry_run else ():
        tell(f"{key}  {name}")
    if dry_run:
        tell(f"{counted(len(found), 'run')} would be removed")
        return
    tell(f"removed {counted(remove_runs(storage, found), 'run')} from {dataset}")


SUBCOMMAND = Subcommand(remove, place=90)
