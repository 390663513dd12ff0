"""`profile-sd3 merge`: the call files of a run as one timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["merge"]


def merge(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of one run.")],
) -> None:
    """Write merged.pb anew from the files of a run, and its manifest where that is missing.

    What a rebuilt run lacks is said on stderr.
    """
    from profiler.trace.manifest import MANIFEST_NAME, read_manifest
    from profiler.trace.merge import merge_bundle

    merged = merge_bundle(directory)
    typer.echo(f"{merged}: {merged.stat().st_size:,} bytes")
    for loss in read_manifest(directory / MANIFEST_NAME).info.losses:
        unit = loss.unit.removesuffix("s") if loss.count == 1 else loss.unit
        count = f"{loss.count:,} {unit}" if loss.count >= 0 else unit
        typer.echo(f"lost: {loss.where}: {loss.kind}, {count}: {loss.detail}", err=True)
