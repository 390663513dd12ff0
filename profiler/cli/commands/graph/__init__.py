"""`profile-sd3 graph`: the subcommands that work on ONNX graphs."""

from __future__ import annotations

import typer

from profiler.cli.graph.annotate import annotate
from profiler.cli.graph.check import check
from profiler.cli.graph.compare import compare
from profiler.cli.graph.export import export
from profiler.cli.graph.optimize import optimize
from profiler.cli.graph.split import split
from profiler.cli.graph.view import view

__all__ = ["graph"]

graph = typer.Typer(
    name="graph",
    help="Prepare ONNX graphs, and see times on their nodes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
graph.command("export")(export)
graph.command("check")(check)
graph.command("split")(split)
graph.command("optimize")(optimize)
graph.command("compare")(compare)
graph.command("annotate")(annotate)
graph.command("view")(view)
