"""`profile-sd3 import`: turn another profiler's trace into a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["import_"]


def import_(
    file: Annotated[
        Path, typer.Argument(help="A torch.profiler trace: Chrome JSON, .json or .json.gz.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of bundles; the run gets its own.")] = Path(
        "traces"
    ),
    name: Annotated[
        str | None, typer.Option(help="Name of the run.  [default: the file's name]")
    ] = None,
) -> None:
    """Import a trace that another profiler recorded, one file per submodule call.

    Record with torch.profiler.profile(with_stack=True, record_shapes=True): submodule calls come
    from the Python stacks.
    """
    from profiler.importers.formats import import_trace

    typer.echo(import_trace(file, out, name))
