"""`profile-sd3 dump`: a trace as text."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import tell
from profiler.errors import InputError


@cli_options
class DumpOptions:
    """Options of `profile-sd3 dump`."""

    file: Path = arg("FILE  Any Perfetto trace (.pb).")
    limit: int | None = opt("N  Lines to print.  [default: all]", min=0)


def dump(options: DumpOptions) -> None:
    """Print a trace as text, one line per event.

    In file order. Each line: packet number, packet sequence, time in ns, kind, then what the
    event holds.
    """
    from profiler.trace.dump import dump_lines

    if options.file.is_dir():
        raise InputError(
            f"{options.file} is a folder: give one .pb file, such as a bundle's merged.pb"
        )
    for line in islice(dump_lines(options.file), options.limit):
        tell(line, whole=True)


SUBCOMMAND = Subcommand(dump, place=110, advanced=True)
