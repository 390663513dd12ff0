"""`profile-sd3 dump`: a trace as text."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import tell
from profiler.errors import InputError

_File = Annotated[Path, typer.Argument(metavar="FILE", help="Any Perfetto trace (.pb).")]
_Limit = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Lines to print.  [default: all]")
]


def dump(
    file: _File,
    limit: _Limit = None,
) -> None:
    """Print a trace as text, one line per event.

    In file order. Each line: packet number, packet sequence, time in ns, kind, then what the
    event holds.
    """
    from profiler.trace.dump import dump_lines

    if file.is_dir():
        raise InputError(f"{file} is a folder: give one .pb file, such as a bundle's merged.pb")
    for line in islice(dump_lines(file), limit):
        tell(line, whole=True)


SUBCOMMAND = Subcommand(dump, place=110)
