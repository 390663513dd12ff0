"""Operators and roles against the roof of their device, and what fusing would save."""

from __future__ import annotations

from profiler.analysis.result import Analysis
from profiler.analysis.roofline.columns import FUSIONS, ROOFLINE, ROOFLINE_ROLES
from profiler.messages import said, sentence
from profiler.report.charts import roofline as roofline_chart
from profiler.report.excerpts import roof_sentence, with_rates
from profiler.report.lines import of_all
from profiler.report.model import Figure, Part, Section, Shown, table

__all__ = ["roofline_section"]

_ROWS = 100  # of a table
_RATES = (
    Shown("device", "device", "text"),
    Shown("busy_ns", "busy", "ns"),
    Shown("attainable_ns", "attainable", "ns"),
    Shown("of_roof", "of roof", "share"),
    Shown("verdict", "verdict", "word"),
    Shown("rate", "GFLOP/s", "number", meaning="flops / time of commands that have both"),
    Shown("bandwidth", "GB/s", "number", meaning="bytes / time of commands that have both"),
    Shown("intensity", "FLOPs/byte", "number"),
    Shown("wait_ns", "waited", "ns"),
    Shown("unknown_ns", "unknown", "ns", minor=True),
    Shown("commands", "commands", "count", minor=True),
)
_ROLES = (Shown("role", "role", "text"), Shown("submodule", "submodule", "text"), *_RATES)
_OPERATORS = (
    Shown("layer", "layer", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("op_types", "op types", "list", minor=True),
    *_RATES,
)
_FUSIONS = (
    Shown("what", "what", "word"),
    Shown("op_types", "op types", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("device", "device", "text", minor=True),
    Shown("chains", "chains", "count"),
    Shown("busy_ns", "busy", "ns"),
    Shown("saved_bytes", "saves traffic", "bytes"),
    Shown("saved_ns", "saves time", "ns"),
    Shown("layer", "first layer", "layer", minor=True),
)


def roofline_section(analysis: Analysis) -> Section:
    """Verdicts by role and operator; nothing where no FLOP and no byte of the run is known."""
    rows = analysis.roofline
    known = (rows["flops"].is_not_null() | rows["bytes"].is_not_null()).any()
    parts = (*(_verdicts(analysis) if known else ()), _fusions(analysis))
    return Section("roofline", said("Against the roof"), said("Roofline"), parts)


def _verdicts(analysis: Analysis) -> tuple[Part, ...]:
    roles, operators = with_rates(analysis.roofline_roles), with_rates(analysis.roofline)
    shown = operators.head(_ROWS)
    return (
        Part(
            lead=sentence(roof_sentence(analysis).changed(_without_ticks)),
            figure=Figure("roofline", roofline_chart.roofline),
        ),
        Part(
            said("Roles against the roof"),
            table=table(
                "roofline_roles",
                "roles against the roof",
                _ROLES,
                ROOFLINE_ROLES,
                roles,
                shown=10,
                search=True,
            ),
        ),
        Part(
            said(
                "Operators against the roof, {shown} by busy time",
                shown=of_all(len(shown), len(operators)),
            ),
            table=table(
                "roofline",
                "operators against the roof",
                _OPERATORS,
                ROOFLINE,
                shown,
                shown=10,
                search=True,
            ),
            folded=True,
        ),
    )


def _without_ticks(text: str) -> str:
    return text.replace("`", "")


def _fusions(analysis: Analysis) -> Part:
    shown = analysis.fusions.head(_ROWS)
    title = said(
        "What fusing would save at most, {shown} by bytes",
        shown=of_all(len(shown), len(analysis.fusions)),
    )
    return Part(
        title,
        table=table("fusions", "chains", _FUSIONS, FUSIONS, shown, shown=10, search=True),
        folded=True,
    )
