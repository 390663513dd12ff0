"""The tables that SQL sees: those of the run, those of its analysis, and what their columns mean.

Every table has a column `run` at its end, so that a query works for one run and for several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from profiler.analysis.registry import tables
from profiler.report.tables import worded_columns
from profiler.run.columns import ARGS, TABLES, TEXT, Column

__all__ = ["SqlTable", "tables_of_sql", "with_run"]

_JOINED = "commands_with_calls"

_RUN = Column("run", TEXT, "", "name of the run that it is of")
_COMMAND = Column(
    "command", pl.Int64(), "row", "number of the command in its run: what flows and args refer to"
)
_OF_CALL = ("submodule", "branch", "device", "start_ns", "duration_ns", "ops_traced")


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table: its `name` in SQL, what a row of it is, and its columns. `of_analysis`: what the
    analysis calls it, "" for tables of the run."""

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
    """The columns of `commands`, then those of the call under the names of `Run.to_pandas`."""
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
    """By name in SQL, in the order in which they are listed."""
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
    """The frames of several runs, given by their names, one below the other with the column
    `run`. No row is copied."""
    named = (
        frame.with_columns(run=pl.lit(name, dtype=pl.String).cast(TEXT))
        for name, frame in frames.items()
    )
    return pl.concat(named, rechunk=False)
