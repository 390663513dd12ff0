"""`profile-sd3 graph view`: a model in Netron, on this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import tell


@cli_options
class ViewOptions:
    """Options of `profile-sd3 graph view`."""

    model: Path = arg("MODEL  ONNX file, annotated or not.")
    port: int = opt("N  Port on 127.0.0.1; 0: a free one.", default=0, min=0, max=65535)
    no_browser: bool = opt("Print the address, and open no browser.")


def view(options: ViewOptions) -> None:
    """Show a model in Netron, served on 127.0.0.1.

    Until Ctrl-C, or an hour without requests; the page asks no other host. Click a node: what
    `graph annotate` wrote stands under Metadata. Needs the extra `netron`.
    """
    import webbrowser

    from profiler.graph.netron import NetronServer

    with NetronServer(options.model, options.port) as server:
        tell(f"{options.model} at {server.url}, until Ctrl-C")
        if not options.no_browser:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        if server.idle:
            tell("no longer served: nobody has asked for an hour")


SUBCOMMAND = Subcommand(view, place=70, needs="graph-base")
