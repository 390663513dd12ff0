"""A table that is declared in one place is found everywhere: this file adds one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import profiler
from profiler import analysis as package
from profiler.analysis import Analysis, Inputs, question, table_named, tables
from profiler.analysis.analyze import analyze as analyzed
from profiler.analysis.question import TAKEN, FigureSpec, Table, markdown, register, registered
from profiler.cli.commands.analyze import AnalyzeOptions, analyze
from profiler.errors import InputError
from profiler.report import document as to_document
from profiler.run import Column
from profiler.tools.query import Database, table_lines
from tests.report.rendered import page_of, part_lines, printed
from tests.runs import tiny_run, write_tiny_bundle

COLUMNS = (
    Column("submodule", pl.String(), "", "named part of the pipeline"),
    Column("longest_ns", pl.Int64(), "ns", "its longest call"),
    Column("part", pl.Float64(), "ratio", "longest_ns / all of its calls", kind="share"),
    Column("device", pl.String(), "", "where it ran, if on one device", True, importance=1),
    Column("steps", pl.List(pl.Int32()), "", "steps in which it was called"),
)
ROWS = [
    ("transformer", 200, 0.4, "rbln:1", [0, 1]),
    ("text_encoder", 150, 1.0, None, [-1]),
]


def _longest_calls(of: Inputs) -> pl.DataFrame:
    """Made from another table, in no order."""
    rows = [row for row in reversed(ROWS) if row[0] in of.table("calls")["submodule"]]
    return pl.DataFrame(rows, schema={c.name: c.dtype for c in COLUMNS}, orient="row")


LONGEST_CALLS = Table(
    name="longest_calls",
    row="one submodule with its longest call",
    section="calls",
    columns=COLUMNS,
    make=_longest_calls,
    title="Longest calls",
    about="It is made by a test.",
    reads=("calls",),
    rank=("-longest_ns",),
    shown=1,
    figure=FigureSpec("bars", {"label": ("submodule",), "values": ("longest_ns",)}),
)


@pytest.fixture
def added() -> Iterator[None]:
    with registered(LONGEST_CALLS):
        yield


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_tiny_bundle(tmp_path / "bundles")


@pytest.mark.usefixtures("added")
def test_attribute_and_frames() -> None:
    """An attribute in the order of its ranking, a frame for pandas, a description."""
    analysis = profiler.analyze(tiny_run())
    assert analysis.longest_calls.rows() == ROWS
    assert "longest_calls" in dir(analysis)
    found = analysis.to_pandas("longest_calls")
    assert found["longest_ns"].tolist() == [200, 150]
    assert [list(steps) for steps in found["steps"]] == [[0, 1], [-1]]
    assert found["device"].isna().tolist() == [False, True]
    described = analysis.describe("longest_calls")
    assert described["column"].to_list() == [column.name for column in COLUMNS]
    assert described["null"].to_list() == [False, False, False, True, False]


@pytest.mark.usefixtures("added")
def test_files(bundle: Path, tmp_path: Path) -> None:
    """JSON has the list as a list, CSV as text, Parquet as it is."""
    data, csv, parquet = tmp_path / "a.json", tmp_path / "csv", tmp_path / "parquet"
    analyze(
        AnalyzeOptions(path=bundle, json_file=data, csv_dir=csv, parquet_dir=parquet, no_html=True)
    )
    names = [column.name for column in COLUMNS]
    document = json.loads(data.read_text(encoding="utf-8"))
    assert document["longest_calls"] == [dict(zip(names, row, strict=True)) for row in ROWS]
    assert (csv / "longest_calls.csv").read_text(encoding="utf-8").splitlines() == [
        "submodule,longest_ns,part,device,steps",
        'transformer,200,0.4,rbln:1,"[0, 1]"',
        "text_encoder,150,1.0,,[-1]",
    ]
    assert pl.read_parquet(parquet / "analysis_longest_calls.parquet").rows() == ROWS


@pytest.mark.usefixtures("added")
def test_sql() -> None:
    """A query reads it, the list included; the list of tables has it with its columns."""
    pytest.importorskip("duckdb")
    with Database({"tiny": tiny_run()}) as database:
        answer = database.ask(
            "select submodule, len(steps) as times, part from longest_calls order by longest_ns"
        )
        assert pl.concat(answer.batches()).rows() == [
            ("text_encoder", 1, 1.0),
            ("transformer", 2, 0.4),
        ]
    text = "\n".join(table_lines(100))
    assert "longest_calls: one submodule with its longest call" in text
    assert "steps       INTEGER[]" in text


@pytest.mark.usefixtures("added")
def test_column_docs() -> None:
    """The generated page has its heading, what a row is, and each column."""
    page = markdown().partition("## longest_calls\n\n")[2]
    assert page.startswith("A row is one submodule with its longest call. It is made by a test.")
    assert "- `part` (Float64, ratio): longest_ns / all of its calls\n" in page
    assert "- `steps` (List(Int32)): steps in which it was called\n" in page


@pytest.mark.usefixtures("added")
def test_terminal_and_page() -> None:
    """No section names it: it stands at the end of its own, with its first row, in both."""
    analysis = profiler.analyze(tiny_run())
    lines = part_lines(printed(analysis, 120), "Longest calls")
    assert lines == [
        "submodule longest ns part % device steps",
        "transformer 200 40.0 rbln:1 0, 1",
        "1 of 2 rows",
    ]
    page = page_of(analysis)
    table = page.tables["longest_calls"]
    assert table["values"]["steps"] == ["0, 1", "-1"]
    assert (table["values"]["device"], table["shown"]) == (["rbln:1", None], 1)
    (bars,) = page.figures["light"]["longest_calls"]["data"]
    assert (bars["x"], bars["name"]) == ([200, 150], "longest")
    calls = page.sections.partition('id="calls"')[2].partition("</section>")[0]
    assert calls.index('data-table="calls"') < calls.index('data-table="longest_calls"')


@pytest.mark.usefixtures("added")
def test_names_are_taken_once() -> None:
    """A second table of a name is refused, and so is one whose ranking has no column."""
    with pytest.raises(ValueError, match="there is a table 'longest_calls' already"):
        register(LONGEST_CALLS)
    with pytest.raises(ValueError, match="table x has no column nothing"):
        Table("x", "one", "calls", COLUMNS, _longest_calls, rank=("-nothing",))


def test_a_registered_table_leaves_with_its_block() -> None:
    """Behind `registered`, the table is unknown again."""
    with registered(LONGEST_CALLS):
        assert table_named("longest_calls") is LONGEST_CALLS
    with pytest.raises(InputError, match="no table 'longest_calls'"):
        table_named("longest_calls")


def test_a_folder_with_one_file_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of `profiler.analysis` whose module `tables` declares a table needs no mention
    anywhere else."""
    folder = tmp_path / "a_new_question"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "tables.py").write_text(
        "from tests.test_new_table import LONGEST_CALLS\n\nTABLES = (LONGEST_CALLS,)\n",
        encoding="utf-8",
    )
    before = [table.name for table in tables()]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    question.forget()
    try:
        assert sorted(table.name for table in tables()) == sorted([*before, "longest_calls"])
        assert profiler.analyze(tiny_run()).longest_calls.rows() == ROWS
    finally:
        monkeypatch.undo()
        question.forget()
        for module in [name for name in sys.modules if "a_new_question" in name]:
            del sys.modules[module]
    assert [table.name for table in tables()] == before


def test_importing_finds_no_tables() -> None:
    """`import profiler` and the command line's help do not look for tables."""
    import subprocess

    program = (
        "import sys, profiler, profiler.cli.main\n"
        "print([name for name in sys.modules if name.startswith('profiler.analysis')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


class _Recording(Inputs):
    """Inputs that note which table asks for which."""

    def __init__(self) -> None:
        from profiler.analysis import Selection

        super().__init__(tiny_run(), Selection(), (), {})
        self.asking: list[str] = []
        self.asked: set[str] = set()

    def table(self, name: str) -> pl.DataFrame:
        if len(self.asking) == 1:
            self.asked.add(name)
        self.asking.append(name)
        frame = super().table(name)
        self.asking.pop()
        return frame


@pytest.mark.parametrize(
    "table",
    [table for table in tables() if table.name not in ("findings", "contradictions")],
    ids=lambda table: table.name,
)
def test_tables_declare_what_they_read(table: Table) -> None:
    """`reads` is exactly the tables that a table asks for; findings are made of all others, and
    contradictions are sought in all."""
    inputs = _Recording()
    inputs.table(table.name)
    assert inputs.asked == set(table.reads)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"section": "no such"}, "'longest_calls' belongs to section 'no such', which is none"),
        ({"figure": FigureSpec("no_such", {})}, "a figure of kind 'no_such', which no module"),
    ],
)
def test_what_no_report_could_show_is_refused(changed: dict[str, object], why: str) -> None:
    """A table of an unknown section, or with a figure that nobody draws, is an error, not a gap."""
    with registered(replace(LONGEST_CALLS, **changed)), pytest.raises(ValueError, match=why):
        page_of(analyzed(tiny_run()))


def test_names_that_mean_something_else_are_refused() -> None:
    """Attributes of an analysis, and keys of its document, that are no tables."""
    document = to_document(profiler.analyze(tiny_run()))
    names = {table.name for table in tables()}
    made = {name for name, value in vars(Analysis).items() if isinstance(value, property)}
    assert ({field.name for field in fields(Analysis)} | made | set(document)) - names == TAKEN
    with pytest.raises(ValueError, match="no table can be called 'run'"):
        register(replace(LONGEST_CALLS, name="run"))
