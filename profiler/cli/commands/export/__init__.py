"""`profile-sd3 export`: a run in the formats of other tools."""

from __future__ import annotations

import sys

import typer

from profiler.cli.subcommands import Subcommand, add_subcommands

__all__ = ["SUBCOMMAND", "export"]


export = typer.Typer(
    help="Write a run in the formats of other tools.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
add_subcommands(export, sys.modules[__name__])

SUBCOMMAND = Subcommand(export, place=105)
