"""Every call, and what the host did between them."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.operators.columns import OPERATORS
from profiler.analysis.submodules.columns import CALLS
from profiler.messages import said
from profiler.report.model import Part, ReportInput, SectionKind
from profiler.report.patterns import by_pattern
from profiler.report.views import renamed, table

__all__ = ["SECTION"]

_CALLS = (
    "call",
    "pipeline",
    "submodule",
    "stage",
    "branch",
    "step",
    "device",
    "start_ns",
    "duration_ns",
    "busy_ns",
    "commands",
    "operators",
    "first",
    "ops_traced",
)
_HOST_WORK = (
    renamed(OPERATORS, "layer", label="work"),
    "submodule",
    renamed(OPERATORS, "commands", label="times"),
    "busy_sum_ns",
    renamed(OPERATORS, "share", label="share of host work"),
    "wall_union_ns",
    renamed(OPERATORS, "median_ns", label="median", importance=1),
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """Calls in the order of their returns; starts are those since the begin of the run."""
    analysis = of.analysis
    calls = analysis.calls.with_columns(pl.col("start_ns") - of.begin_ns)
    several = len(analysis.pipelines) > 1
    shown = _CALLS if several else [c for c in _CALLS if c != "pipeline"]
    yield Part(table=table("calls", "calls", shown, CALLS, calls, shown=15, search=True))
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


SECTION = SectionKind(
    "calls",
    100,
    said("Calls"),
    _parts,
    tables=("calls", "operators"),
)
