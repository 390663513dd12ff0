"""`profile-sd3 merge`: the call files of a run as one timeline."""

from __future__ import annotations

from pathlib import Path

from profiler.cli.subcommands import Subcommand, arg, cli_options
from profiler.cli.terminal import progress, tell
from profiler.errors import InputError

_NAMED = 4  # finished runs that are named


@cli_options
class MergeOptions:
    """Options of `profile-sd3 merge`."""

    directory: Path = arg(
        "DIR  The folder of one run, or of several: the newest that was cut short is taken."
    )


def merge(options: MergeOptions) -> None:
    """Rebuild merged.pb from the files of a run.

    Rebuilds the manifest as well if it is missing, and says on stderr what the run lacks.
    """
    from profiler.analysis.table_text import worded_note as worded
    from profiler.trace.bundle import merge_bundle
    from profiler.trace.manifest import MANIFEST_NAME, read_manifest

    directory = _one_run(options.directory)
    with progress(f"merging {directory}"):
        merged = merge_bundle(directory)
    tell(f"{merged}: {merged.stat().st_size:,} bytes")
    for drop in read_manifest(directory / MANIFEST_NAME).info.drops:
        unit = drop.unit.removesuffix("s") if drop.count == 1 else drop.unit
        count = f"{drop.count:,} {unit}" if drop.count >= 0 else unit
        tell(f"dropped: {drop.where}: {drop.kind}, {count}: {worded(drop.detail)}", err=True)


def _one_run(directory: Path) -> Path:
    """`directory` itself, or, of a folder of bundles, the newest that was cut short. Raises
    InputError if none of them was."""
    from profiler.trace.bundle import State, search

    if not directory.is_dir():
        return directory
    found = search(directory)
    if found.is_one_run or not (found.whole or found.unfinished):
        return directory
    cut = [entry.path for entry in found.unfinished if entry.state is not State.RUNNING]
    if cut:
        return max(cut, key=lambda entry: (entry.stat().st_mtime_ns, entry.name))
    if found.unfinished:
        raise found.unfinished[0].error()
    finished = sorted(str(entry.relative_to(directory)) for entry in found.whole)
    more = f" and {len(finished) - _NAMED} more" if len(finished) > _NAMED else ""
    named = ", ".join(finished[:_NAMED]) + more
    raise InputError(f"no run in {directory} was cut short: give the folder of one ({named})")


SUBCOMMAND = Subcommand(merge, place=100, about_runs=True, advanced=True)
