"""`profile-sd3 fleet remove`: remove runs from a data set."""

from __future__ import annotations

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import tell
from profiler.errors import InputError


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
    from profiler.text import counted

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


SUBCOMMAND = Subcommand(remove, place=90)
