"""`profile-sd3 export`: a run in the formats of other tools."""

from __future__ import annotations

from profiler.cli.subcommands import Subcommand, command_group

__all__ = ["SUBCOMMAND", "export"]


export = command_group("Write a run in the formats of other tools.", __name__)

SUBCOMMAND = Subcommand(export, place=105)
