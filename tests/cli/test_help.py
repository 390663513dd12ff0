"""What `--help` says: options by words of ours, and summaries that the list of commands holds."""

from __future__ import annotations

import re
import shlex
from importlib import import_module

import pytest
import typer.main

from profiler.cli.main import command_line
from tests.command_line import run_command

ROOT = typer.main.get_command(command_line())
ALL = ROOT.commands | {f"graph {n}": c for n, c in ROOT.commands["graph"].commands.items()}
_OF_THE_LIST = 80 - 2 - 6 - len("benchmark-device")  # characters beside a name in 80 columns
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


def test_one_subcommand_is_built_alone() -> None:
    """What runs `analyze` holds nothing else and takes the same options; a name that is none, as of
    a typing error, gets all."""
    alone = typer.main.get_command(command_line("analyze"))
    assert list(alone.commands) == ["analyze"]
    of_all = ROOT.commands["analyze"]
    assert [p.opts for p in alone.commands["analyze"].params] == [p.opts for p in of_all.params]
    assert typer.main.get_command(command_line("analyse")).commands.keys() == ROOT.commands.keys()


IN_PANELS = ("run", "record", "import_", "analyze", "diff", "predict")


@pytest.mark.parametrize("module", IN_PANELS)
def test_examples_run_and_panels_name_options(module: str) -> None:
    """Every word of an example is an option or argument of its command, and every name in a panel
    is one of its options, each in one panel."""
    declared = import_module(f"profiler.cli.commands.{module}").SUBCOMMAND
    command = ROOT.commands[module.rstrip("_")]
    names = {param.name for param in command.params}
    panels = [name for names_in in declared.panels.values() for name in names_in.split()]
    assert len(panels) == len(set(panels))
    assert set(panels) <= names
    assert declared.examples
    for example, _ in declared.examples:
        program, name, *words = shlex.split(example)
        assert (program, ROOT.commands[name]) == ("profile-sd3", command)
        options = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
        own = words[: words.index("--")] if "--" in words else words
        assert {word for word in own if word.startswith("-")} <= options


def test_help_begins_with_examples_and_has_panels(capsys: pytest.CaptureFixture[str]) -> None:
    """`analyze --help` has examples, then what it does, then options by what they are for; the
    program's help has what is rarely used at its end."""
    run_command("analyze", "--help")
    text = capsys.readouterr().out
    parts = ("Examples:", "Report where", "What to show:", "Compare:", "Files:", "Devices:")
    places = [text.index(part) for part in (*parts, "Advanced:")]
    assert places == sorted(places)
    assert places[5] < text.index("--device-memory") < places[6]
    run_command("--help")
    text = capsys.readouterr().out
    assert text.index("analyze ") < text.index("Advanced:") < text.index("graph ")
