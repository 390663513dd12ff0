"""The table of compilations."""

from __future__ import annotations

import polars as pl

from profiler.analysis.compilation.columns import COMPILATIONS
from profiler.analysis.inputs import Inputs
from profiler.analysis.table import Table
from profiler.run.columns import schema
from profiler.trace.events import NO_CALL, NO_STEP
from profiler.trace.manifest_fields import Compilation, GraphBreak

__all__ = ["TABLES"]


def _compilations(of: Inputs) -> pl.DataFrame:
    """Those of the calls that are selected; those of no call only where nothing is selected."""
    calls = of.calls.select("call", pl.col("submodule").cast(pl.String), "step").rows()
    known = {call: (submodule, step) for call, submodule, step in calls}
    if not of.selection:
        known[NO_CALL] = (None, NO_STEP)
    rows = [_row(one, *known[one.call]) for one in of.run.info.compilations if one.call in known]
    return pl.DataFrame(rows, schema=schema(COMPILATIONS), orient="row")


def _row(one: Compilation, submodule: str | None, step: int) -> tuple[object, ...]:
    return (
        one.id,
        one.call,
        submodule,
        step,
        one.function,
        one.start_ns,
        one.duration_ns,
        one.recompile_reason or None,
        sum(each.times for each in one.graph_breaks),
        "; ".join(map(_said, one.graph_breaks)) or None,
        one.failure or None,
        one.forgotten,
        one.forgotten_ns,
    )


def _said(graph_break: GraphBreak) -> str:
    """The line and the compiler's own words."""
    return ": ".join(filter(None, (graph_break.place, graph_break.reason)))


TABLES = (
    Table(
        name="compilations",
        row="one compilation that the run waited for",
        section="calls",
        columns=COMPILATIONS,
        make=_compilations,
        title="Compilations",
        about="Rows are in order of their begin. The table is empty where nothing was compiled, "
        "and for imports. A call that compiled is not a steady call: see `first` of "
        "[calls](#calls). The time that a call spent on compilation is the sum of `duration_ns` "
        "and `forgotten_ns` of its rows. Reasons are quoted from the compiler.",
    ),
)
