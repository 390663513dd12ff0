"""SQL over runs: DuckDB in memory, on the frames as they are.

    with Database({"sd3": run}) as database:
        answer = database.ask("select submodule, sum(duration_ns) from calls group by all")

A query reads and does nothing else: no other statement is run, no file or extension is reached, no
setting can be changed, and memory and time are bounded. Tables beyond the run's own are made when a
query asks for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any

import polars as pl

from profiler.analysis.analyze import analyze
from profiler.analysis.annotation import annotated_commands
from profiler.analysis.result import Analysis
from profiler.errors import InputError, MissingPackageError, install_command
from profiler.report.query.answer import Answer, interrupted
from profiler.report.query.tables import tables_of_sql, with_run
from profiler.report.query.time_limit import TimeLimit
from profiler.report.tables import worded_tables
from profiler.run.columns import TABLES
from profiler.run.run import Run

__all__ = ["Database"]

_MEMORY = 4 << 30  # bytes at most, and at most half of the machine's
_READING = frozenset({"SELECT", "EXPLAIN", "MULTI"})  # a PIVOT is several statements
_MISSING = re.compile(r"Table with name \"?(\w+)\"? does not exist")
_COUNT = re.compile(r"count\(\s*\*\s*\)")
_SELECTS = re.compile(r"\bselect\b")  # DuckDB's `FROM commands` is all of them
_UNKNOWN = ("Binder Error", "Catalog Error")  # of a column, of a table
_SHOW_TABLES = re.compile(r"\s*SHOW\s+(ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE)
_EXCERPT = re.compile(r"\n+LINE (\d+): (.*)\n( *)(\^*)")
_LISTING = "SELECT * FROM listed_tables"
_JOIN = """
CREATE VIEW commands_with_calls AS
SELECT commands.* EXCLUDE (run), calls.submodule, calls.branch, calls.device AS call_device,
       calls.start_ns AS call_start_ns, calls.duration_ns AS call_duration_ns, calls.ops_traced,
       commands.run
FROM commands LEFT JOIN calls ON commands.call = calls.call AND commands.run = calls.run"""


class Database:
    """The tables of `runs`, which are given by name. A query computes for `timeout_s` at most,
    None: as long as it takes.

    Raises MissingPackageError where DuckDB is not installed.
    """

    def __init__(
        self,
        runs: Mapping[str, Run],
        timeout_s: float | None = None,
        frames: Mapping[str, Any] = MappingProxyType({}),
        views: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`frames` are tables beside those of runs, by name, frames or what Arrow reads piece by
        piece; `views` are queries over them, SQL of ours. Without any run, these are all."""
        self._duckdb = _duckdb()
        self._runs = runs
        self._timeout_s = timeout_s
        self._made: set[str] = set()
        self._annotated = False
        self._connection: Any = self._duckdb.connect(
            ":memory:",
            config={
                "enable_external_access": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
                "memory_limit": f"{_memory_limit() >> 20}MiB",
                "temp_directory": "",
            },
        )
        with suppress(self._duckdb.InvalidInputException):  # a notebook that has none refuses it
            self._connection.execute("SET enable_progress_bar = false")  # it draws on stdout
        self._connection.execute("CREATE SCHEMA analysis")
        for name, frame in frames.items():
            self._register(name, frame)
        for name, query in views.items():
            self._connection.execute(f"CREATE VIEW {name} AS {query}")
        if runs or not frames:
            for name in TABLES:
                self._make(name, self._of_run(name))
            self._connection.execute(_JOIN)
            self._register("listed_tables", _listed())
        self._connection.execute("SET lock_configuration = true")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def interrupt(self) -> None:
        """End the query that runs now; from any thread."""
        self._connection.interrupt()

    def ask(self, sql: str) -> Answer:
        """Run one query. Raises InputError with DuckDB's message and the place in `sql`."""
        self._check(sql)
        if self._runs and _SHOW_TABLES.fullmatch(sql):
            sql = _LISTING
        if self._runs and not self._annotated and _asks_for_derived(sql):
            self._annotate()
        limit = TimeLimit(self._timeout_s, self.interrupt)
        while True:
            try:
                with limit.computing():
                    relation = self._connection.sql(sql)
                return Answer(relation, self._failed, limit)
            except self._duckdb.InterruptException as error:
                raise interrupted(limit) from error
            except self._duckdb.Error as error:
                if not self._make_missing(str(error)):
                    raise self._failed(self._located(sql, error)) from error

    def _check(self, sql: str) -> None:
        try:
            statements = self._connection.extract_statements(sql)
        except self._duckdb.Error as error:
            raise self._failed(error) from error
        if len(statements) != 1:
            raise InputError(f"give one query: there are {len(statements)} in this SQL")
        kind = str(statements[0].type).rpartition(".")[2].upper()
        if kind not in _READING:
            raise InputError(f"only queries are run (SELECT, WITH, FROM, DESCRIBE, …), not {kind}")

    def _located(self, sql: str, error: Exception) -> Exception:
        """The error that says where in `sql` it is: binding lazily, which failed, does not."""
        try:
            self._connection.execute(sql)
        except self._duckdb.Error as found:
            error = found
        return error

    def _failed(self, error: Exception) -> InputError:
        """DuckDB's error as one sentence, with line and column where it names them."""
        text = str(error)
        if "Out of Memory" in text:
            return InputError(
                f"the query needs more than the {_memory_limit() >> 20:,} MiB it may use: ask for "
                "fewer rows or columns, or aggregate them"
            )
        excerpt = _EXCERPT.search(text)
        said = " ".join((text[: excerpt.start()] if excerpt else text).split())
        listed = self._runs and text.startswith(_UNKNOWN)
        more = "; `profile-sd3 query --tables` lists tables and columns" if listed else ""
        return InputError(f"{said}{_place(excerpt) if excerpt else ''}{more}")

    def _make_missing(self, message: str) -> bool:
        """Make the table that a query lacks; False where there is none of that name."""
        if not self._runs:
            return False
        found = _MISSING.search(message)
        name = found[1].lower() if found else ""
        if name in TABLES:
            name = f"analysis.{name}"
        table = tables_of_sql().get(name)
        if table is None or name in self._made:
            return False
        if not table.of_analysis:
            frame = with_run({run: of.args.collect() for run, of in self._runs.items()})
        else:
            tables = {
                run: worded_tables(of)[table.of_analysis] for run, of in self._analyses.items()
            }
            frame = with_run(tables)
        self._make(name, frame)
        return True

    def _make(self, name: str, frame: pl.DataFrame) -> None:
        """Register `frame`; a table of the analysis under its bare name and under `analysis.`"""
        self._made.add(name)
        of_analysis = tables_of_sql()[name].of_analysis
        self._register(f"frame_{name.replace('.', '_')}", frame)
        names = {name, f"analysis.{of_analysis}"} if of_analysis else {name}
        for view in names:
            self._connection.execute(
                f"CREATE VIEW {view} AS SELECT * FROM frame_{name.replace('.', '_')}"  # names of ours
            )

    def _register(self, name: str, frame: Any) -> None:
        """Let SQL see the columns as they are. Of a Polars frame DuckDB would import pandas."""
        given = frame.to_arrow() if isinstance(frame, pl.DataFrame) else frame
        self._connection.register(name, given)

    def _of_run(self, name: str) -> pl.DataFrame:
        frames = {run: getattr(of, name) for run, of in self._runs.items()}
        return with_run(_numbered(frames) if name == "commands" else frames)

    def _annotate(self) -> None:
        """Give commands role, FLOPs and bytes as the analysis knows them, where their producer told
        none."""
        filled = {name: annotated_commands(run) for name, run in self._runs.items()}
        self._register("frame_commands", with_run(_numbered(filled)))
        self._annotated = True

    @cached_property
    def _analyses(self) -> dict[str, Analysis]:
        return {name: analyze(run) for name, run in self._runs.items()}


def _listed() -> pl.DataFrame:
    """What `SHOW TABLES` answers: DuckDB knows neither the tables that are made when they are asked
    for nor what a row of them is."""
    known = [{"name": table.name, "row": table.rows} for table in tables_of_sql().values()]
    return pl.DataFrame(known)


def _numbered(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Commands with their row in their run, which flows refer to."""
    row = pl.int_range(pl.len(), dtype=pl.Int64).alias("command")
    return {name: frame.select(row, pl.all()) for name, frame in frames.items()}


def _asks_for_derived(sql: str) -> bool:
    """Whether the answer may hold what takes an analysis to find of commands."""
    text = _COUNT.sub("", sql.lower())
    named = any(word in text for word in ("role", "flops", "bytes_", "*"))
    return "commands" in text and (named or not _SELECTS.search(text))


def _place(excerpt: re.Match[str]) -> str:
    """Where the error lies, from DuckDB's picture of the line; of a long line it shows a part."""
    line, shown, indent, marks = excerpt.groups()
    column = len(indent) - len(f"LINE {line}: ") + 1
    if shown.startswith("...") or column < 1:
        return f" (line {line}, at {shown[column - 1 : column - 1 + len(marks)]})"
    return f" (line {line}, column {column})"


def _memory_limit() -> int:
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _MEMORY
    return min(_MEMORY, machine // 2)


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        command = install_command("query")
        raise MissingPackageError(f"queries need DuckDB: `{command}`") from error
    module: ModuleType = duckdb
    return module
