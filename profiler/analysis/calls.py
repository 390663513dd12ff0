"""Every call, and what the host did between them."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.compilation import COMPILATIONS
from profiler.analysis.document import Opens, Part, SectionGroup, SectionKind
from profiler.analysis.operators import OPERATORS
from profiler.analysis.result import ReportInput
from profiler.analysis.submodules import CALLS, are_hidden, hidden_notes
from profiler.analysis.table_text import (
    by_pattern,
    renamed,
    table,
    with_known_idle,
    with_known_work,
)
from profiler.analysis.timeline import calls_on_axis
from profiler.run.columns import NS, col
from profiler.text import said

_BEGIN = col(
    "drawn_ns",
    NS,
    "begin of its tile, from the start of the run, where the timeline draws it; the host's begin "
    "if nothing tells when its device worked for it",
    label="start",
    importance=3,
)
_HOST_BEGIN = renamed(
    CALLS,
    "start_ns",
    label="host start",
    meaning="begin of its range on the host, from the start of the run",
    importance=16,
)
_CALLS = (
    "call",
    "pipeline",
    "submodule",
    "stage",
    "branch",
    "step",
    "iteration",
    "rank",
    "device",
    _BEGIN,
    _HOST_BEGIN,
    "start_ns",
    "elapsed_ns",
    "span_ns",
    "share",
    "busy_ns",
    "idle_inside_ns",
    "launch_bound_ns",
    "before_kernel_ns",
    "hidden_ns",
    "unrecorded_ns",
    "queue_lead_ns",
    "duration_ns",
    "commands",
    "operators",
    "first",
    "ops_traced",
)
_COMPILATIONS = (
    "compilation",
    "call",
    "submodule",
    "step",
    "function",
    "start_ns",
    "duration_ns",
    "recompile_reason",
    "graph_breaks",
    "graph_break_reason",
    "failure",
)
_OF_HOST = (
    renamed(OPERATORS, "layer", label="what"),
    "submodule",
    renamed(OPERATORS, "commands", label="times"),
    renamed(OPERATORS, "self_ns", importance=0),
    renamed(OPERATORS, "share", label="share of host time"),
    renamed(OPERATORS, "waited_ns", importance=0),
    renamed(OPERATORS, "total_ns", label="total", importance=2),
)
_SELF = said(
    "Self excludes other host work, runtime calls and waits within it. Waited is the part of self "
    "in which the host waited for a device, in synchronizations and copies. Runtime calls are "
    "those that launched work or waited."
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """Calls in the order of their returns; starts are those since the start of the run."""
    analysis = of.analysis
    drawn = calls_on_axis(analysis.inputs.run).select("call", drawn_ns="start_ns")
    calls = analysis.calls.join(drawn, on="call", how="left", maintain_order="left")
    calls = calls.with_columns(pl.col("start_ns", "drawn_ns") - of.begin_ns)
    behind = not calls["start_ns"].equals(calls["drawn_ns"])
    by_column = {
        _BEGIN: behind,
        _HOST_BEGIN: behind,
        "start_ns": not behind,
        "pipeline": len(analysis.pipelines) > 1,
        "iteration": (calls["iteration"] >= 0).any(),
        "rank": calls["rank"].n_unique() > 1,
        "span_ns": are_hidden(calls),
    }
    hidden = renamed(CALLS, "hidden_ns", importance=0 if by_column["span_ns"] else 16)
    shown = [
        hidden if column == "hidden_ns" else column
        for column in _CALLS
        if by_column.get(column, True)
    ]
    yield Part(
        table=table(
            "calls",
            "calls",
            shown,
            CALLS,
            with_known_idle(with_known_work(calls, calls, "call"), analysis.inputs.run.info),
            shown=15,
            search=True,
            opens=Opens.CALL,
        ),
        notes=hidden_notes(calls),
    )
    compilations = analysis.compilations
    yield Part(
        said("Compilations"),
        table=table(
            "compilations",
            "compilations",
            _COMPILATIONS,
            COMPILATIONS,
            compilations.with_columns(pl.col("start_ns") - of.begin_ns),
            shown=of.rows(10),
            search=True,
        ),
    )
    yield Part(
        said("The host's work, runtime calls and waits"),
        table=table(
            "host",
            "rows of the host",
            _OF_HOST,
            OPERATORS,
            by_pattern(analysis.operators.filter("host")),
            shown=of.rows(10),
            search=True,
            sort="self_ns",
            opens=Opens.HOST_LAYERS,
        ),
        notes=(_SELF,),
    )


SECTION = SectionKind(
    "calls",
    45,
    said("Calls"),
    _parts,
    tables=("calls", "compilations", "operators"),
    group=SectionGroup.MODEL,
)
