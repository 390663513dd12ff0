"""`profile-sd3 fleet compact`: merge the files of a data set."""

from __future__ import annotations

from typing import Annotated

import typer

from profiler.cli.commands.fleet import DatasetPlace
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import progress, tell

_Grace = Annotated[
    int,
    typer.Option(
        "--keep",
        metavar="SECONDS",
        min=0,
        help="How long replaced files stay for readers that use them.",
    ),
]


def compact(dataset: DatasetPlace, grace: _Grace = 3600) -> None:
    """Merge the files of a data set into few of about 256 MB.

    Others may read and add meanwhile. Runs that were removed go; files that an earlier compaction
    replaced are deleted.
    """
    from profiler.fleet.dataset import compact as merge
    from profiler.fleet.storage import open_storage

    with progress(f"compacting {dataset}"):
        done = merge(open_storage(dataset), grace_s=grace)
    deleted = f", deleted {done.deleted:,} that earlier ones replaced" if done.deleted else ""
    tell(f"{done.before:,} files are {done.after:,} now{deleted}")


SUBCOMMAND = Subcommand(compact, place=80)
