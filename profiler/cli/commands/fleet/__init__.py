"""`profile-sd3 fleet`: the subcommands that work on data sets of many runs."""

from __future__ import annotations

from profiler.cli.subcommands import Subcommand, command_group

fleet = command_group("Keep many runs in a data set, and ask what changed.", __name__)

SUBCOMMAND = Subcommand(fleet, place=110, advanced=True)
