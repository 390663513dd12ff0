"""SQL over runs: DuckDB in memory on the run's tables, with memory and time limits.

    with Database({"sd3": run}) as database:
        answer = database.ask("select submodule, sum(duration_ns) from calls group by all")

Queries only read. Other statements, files, extensions and settings are refused. Analysis tables
are computed when a query first uses them. Every table has a last column `run`, so a query works
for one run or several. Ctrl-C interrupts a query.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from types import MappingProxyType, ModuleType
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size

from profiler.analysis.analyze import analyze, annotated_commands
from profiler.analysis.question import tables
from profiler.analysis.result import Analysis
from profiler.errors import InputError, MissingPackageError, install_command
from profiler.files import writable
from profiler.plugins import plain_text
from profiler.report.files import worded_columns, worded_tables
from profiler.run.columns import ARGS, TABLES, TEXT, Column, col
from profiler.run.run import Run
from profiler.text import count, counted

# --- Ctrl-C that ends at once what a library runs for long.


@contextmanager
def at_ctrl_c(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` on Ctrl-C within the block, immediately and on a thread of its own.

    Python handles a signal once its main thread is in Python again. DuckDB checks for signals while
    it computes, which may take many seconds if another thread, such as one that draws progress,
    takes the interpreter's lock in between. Does nothing on other threads than the main one, or if
    there is another wake-up descriptor already, as of asyncio's loop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            yield
            return
        thread = threading.Thread(target=_watch, args=(ours, act), daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            theirs.close()
            thread.join()


def _watch(signals: socket.socket, act: Callable[[], object]) -> None:
    """Call `act` whenever SIGINT's number arrives, until the other side is closed."""
    while numbers := signals.recv(64):
        if signal.SIGINT in numbers:
            act()


# --- The tables of SQL: those of the run, those of its analysis, and the meaning of their columns.
#
# Every table has a column `run` at its end, so that a query works for one run and for several.


_JOINED = "commands_with_calls"

_RUN = col("run", TEXT, "name of the run that it is of")
_COMMAND = Column(
    "command", pl.Int64(), "row", "number of the command in its run: what flows and args refer to"
)
_OF_CALL = ("submodule", "branch", "device", "start_ns", "duration_ns", "ops_traced")


@dataclass(frozen=True, slots=True)
class SqlTable:
    """One table: its `name` in SQL, what a row is, and its columns. `of_analysis` is its name in
    the analysis, "" for tables of the run."""

    name: str
    rows: str
    columns: tuple[Column, ...]
    of_analysis: str = ""


_ROWS = {
    "calls": "one invocation of a submodule",
    "commands": "one command: a unit of work executed on a track",
    "counters": "one sample of a counter",
    "flows": "one dependency between two commands",
    "spans": "one span of a pipeline, stage or step, or of the profiler's own work",
    "args": "one argument that a producer gave a command",
    _JOINED: "one command with the call it belongs to",
}


def _joined_columns() -> tuple[Column, ...]:
    """The columns of `commands`, then those of their call under the names of `Run.to_pandas`."""
    taken = {column.name for column in TABLES["commands"]}
    of_call = (column for column in TABLES["calls"] if column.name in _OF_CALL)
    added = (
        Column(
            f"call_{column.name}" if column.name in taken else column.name,
            column.dtype,
            column.unit,
            f"of its call: {column.meaning}",
            nullable=True,
        )
        for column in of_call
    )
    return (_COMMAND, *TABLES["commands"], *added)


def tables_of_sql() -> Mapping[str, SqlTable]:
    """Return the tables by name in SQL, in the order in which they are listed."""
    of_run = {
        **TABLES,
        "commands": (_COMMAND, *TABLES["commands"]),
        _JOINED: _joined_columns(),
        "args": ARGS,
    }
    found = [SqlTable(name, _ROWS[name], (*columns, _RUN)) for name, columns in of_run.items()]
    for table in tables():
        known = f"analysis.{table.name}" if table.name in TABLES else table.name
        columns = worded_columns(table)
        found.append(SqlTable(known, table.row, (*columns, _RUN), table.name))
    return MappingProxyType({table.name: table for table in found})


def with_run(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the frames of runs, by name, with the column `run`. Copies no row."""
    named = (
        frame.with_columns(run=pl.lit(name, dtype=pl.String).cast(TEXT))
        for name, frame in frames.items()
    )
    return pl.concat(named, rechunk=False)


# --- Answers and tables as text: columns that fit the terminal; complete if piped.
#
# Names come from traces: non-printable characters, such as control codes, are shown as escapes.


_GAP = "  "
_LEAST = 12  # characters to which text columns are cut before any is left out
_CELL = 60  # characters of a cell on a terminal
_PLAN = ["explain_key", "explain_value"]
_LOOKED_AT = 1000  # rows that decide column widths if all are shown
_TYPES = {pl.Int32: "INTEGER", pl.Int64: "BIGINT", pl.Float64: "DOUBLE", pl.Boolean: "BOOLEAN"}


def answer_lines(
    batches: Iterable[pl.DataFrame], limit: int | None, width: int | None
) -> Iterator[str]:
    """Yield the rows as lines below a heading: at most `limit` (None: all), within `width`
    characters (None: unlimited). The last lines say what is left out."""
    rest = iter(batches)
    first = next(rest)
    wanted = _LOOKED_AT if limit is None else limit
    while len(first) <= wanted and (more := next(rest, None)) is not None:
        first = pl.concat([first, more])
    if first.columns == _PLAN:
        yield from (
            _printable(line) for text in first["explain_value"] for line in text.splitlines()
        )
        return
    names = [_printable(name) for name in first.columns]
    right = [dtype.is_numeric() for dtype in first.dtypes]
    rows = list(_rows(first.head(wanted)))
    widths = _widths(names, rows, right, width)
    yield _line(names, widths, right)
    yield _GAP.join("─" * size for size in widths)
    for row in rows:
        yield _line(row, widths, right)
    others = chain([first[wanted:]], rest)
    if limit is None:
        for row in chain.from_iterable(map(_rows, others)):
            yield _line(row, widths, right)
    elif left := sum(map(len, others)):
        yield f"… and {count(left)} more of {count(left + len(rows))} rows: --rows 0 shows all"
    if len(widths) < len(names):
        left_out = ", ".join(names[len(widths) :])
        text = f"… and {counted(len(names) - len(widths), 'more column')}: {left_out}"
        yield from textwrap.wrap(text, width or len(text))


def table_lines(width: int) -> Iterator[str]:
    """Yield every table of SQL, with its columns, their types, units and meanings."""
    for table in tables_of_sql().values():
        yield from textwrap.wrap(f"{table.name}: {table.rows}", width)
        yield from _column_lines(table, width)
        yield ""


def _column_lines(table: SqlTable, width: int) -> Iterator[str]:
    longest = max(len(column.name) for column in table.columns)
    for column in table.columns:
        kind = _type_name(column.dtype)
        null = ", may be null" if column.nullable else ""
        unit = f" ({column.unit})" if column.unit and column.unit != "row" else ""
        head = f"  {column.name:<{longest}}  {kind:<7}  "
        text = f"{column.meaning}{unit}{null}"
        yield from textwrap.wrap(
            text, max(width, len(head) + 20), initial_indent=head, subsequent_indent=" " * len(head)
        )


def _type_name(dtype: pl.DataType) -> str:
    """Return DuckDB's name of a type."""
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.DataType):
        return f"{_type_name(dtype.inner)}[]"
    return _TYPES.get(dtype.base_type(), "VARCHAR")


def _rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    return ([_cell(value) for value in row] for row in frame.iter_rows())


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.1f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, (list, dict)):
        return _printable(json.dumps(value, ensure_ascii=False, default=str))
    return _printable(str(value))


def _printable(text: str) -> str:
    return plain_text(text, _as_escape)


def _as_escape(character: str) -> str:
    return character.encode("unicode_escape", "replace").decode()


def _widths(
    names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int | None
) -> list[int]:
    """Return the width of each column; if they do not fit even when cut, of the first ones only."""
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    if width is None:
        return widths
    widths = [min(size, _CELL) for size in widths]
    least = [
        size if at_right else min(size, _LEAST)
        for size, at_right in zip(widths, right, strict=True)
    ]
    kept = 1
    while kept < len(least) and sum(least[: kept + 1]) + len(_GAP) * kept <= width:
        kept += 1
    widths = widths[:kept]
    over = sum(widths) + len(_GAP) * (kept - 1) - width
    while over > 0:
        size, column = max(
            ((size, -at) for at, size in enumerate(widths) if size > least[at]), default=(0, 0)
        )
        if not size:
            break
        widths[-column] -= 1
        over -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = (
        cell.rjust(size) if at_right else _fitted(cell, size)
        for cell, size, at_right in zip(cells, widths, right, strict=False)
    )
    return _GAP.join(fitted).rstrip()


def _fitted(text: str, size: int) -> str:
    """Cut or pad `text` to `size` characters; a long one keeps its start and end, which
    distinguishes module paths."""
    taken = cell_len(text)
    if taken <= size:
        return text + " " * (size - taken)
    head = set_cell_size(text, (size - 1) // 3)
    tail = text
    while cell_len(tail) > size - 1 - cell_len(head):
        tail = tail[1:]
    return set_cell_size(f"{head}…{tail}", size)


# --- How long a query may compute, over all of its batches: who reads them takes the time it takes.


_AGAIN_S = 0.05


class TimeLimit:
    """Calls `end` on a thread of its own when the computation has used up `seconds` (None: never),
    repeatedly until it has ended, because a query that has not started yet ignores it. `exceeded`
    says that the time is up."""

    def __init__(self, seconds: float | None, end: Callable[[], object]) -> None:
        self.seconds = seconds
        self.exceeded = False
        self._left_s = seconds or 0.0
        self._end = end

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time of the block."""
        if self.seconds is None:
            yield
            return
        begin, ended = time.monotonic(), threading.Event()
        thread = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._left_s -= time.monotonic() - begin

    def _watch(self, ended: threading.Event) -> None:
        if ended.wait(max(self._left_s, 0.0)):
            return
        self.exceeded = True
        self._end()
        while not ended.wait(_AGAIN_S):
            self._end()


# --- The answer of a query, read once in batches, with columns that every format accepts.


_BATCH = 65_536  # rows
_FOREIGN = re.compile("BLOB|INTERVAL|BIT|UUID|MAP|UNION|TIME WITH|UHUGEINT|BIGNUM|VARIANT|GEOMETRY")
_INTERRUPTED = "Query interrupted"  # DuckDB's message for Ctrl-C


class Answer:
    """The answer of a query: `names` of the columns, and `batches` of rows. Sums of integers, which
    DuckDB returns as 128 bits, are int64."""

    def __init__(
        self, relation: Any, failed: Callable[[Exception], InputError], limit: TimeLimit
    ) -> None:
        self.names = _distinct(list(relation.columns))
        self._relation = _as_texts(relation)
        self._failed = failed
        self._limit = limit

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield at least one frame, which may be empty; all have the same columns. Raises
        InputError if the query fails or takes too long, KeyboardInterrupt if Ctrl-C ended it."""
        import duckdb
        import pyarrow as pa

        try:
            with self._limit.computing():
                reader = self._relation.to_arrow_reader(_BATCH)
            yield self._frame(reader.schema.empty_table())
            while (batch := self._next(reader)) is not None:
                if batch.num_rows:
                    yield self._frame(pa.Table.from_batches([batch]))
        except duckdb.InterruptException as error:
            raise interrupted(self._limit) from error
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failed(error) from error
        except RuntimeError as error:
            if str(error) != _INTERRUPTED:
                raise
            raise interrupted(self._limit) from error

    def _next(self, reader: Any) -> Any:
        with self._limit.computing():
            return next(reader, None)

    def _frame(self, table: Any) -> pl.DataFrame:
        frame = pl.from_arrow(table.rename_columns(self.names))
        assert isinstance(frame, pl.DataFrame)
        return _plain(frame)


def interrupted(limit: TimeLimit) -> BaseException:
    """Return the exception for an interrupted query: its time limit, or Ctrl-C."""
    if not limit.exceeded:
        return KeyboardInterrupt()
    return InputError(
        f"the query took more than the {limit.seconds:g} s that it may take: give it more with "
        "--timeout, or ask for less"
    )


def _as_texts(relation: Any) -> Any:
    """Cast columns that Arrow and Polars do not share, such as intervals, to text."""
    kinds = [str(kind) for kind in relation.types]
    if not any(map(_FOREIGN.search, kinds)):
        return relation
    columns = (
        f"#{number}::VARCHAR" if _FOREIGN.search(kind) else f"#{number}"
        for number, kind in enumerate(kinds, 1)
    )
    return relation.project(", ".join(columns))


def _distinct(names: list[str]) -> list[str]:
    """Make names of columns unique: a, a_2, …"""
    found: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    whole = [
        name
        for name, dtype in frame.schema.items()
        if dtype == pl.Int128 or (isinstance(dtype, pl.Decimal) and dtype.scale == 0)
    ]
    try:
        return frame.with_columns(pl.col(whole).cast(pl.Int64)) if whole else frame
    except pl.exceptions.InvalidOperationError as error:
        raise InputError(
            f"a number of {', '.join(whole)} is beyond 64 bits: cast it in the query, "
            "sum(…)::DOUBLE"
        ) from error


# --- SQL over runs: DuckDB in memory, on the frames without copies.
#
# A query only reads: no other statement is run, no file or extension is reached, no setting can be
# changed, and memory and time are bounded. Tables beyond the run's own are made when a query asks
# for them.


_MEMORY = 4 << 30  # bytes at most, and at most half of the machine's
_READING = frozenset({"SELECT", "EXPLAIN", "MULTI"})  # a PIVOT is several statements
_MISSING = re.compile(r"Table with name \"?(\w+)\"? does not exist")
_COUNT = re.compile(r"count\(\s*\*\s*\)")
_SELECTS = re.compile(r"\bselect\b")  # without it, as in `FROM commands`, all columns are read
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
    """The tables of `runs`, given by name, as an SQL database. A query computes for `timeout_s` at
    most, None: without a limit.

    Raises MissingPackageError if DuckDB is not installed.
    """

    def __init__(
        self,
        runs: Mapping[str, Run],
        timeout_s: float | None = None,
        frames: Mapping[str, Any] = MappingProxyType({}),
        views: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Open the database. `frames` are further tables by name, as frames or what Arrow reads in
        pieces; `views` are our SQL queries over them. Without runs, these are all tables."""
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
        with suppress(self._duckdb.InvalidInputException):  # a notebook without one refuses it
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
        """End the running query, from any thread."""
        self._connection.interrupt()

    def ask(self, sql: str) -> Answer:
        """Run one query. Raises InputError with DuckDB's message and the place in `sql`."""
        if not sql.isascii() and sql != writable(sql):
            raise InputError("the query is not valid UTF-8: type it again")
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
        """Return the error with its place in `sql`, which a failed lazy binding lacks."""
        try:
            self._connection.execute(sql)
        except self._duckdb.Error as found:
            error = found
        return error

    def _failed(self, error: Exception) -> InputError:
        """Return DuckDB's error as one sentence, with line and column if it has them."""
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
        """Make the table that a query lacks; return False if there is none of that name."""
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
            frames = {run: of.args.collect() for run, of in self._runs.items()}
        else:
            frames = {
                run: worded_tables(of)[table.of_analysis] for run, of in self._analyses.items()
            }
        self._make(name, with_run(frames))
        return True

    def _make(self, name: str, frame: pl.DataFrame) -> None:
        """Register `frame`; a table of the analysis under its bare name and under `analysis.`"""
        self._made.add(name)
        of_analysis = tables_of_sql()[name].of_analysis
        registered = f"frame_{name.replace('.', '_')}"
        self._register(registered, frame)
        for view in {name, f"analysis.{of_analysis}"} if of_analysis else {name}:
            self._connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {registered}")  # noqa: S608  # names of ours

    def _register(self, name: str, frame: Any) -> None:
        """Register a table for SQL without a copy. As Arrow, because DuckDB would import pandas for
        a Polars frame."""
        given = frame.to_arrow() if isinstance(frame, pl.DataFrame) else frame
        self._connection.register(name, given)

    def _of_run(self, name: str) -> pl.DataFrame:
        frames = {run: getattr(of, name) for run, of in self._runs.items()}
        return with_run(_numbered(frames) if name == "commands" else frames)

    def _annotate(self) -> None:
        """Fill in commands' role, FLOPs and bytes from the analysis, if not recorded."""
        filled = {name: annotated_commands(run) for name, run in self._runs.items()}
        self._register("frame_commands", with_run(_numbered(filled)))
        self._annotated = True

    @cached_property
    def _analyses(self) -> dict[str, Analysis]:
        return {name: analyze(run) for name, run in self._runs.items()}


def _listed() -> pl.DataFrame:
    """Return the answer of `SHOW TABLES`: DuckDB knows neither tables that are made on demand nor
    what their rows are."""
    tables = tables_of_sql().values()
    return pl.DataFrame([{"name": table.name, "row": table.rows} for table in tables])


def _numbered(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Commands with their row in their run, which flows refer to."""
    row = pl.int_range(pl.len(), dtype=pl.Int64).alias("command")
    return {name: frame.select(row, pl.all()) for name, frame in frames.items()}


def _asks_for_derived(sql: str) -> bool:
    """Whether the answer may contain columns of commands that need an analysis."""
    text = _COUNT.sub("", sql.lower())
    named = any(word in text for word in ("role", "flops", "bytes_", "*"))
    return "commands" in text and (named or not _SELECTS.search(text))


def _place(excerpt: re.Match[str]) -> str:
    """The place of the error from DuckDB's excerpt of the line, which may be only a part of it."""
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
    return duckdb
