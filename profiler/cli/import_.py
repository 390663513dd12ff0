"""`profile-sd3 import`: turn another profiler's trace into a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.progress import progress

__all__ = ["import_"]


def import_(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A torch.profiler trace (Chrome JSON, .json or .json.gz), or a folder of RBLN's "
            "rbln_<date>_<time>_<n>.pb.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of bundles; the run gets its own.")
    ] = Path("traces"),
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the run.  [default: the file's name]"),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="RBLN: what ran, to label its calls by: sd3, sd3-no-guidance, sdxl, flux, …, or a "
            "YAML file (docs/rbln.md).",
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="RBLN: denoising steps.")
    ] = None,
    skip: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="RBLN: leading calls that were warm-up.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="RBLN: the bundle of the same run as profile-sd3 recorded it, to label its calls "
            "by, instead of --pipeline and --steps.",
        ),
    ] = None,
    compress: Annotated[
        str,
        typer.Option(
            metavar="METHOD", help="Pack the packets of all files: none, deflate or zstd."
        ),
    ] = "none",
) -> None:
    """Import a trace that another profiler recorded.

    Makes a run of it, with one file per submodule call. For torch, record with
    torch.profiler.profile(with_stack=True, record_shapes=True): submodule calls come from the
    Python stacks.
    """
    from profiler.trace.compression import check_compression

    packing = check_compression(compress)
    if pipeline is not None or steps is not None or skip is not None or run is not None:
        from profiler.importers.rbln import import_rbln

        with progress(f"importing {path}"):
            bundle = import_rbln(
                path,
                out,
                name,
                pipeline=pipeline,
                steps=steps,
                skip=skip,
                recorded=run,
                compress=packing,
            )
        typer.echo(bundle)
        return
    from profiler.importers.formats import import_trace

    with progress(f"importing {path}"):
        bundle = import_trace(path, out, name, packing)
    typer.echo(bundle)
