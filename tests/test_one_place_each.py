"""A backend, an importer, a question, a kind of figure, a subcommand: one file that nothing lists.

A program extends the packages by a folder that holds one file of each, and is `profile-sd3` else.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
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
    "profiler/analysis/toy_question.py": """
import polars as pl

from profiler.analysis.document import Part, SectionKind
from profiler.analysis.finding_text import Rule, Words
from profiler.analysis.question import FigureSpec, Table
from profiler.analysis.result import Finding
from profiler.run.columns import NS, STRING, col
from profiler.text import said

TOYS = (col("toy", STRING, "its name"), col("played_ns", NS, "for how long"))


def _make(of):
    return pl.DataFrame({"toy": ["ball"], "played_ns": [of.table("calls")["duration_ns"].sum()]})


def played(analysis):
    return Finding("played", {"played_ns": int(analysis.toys["played_ns"][0])})


def _played(found):
    return Words(said("The ball was played with"), "", said("Put it away"))


TABLES = (
    Table(
        name="toys",
        row="one toy",
        section="toy_section",
        columns=TOYS,
        make=_make,
        reads=("calls",),
        figure=FigureSpec("toy_chart", {"toy": ("toy",)}),
    ),
)
RULES = (Rule(played, _played, said("Tidy up")),)
SECTION = SectionKind(
    "toy_section",
    36,
    said("A room of toys"),
    lambda of: (Part(lead=said("Nothing is put away."), always=True),),
)
""",
    "profiler/report/charts/toy_chart.py": """
from profiler.report.charts.style import draws, layout


@draws("toy_chart")
def toy_chart(columns, frame, theme="light"):
    made = layout(theme) | {"height": 90, "showlegend": False}
    return {"data": [{"type": "bar", "y": ["a toy chart"], "x": [1]}], "layout": made}
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


def test_an_importer_and_a_question(added: Path) -> None:
    """A file of the new format is analyzed. Section, table, column, finding and figure of the new
    question are in the terminal, the page, JSON, Parquet, SQL and the reference of tables."""
    options = ("--json", "found.json", "--html", "page.html", "--parquet", "tables", "--full")
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
    finding = next(each for each in document["findings"] if each["rule"] == "played")
    assert finding["title"] == "The ball was played with"
    assert finding["evidence"] == {"played_ns": 8_000_000}
    assert "The ball was played with" in text
    page = (added / "page.html").read_text(encoding="utf-8")
    assert "A room of toys" in page
    assert "The ball was played with" in page
    assert 'data-figure="toys"' in page
    frame = pl.read_parquet(added / "tables" / "analysis_toys.parquet")
    assert frame.rows() == [("ball", 8_000_000)]
    if importlib.util.find_spec("duckdb") is not None:  # of the extra query
        query = ("query", "first.toy", "SELECT played_ns FROM toys", "--csv", "-")
        assert _run(added, _COMMAND, *query).split() == ["played_ns", "8000000"]
    described = _run(added, "from profiler.analysis.question import markdown\nprint(markdown())\n")
    assert "for how long" in described


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
