"""SQL over runs: what it answers, what it refuses, and that docs/query.md says what happens."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import profiler
from profiler.errors import InputError, MissingPackageError
from profiler.report.files import write_answer
from profiler.run import Run
from profiler.tools.query import (
    Database,
    answer_lines,
    table_lines,
    tables_of_sql,
)
from profiler.tools.sources import load
from tests.documents import conforms
from tests.trace.samples import small_bundle

pytest.importorskip("duckdb", reason="needs the query extra")

_REPOSITORY = Path(__file__).parents[3]
_SAMPLES = [_REPOSITORY / "sample_traces" / name for name in ("tiny_two_devices", "sd35_mi300x")]
_READY = re.findall(
    r"```sql\n(.+?)```", (_REPOSITORY / "docs" / "query.md").read_text("utf-8"), re.DOTALL
)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {path.name: load(path) for path in _SAMPLES}


@pytest.fixture
def database(runs: dict[str, Run]) -> Iterator[Database]:
    with Database(runs) as database:
        yield database


@pytest.fixture(scope="module")
def kept(runs: dict[str, Run]) -> Iterator[Database]:
    """One for tests that only ask: it analyzes the samples once."""
    with Database(runs) as database:
        yield database


def _asked(database: Database, sql: str) -> pl.DataFrame:
    return pl.concat(database.ask(sql).batches())


def test_sums_are_those_of_the_frames(database: Database, runs: dict[str, Run]) -> None:
    """Commands and their time, by run and submodule, are what Polars says of the frames."""
    found = _asked(
        database,
        "SELECT run, submodule, count(*) AS n, sum(duration_ns) AS ns FROM commands_with_calls "
        "WHERE call >= 0 GROUP BY ALL",
    )
    expected = [
        (name, submodule, len(group), group["duration_ns"].sum())
        for name, run in runs.items()
        for (submodule,), group in run.commands.join(
            run.calls.select("call", "submodule"), on="call"
        ).group_by("submodule")
    ]
    assert found.schema["ns"] == pl.Int64
    assert sorted(found.rows()) == sorted(expected)


def test_nothing_is_drawn_into_an_answer(database: Database) -> None:
    """DuckDB draws a bar on stdout after two seconds where Python runs no file, as in a worker of
    tests: never for us, whose answer may go there."""
    found = _asked(database, "SELECT current_setting('enable_progress_bar') AS bar")
    assert found["bar"].to_list() == [False]


@pytest.mark.parametrize("name", tables_of_sql())
def test_every_table_is_as_it_is_declared(kept: Database, name: str) -> None:
    """Each table that is listed is there, with the declared columns in their order."""
    found = _asked(kept, f"SELECT * FROM {name} LIMIT 3")
    assert found.columns == [column.name for column in tables_of_sql()[name].columns]


def test_tables_of_the_analysis(database: Database, runs: dict[str, Run]) -> None:
    """They hold what `profiler.analyze` gives, under either name; calls are of run or analysis."""
    name, run = next(iter(runs.items()))
    analysis = profiler.analyze(run)
    for table in ("operators", "analysis.operators", "analysis.calls"):
        found = _asked(database, f"SELECT * EXCLUDE (run) FROM {table} WHERE run = '{name}'")
        expected = getattr(analysis, table.removeprefix("analysis."))
        assert found.rows() == expected.rows()
    assert "busy_ns" not in _asked(database, "SELECT * FROM calls").columns


def test_roles_are_those_of_the_analysis(runs: dict[str, Run]) -> None:
    """Whether named or by a star, every compute command of a call has its role."""
    for head in ("SELECT role FROM", "SELECT * FROM", "FROM"):
        with Database(runs) as database:
            found = _asked(database, f"{head} commands WHERE call >= 0 AND category = 'compute'")
            assert len(found) > 1000
            assert found["role"].null_count() == 0


def test_rows_join_flows_and_commands(database: Database, runs: dict[str, Run]) -> None:
    """`commands.command` is the row that flows refer to, in each run."""
    found = _asked(
        database,
        "SELECT count(*) FROM flows f JOIN commands c ON c.command = f.source AND c.run = f.run",
    )
    assert found.item() == sum(len(run.flows) for run in runs.values()) > 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "COPY calls TO '/tmp/calls.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '1TB'",
        "SET enable_external_access = true",
        "DROP VIEW calls",
        "CREATE TABLE t AS SELECT 1",
        "DELETE FROM calls",
        "SELECT * FROM runs",  # a variable of this test, not a table
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_a_query_only_reads(database: Database, sql: str) -> None:
    """No file, extension, setting, variable of Python or other statement is reached."""
    with pytest.raises(InputError):
        _asked(database, sql)


def test_a_query_has_a_limit_of_memory(runs: dict[str, Run], monkeypatch) -> None:
    """What needs more than it may use is one sentence; nothing is put off to the disk."""
    monkeypatch.setattr("profiler.tools.query._MEMORY", 8 << 20)
    sql = "SELECT list(a.range) AS numbers FROM range(3000) a, range(3000) b"
    too_much = pytest.raises(InputError, match="needs more than the 8 MiB it may use")
    with Database(runs) as small, too_much:
        _asked(small, sql)


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELEC 1", r'syntax error at or near "SELEC" \(line 1, column 1\)$'),
        (
            "SELECT\n  durtion_ns\nFROM calls",
            r"duration_ns.* \(line 2, column 3\); `profile-sd3 query --tables` lists tables",
        ),
        (
            "SELECT * FROM callz",
            r'Did you mean "calls"\? \(line 1, column 15\); `profile-sd3 query --tables` lists',
        ),
        ("SELECT error('no') FROM calls", "no"),
        (f"SELECT {'1 + ' * 200} nothing FROM calls", r"\(line 1, at nothing\); "),
        ("SELECT 170141183460469231731687303715884105727 AS big", "cast it"),
    ],
)
def test_errors_are_one_sentence(database: Database, sql: str, sentence: str) -> None:
    """DuckDB's message in one line, with the place it points at."""
    with pytest.raises(InputError, match=sentence) as error:
        _asked(database, sql)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("sql", ["SHOW TABLES", "show all tables;"])
def test_tables_are_shown_with_those_of_the_analysis(kept: Database, sql: str) -> None:
    """All tables that a query may name, made or not, with what a row of each is; no frame of ours
    that they are made of."""
    found = _asked(kept, sql)
    assert found["name"].to_list() == [*tables_of_sql()]
    assert found["row"].null_count() == 0


@pytest.mark.parametrize("sql", _READY, ids=range(len(_READY)))
def test_the_ready_queries_of_the_docs(kept: Database, sql: str) -> None:
    """Each query of docs/query.md has an answer on the samples."""
    assert len(_asked(kept, sql))


def test_formats_hold_the_same(database: Database, tmp_path: Path) -> None:
    """CSV, Parquet and JSON written at once have the same rows; nested values are JSON in CSV, and
    a line break within a text is �."""
    sql = """
        SELECT 1::HUGEINT AS whole, 'a,"b"\n' AS text, [1, 2] AS list, NULL AS none,
               'nan'::DOUBLE AS odd, INTERVAL 1 SECOND AS span,
               2.5::DECIMAL(4, 1) AS tenth, 3 AS whole"""
    files = {form: tmp_path / form for form in ("csv", "parquet", "json")}
    assert write_answer(database.ask(sql).batches(), files, io.BytesIO()) == 1
    (row,) = json.loads(files["json"].read_text())["rows"]
    assert row == {
        "whole": 1,
        "text": 'a,"b"\n',
        "list": [1, 2],
        "none": None,
        "odd": None,
        "span": "00:00:01",
        "tenth": 2.5,
        "whole_2": 3,
    }
    (line,) = csv.DictReader(io.StringIO(files["csv"].read_bytes().decode(), newline=""))
    assert (line["text"], line["list"], line["none"]) == ('a,"b"�', "[1, 2]", "")
    frame = pl.read_parquet(files["parquet"])
    assert (frame["whole"].item(), frame["list"].to_list()) == (1, [[1, 2]])
    assert frame.columns == list(row)


def test_no_rows_are_a_whole_file(database: Database, tmp_path: Path) -> None:
    """An answer without rows has its columns in CSV and Parquet, and no rows in its document."""
    files = {form: tmp_path / form for form in ("csv", "parquet", "json")}
    answer = database.ask("SELECT call, step FROM calls WHERE false")
    assert write_answer(answer.batches(), files, io.BytesIO()) == 0
    assert files["csv"].read_text() == "call,step\n"
    assert pl.read_parquet(files["parquet"]).columns == ["call", "step"]
    assert conforms(json.loads(files["json"].read_text()))["rows"] == []


def test_a_query_that_fails_leaves_no_file(database: Database, tmp_path: Path) -> None:
    """Where the answer breaks off, the file of before is still there and no other."""
    target = tmp_path / "a.csv"
    target.write_text("before")
    answer = database.ask(
        "SELECT CASE WHEN range > 100000 THEN error('late') ELSE range END FROM range(200000)"
    )
    with pytest.raises(InputError, match="late"):
        write_answer(answer.batches(), {"csv": target}, io.BytesIO())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def _frames(**columns: list[object]) -> list[pl.DataFrame]:
    return [pl.DataFrame(columns)]


def test_a_table_fits_the_terminal() -> None:
    """Long texts lose their middle, columns without room are named, rows left out are counted."""
    layers = [f"transformer_blocks.{n}.attn.to_out.0.with_a_long_tail" for n in range(5)]
    frames = _frames(layer=layers, ns=[10**n for n in range(5)], last=[0.5] * 5)
    assert list(answer_lines(frames, 3, 34)) == [
        "layer                     ns  last",
        "───────────────────────  ───  ────",
        "transfo…ith_a_long_tail    1   0.5",
        "transfo…ith_a_long_tail   10   0.5",
        "transfo…ith_a_long_tail  100   0.5",
        "… and 2 more of 5 rows: --rows 0 shows all",
    ]
    narrow = list(answer_lines(frames, 5, 20))
    assert narrow[2] == "tran…ong_tail      1"
    assert " ".join(narrow[7:]) == "… and 1 more column: last"


def test_columns_that_stay_take_the_room_of_those_that_go() -> None:
    """A text is cut no shorter than the columns that are shown need."""
    frames = _frames(submodule=["text_encoder_3"], branch=["negative_prompt"], shapes=["x" * 50])
    assert list(answer_lines(frames, 5, 39))[2:] == [
        "text_encoder_3  negative_prompt",
        "… and 1 more column: shapes",
    ]


def test_everything_where_it_is_piped() -> None:
    """Without a limit and a width no cell is cut and every row is there, in batches or not."""
    frames = [
        pl.DataFrame({"n": list(range(at, at + 700)), "t": ["x" * 200] * 700}) for at in (0, 700)
    ]
    lines = list(answer_lines(iter(frames), None, None))
    assert len(lines) == 2 + 1400
    assert lines[-1] == f"1399  {'x' * 200}"


def test_names_cannot_steer_the_terminal() -> None:
    """Control codes in texts and names of columns are shown as escapes; wide characters align."""
    lines = list(
        answer_lines(_frames(**{"a\x1b[31m": ["x\x1b[0m\n"], "b": ["한국"], "c": [1]}), 5, 80)
    )
    assert lines[0].startswith(r"a\x1b[31m")
    assert lines[2] == r"x\x1b[0m\n  한국  1"
    assert not any("\x1b" in line for line in lines)


def test_every_table_is_listed() -> None:
    """`--tables` names each table with all its columns."""
    lines = list(table_lines(100))
    for table in tables_of_sql().values():
        assert any(line.startswith(f"{table.name}: ") for line in lines)
    assert len(lines) >= sum(2 + len(table.columns) for table in tables_of_sql().values())


def test_a_run_of_nothing(tmp_path: Path) -> None:
    """A run without roles to find, flows or args still answers about all its tables."""
    with Database({"small": load(small_bundle(tmp_path))}) as database:
        for name in tables_of_sql():
            assert _asked(database, f"SELECT count(*) FROM {name}").item() >= 0


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where DuckDB is not installed one sentence says how to get it."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(MissingPackageError, match=r"`pip install 'duckdb>=2\.0'`"):
        Database({})
