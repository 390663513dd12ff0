"""Every call, and what the host did between them."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis import columns
from profiler.analysis.operators.columns import OPERATORS
from profiler.messages import said
from profiler.report.model import Part, ReportInput, SectionKind, Shown
from profiler.report.patterns import by_pattern
from profiler.report.views import table

__all__ = ["SECTION"]

_CALLS = (
    Shown("call", "call", "count"),
    Shown("pipeline", "pipeline call", "step", 4),
    Shown("submodule", "submodule", "text"),
    Shown("stage", "stage", "text", 3),
    Shown("branch", "branch", "text", 2),
    Shown("step", "step", "step"),
    Shown("device", "device", "text", 1),
    Shown("start_ns", "start", "ns", 2),
    Shown("duration_ns", "duration", "ns"),
    Shown("busy_ns", "device time", "ns"),
    Shown("commands", "commands", "count", 1),
    Shown("operators", "operators", "count", 4),
    Shown("first", "first", "flag", 5),
    Shown("ops_traced", "traced", "flag", 5),
)
_HOST_WORK = (
    Shown("layer", "work", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("commands", "times", "count"),
    Shown("busy_sum_ns", "busy sum", "ns"),
    Shown("share", "share of host work", "share"),
    Shown("wall_union_ns", "wall union", "ns", 2),
    Shown("median_ns", "median", "ns", 1),
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """Calls in the order of their returns; starts are those since the begin of the run."""
    analysis = of.analysis
    calls = analysis.calls.with_columns(pl.col("start_ns") - of.begin_ns)
    several = len(analysis.pipelines) > 1
    shown = _CALLS if several else [c for c in _CALLS if c.name != "pipeline"]
    yield Part(table=table("calls", "calls", shown, columns.CALLS, calls, shown=15, search=True))
    yield Part(
        said("Host work"),
        table=table(
            "host",
            "host work",
            _HOST_WORK,
            OPERATORS,
            by_pattern(analysis.operators.filter(pl.col("host"))),
            shown=of.rows(10),
            search=True,
            sort="busy_sum_ns",
        ),
    )


SECTION = SectionKind("calls", 100, said("Calls"), _parts)
