"""A backend, an importer, a table, a section, a subcommand: each is one file that nothing lists.

A program extends the packages by a folder that holds one file of each, and is `profile-sd3` else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.toy_backend import BACKEND, RUNTIME
from tests.importers.toy import MODULE, write_trace

_EXTENDED = """
import importlib, sys
from pathlib import Path

root = Path(sys.argv.pop(1))
for name in {packages!r}:
    importlib.import_module(name).__path__.append(str(root.joinpath(*name.split("."))))
"""
_COMMAND = "from profiler.cli.main import main\nmain()\n"
_PROFILED = """
import profiler, toy_runtime

pipeline = toy_runtime.Pipeline()
with profiler.profile(pipeline, out="traces", name="run") as run:
    assert pipeline(1) == 5
"""
_FILES = {
    "profiler/capture/toy_engines/backend.py": BACKEND + "\n\nBACKEND = TOY\n",
    "profiler/importers/toy_files/__init__.py": MODULE,
    "profiler/analysis/toy_question/tables.py": """
import polars as pl

from profiler.analysis.question import Table
from profiler.run.columns import Column


def _make(of):
    return pl.DataFrame({"toy": ["ball"], "played_ns": [of.table("calls")["duration_ns"].sum()]})


TABLES = (
    Table(
        name="toys",
        row="one toy",
        section="toy_section",
        columns=(
            Column("toy", pl.String(), "", "its name"),
            Column("played_ns", pl.Int64(), "ns", "for how long"),
        ),
        make=_make,
        reads=("calls",),
    ),
)
""",
    "profiler/report/sections/toy_section.py": """
from profiler.text import said
from profiler.analysis.document import Part, SectionKind

SECTION = SectionKind(
    "toy_section",
    36,
    said("A room of toys"),
    lambda of: (Part(lead=said("Nothing is put away."), always=True),),
)
""",
    "profiler/cli/commands/toy_command.py": '''
from profiler.cli.subcommands import Subcommand


def play() -> None:
    """Play with the toys."""
    print("played")


SUBCOMMAND = Subcommand(play, place=55)
''',
}
"""By place: what whoever adds one writes."""


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("added")
    for place, text in _FILES.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.name.startswith("toy"):
            (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    (root / "toy_runtime.py").write_text(RUNTIME, encoding="utf-8")
    write_trace(root / "first.toy")
    return root


def _run(added: Path, program: str, *arguments: object) -> str:
    """What the program prints, in the folder of the files."""
    packages = [str(Path(place).parent).replace("/", ".") for place in _FILES]
    folders = [name.rpartition(".")[0] if ".toy" in name else name for name in packages]
    code = _EXTENDED.format(packages=folders) + program
    done = subprocess.run(
        [sys.executable, "-c", code, added, *map(str, arguments)],
        cwd=added,
        env={**os.environ, "PYTHONPATH": str(added), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_importer_a_table_a_section(added: Path) -> None:
    """A file of the new format is analyzed, its report has the section, and that the table, which
    names it; JSON has the rows."""
    options = ("--json", "found.json", "--no-html", "--full")
    text = _run(added, _COMMAND, "analyze", "first.toy", *options)
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("A room of toys ─"))
    assert lines[at + 1] == "Nothing is put away."
    assert [line.split() for line in lines[at + 3 : at + 6]] == [
        ["Toys"],
        ["toy", "played", "ms"],
        ["ball", "8.00"],
    ]
    document = json.loads((added / "found.json").read_text(encoding="utf-8"))
    assert document["toys"] == [{"toy": "ball", "played_ns": 8_000_000}]


def test_a_subcommand(added: Path) -> None:
    """It runs under the name of its file, and `--help` lists it."""
    assert _run(added, _COMMAND, "toy-command") == "played\n"
    assert "toy-command" in _run(added, _COMMAND, "--help").split()


def test_a_backend(added: Path) -> None:
    """Operators of its runtime are recorded, and `doctor` lists it."""
    _run(added, _PROFILED)
    text = _run(added, _COMMAND, "analyze", added / "traces" / "run", "--no-html", "--full")
    assert "blocks.0.toy" in text
    assert "toy:3" in text
    listed = _run(added, _COMMAND, "doctor").partition("backends\n")[2].partition("importers\n")
    assert "  toy " in listed[0]
    assert "  toy " in listed[2]
