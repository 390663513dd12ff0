"""`profile-sd3 fleet compact`: merge the files of a data set."""

from __future__ import annotations

from profiler.cli import options as shared
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import progress, tell


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
    from profiler.fleet.dataset import compact as merge
    from profiler.fleet.storage import open_storage

    with progress(f"compacting {options.dataset}"):
        done = merge(open_storage(options.dataset), grace_s=options.grace)
    deleted = f", deleted {done.deleted:,} that earlier ones replaced" if done.deleted else ""
    tell(f"{done.before:,} files are {done.after:,} now{deleted}")


SUBCOMMAND = Subcommand(compact, place=80)
