"""`profile-sd3 graph view`: a model in Netron, on this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.commands.graph import echo
from profiler.cli.subcommands import Subcommand

_Model = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file, annotated or not.")]
_Port = Annotated[
    int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")
]
_NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
]


def view(
    model: _Model,
    port: _Port = 0,
    no_browser: _NoBrowser = False,
) -> None:
    """Show a model in Netron, served on 127.0.0.1.

    Until Ctrl-C; the page asks no other host. Click a node: what `graph annotate` wrote stands
    under Metadata. Needs the extra `netron`.
    """
    import webbrowser

    from profiler.graph.netron import NetronServer

    with NetronServer(model, port) as server:
        echo(f"{model} at {server.url}, until Ctrl-C")
        if not no_browser:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


SUBCOMMAND = Subcommand(view, place=70, needs="graph-base")
