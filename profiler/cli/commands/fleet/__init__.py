"""`profile-sd3 fleet`: the subcommands that work on data sets of many runs."""

from __future__ import annotations

import sys

import typer

from profiler.cli.subcommands import Subcommand, add_subcommands

__all__ = ["SUBCOMMAND", "fleet"]

fleet = typer.Typer(
    help="Keep many runs in a data set, and ask what changed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
add_subcommands(fleet, sys.modules[__name__])

SUBCOMMAND = Subcommand(fleet, place=110)
