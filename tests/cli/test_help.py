"""What `--help` says: options by words of ours, and summaries that the list of commands holds."""

from __future__ import annotations

import re

import pytest
import typer.main

from profiler.cli.main import app

ROOT = typer.main.get_command(app)
ALL = ROOT.commands | {f"graph {n}": c for n, c in ROOT.commands["graph"].commands.items()}
_OF_THE_LIST = 80 - 2 - 6 - len("calibrate-device")  # characters beside a name in 80 columns
_A_TYPE = re.compile(r"<(?!en\|ko>)[a-z]+( range|\[\w+\])?>")


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"graph"}))
def test_options_name_what_they_take(name: str) -> None:
    """FILE, DIR, N, … stand behind an option, never a type of Python."""
    context = ALL[name].make_context(name, [], resilient_parsing=True)
    options = [each for each in ALL[name].params if each.param_type_name == "option"]
    written = [record[0] for each in options if (record := each.get_help_record(context))]
    assert [each for each in written if _A_TYPE.search(each)] == []


@pytest.mark.parametrize("command", ALL.values(), ids=ALL)
def test_summaries_are_whole_in_80_columns(command) -> None:
    """The first sentence is not cut in the list of commands."""
    first = command.help.partition("\n")[0]
    assert command.get_short_help_str(_OF_THE_LIST) == first.removesuffix(".") + "."
