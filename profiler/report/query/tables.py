"""The tables that SQL sees: those of the run, those of its analysis, and what their columns mean.

Every table has a column `run` at its end, so that a query works for one run and for several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from profiler.analysis.columns import LOSSES
from profiler.analysis.columns import TABLES as OF_ANALYSIS
from profiler.report.sentences.findings.frame import WORDED_FINDINGS
from profiler.table.columns import ARGS, TABLES, TEXT, Column

__all__ = ["TABLES_OF_SQL", "SqlTable", "with_run"]

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
    "spans": "one span of a pipeline, stage or step",
    "args": "one argument that a producer gave a command",
    _JOINED: "one command with the call it belongs to",
}
_ROWS_OF_ANALYSIS = {
    "pipelines": "one pipeline call",
    "stages": "one stage",
    "devices": "one device",
    "submodules": "one submodule",
    "branches": "one branch of a submodule",
    "calls": "one call, with what its commands add up to",
    "steps": "one denoising step",
    "operators": "one operator of a submodule, its commands folded",
    "geometry": "one part of a split operator",
    "roles": "one role in a submodule",
    "blocks": "one block of a submodule",
    "roofline": "one operator on a device, against its roof",
    "roofline_roles": "one role on a device, against its roof",
    "fusions": "one chain of operators that could be fused",
    "step_operators": "one part of the steps, and how it changes over them",
    "step_times": "one part in one step",
    "step_outliers": "one part in one step that stands out",
    "guidance": "one measure of what guidance costs",
    "invariants": "one group of operators that is computed again",
    "memory_devices": "the memory of one device",
    "memory": "the memory of one submodule on a device",
    "memory_timeline": "one moment on a device, and its memory from then on",
    "idle": "one device, and what it waited for",
    "critical_path": "one part of a pipeline call's critical path",
    "boundaries": "one pair of providers that a session switches between",
    "stranded": "one layer that fell back to another provider",
    "losses": "one thing that was executed but is not in the trace",
    "findings": "one finding: what stands out, and what to do",
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


def _tables() -> Mapping[str, SqlTable]:
    of_run = {
        **TABLES,
        "commands": (_COMMAND, *TABLES["commands"]),
        _JOINED: _joined_columns(),
        "args": ARGS,
    }
    found = [SqlTable(name, _ROWS[name], (*columns, _RUN)) for name, columns in of_run.items()]
    for name, columns in {**OF_ANALYSIS, "losses": LOSSES, "findings": WORDED_FINDINGS}.items():
        known = f"analysis.{name}" if name in TABLES else name
        found.append(SqlTable(known, _ROWS_OF_ANALYSIS[name], (*columns, _RUN), name))
    return MappingProxyType({table.name: table for table in found})


TABLES_OF_SQL: Mapping[str, SqlTable] = _tables()
"""By name in SQL, in the order in which they are listed."""


def with_run(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The frames of several runs, given by their names, one below the other with the column
    `run`. No row is copied."""
    named = (
        frame.with_columns(run=pl.lit(name, dtype=pl.String).cast(TEXT))
        for name, frame in frames.items()
    )
    return pl.concat(named, rechunk=False)
