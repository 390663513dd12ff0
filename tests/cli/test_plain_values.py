"""Values that are taken without typer's conversion are those that it would have made."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.core import TyperCommand
from typer.testing import CliRunner

from profiler.cli.subcommands import PlainCommand


class _Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def _said(command_class, args):
    """What a command with every kind of option gets, or how it refuses."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=command_class)
    def command(  # noqa: PLR0917
        first: Annotated[Path, typer.Argument()],
        rest: Annotated[list[Path] | None, typer.Argument()] = None,
        text: str = "usual",
        number: int = 3,
        few: Annotated[int, typer.Option(min=1, max=5)] = 2,
        ratio: float = 0.5,
        file: Path | None = None,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        names: list[str] | None = None,
        colour: _Colour = _Colour.RED,
        flag: bool = False,
        upper: Annotated[str, typer.Option(parser=str.upper)] = "x",
        called: Annotated[str, typer.Option(callback=lambda value: value * 2)] = "ab",
    ) -> None:
        typer.echo(repr(sorted(locals().items())))

    result = CliRunner().invoke(app, args)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "args",
    [
        "",
        "a",
        "a b c",
        "a --text t --number 7 --few 5 --ratio 1e3 --file f --flag",
        "a --names x --names y --names ''",
        "a --colour blue --upper low --called z",
        "a --colour green",
        "a --number 1.5",
        "a --few 9",
        "a --ratio half",
        "a --there /no/such/file",
        "a --there /",
        "a --file",
        "a --unknown 1",
        "a --text=",
    ],
)
def test_values_are_those_of_typer(args):
    """Defaults, texts, numbers, paths, lists and whatever is refused: the same, word by word, but
    for the name that pydantic gives to errors."""
    words = [word.strip("'") for word in args.split()]
    code, said = _said(TyperCommand, words)
    assert _said(PlainCommand, words) == (code, said.replace("Value error, ", ""))


def test_a_path_that_cannot_be_read_is_refused_as_by_typer(tmp_path, monkeypatch):
    """A file that is there, of which the system says that it cannot be read."""
    closed = tmp_path / "closed"
    closed.touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    said = _said(PlainCommand, [str(closed)])
    assert said == _said(TyperCommand, [str(closed)])
    assert said[0] == 2


def test_analyze_imports_no_library_for_its_values(tmp_path):
    """With a path and a text `analyze` gets as far as looking for the run without pydantic."""
    program = (
        "import sys\n"
        "from profiler.cli.main import command_line\n"
        f"sys.argv[1:] = ['analyze', {str(tmp_path)!r}, '--submodule', 'vae', '--no-html']\n"
        "try:\n"
        "    command_line('analyze')(standalone_mode=False)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
        "print('pydantic' in sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["InputError", "False"]
