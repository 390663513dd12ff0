"""`profile-sd3 graph`: the subcommands that work on ONNX graphs."""

from __future__ import annotations

import sys

import typer

from profiler.cli.subcommands import Subcommand, add_subcommands

__all__ = ["SUBCOMMAND", "graph"]

graph = typer.Typer(
    help="Prepare ONNX graphs, and see times on their nodes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
add_subcommands(graph, sys.modules[__name__])

SUBCOMMAND = Subcommand(graph, place=120)
