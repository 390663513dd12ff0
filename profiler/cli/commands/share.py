"""`profile-sd3 share`: a run as one file to give away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli.runs import other_runs
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell
from profiler.errors import InputError, OutputError

if TYPE_CHECKING:
    from profiler.tools.share import Shared


@cli_options
class ShareOptions:
    """Options of `profile-sd3 share`."""

    bundle: Path = arg("BUNDLE  A bundle, or a folder of bundles: the newest is taken.")
    out: Path = opt("FILE  The ZIP file to write.", default=...)
    remove: list[str] = opt("TEXT  Take out this word as well; may be repeated.")


def share(options: ShareOptions) -> None:
    """Pack a run for others, without personal data.

    Removes the command line, prompts, paths, and the names of host and user, and lists what it
    removed. Before the file gets its name, its tables are compared with those of the bundle.
    """
    from profiler.tools.share import Removal
    from profiler.tools.share import share as shared_run
    from profiler.tools.sources import Kind, resolve

    if options.out == STDOUT or options.out.suffix.lower() != ".zip":
        raise OutputError(
            f"--out {options.out} does not end in .zip: the run is written as a ZIP file"
        )
    check_documents({"--out": options.out})
    (found,) = resolve([[options.bundle]])
    source = found.newest
    if source.kind is not Kind.BUNDLE:
        raise InputError(f"{source.place} is no bundle: give one, or `profile-sd3 import` it first")
    removal = Removal.of_this_machine(options.remove)
    with progress(f"packing {source.place}"):
        shared = shared_run(source.path, options.out, removal)
    for line in (*other_runs(found), *_lines(shared)):
        tell(line)


def _lines(shared: Shared) -> Iterator[str]:
    """Yield lines on what was removed and what was written."""
    if shared.arguments:
        yield f"removed: the command line, {shared.arguments} words"
    if shared.prompts:
        yield f"removed: the settings {', '.join(shared.prompts)}"
    for text, stand_in in sorted(shared.replaced.items()):
        yield f"replaced: {text} by {stand_in}"
    if shared.left_out:
        yield f"left out: {', '.join(shared.left_out)}"
    for name in shared.spared:
        yield f"not removed: {name}, for a submodule or a device is called so"
    yield f"wrote {shared.path}: {shared.files} files, {shared.size:,} bytes; the tables are equal"


SUBCOMMAND = Subcommand(share, place=95, about_runs=True)
