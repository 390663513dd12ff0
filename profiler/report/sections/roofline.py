"""Operators, what they are for, how they stand against the roof of their device, and fusions."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.roofline.columns import FUSIONS, ROOFLINE, ROOFLINE_ROLES
from profiler.messages import said, sentence
from profiler.report.charts.roofline import roofline
from profiler.report.excerpts import roof_sentence, with_rates
from profiler.report.model import Figure, Part, ReportInput, SectionKind
from profiler.report.sections.operators import operator_parts
from profiler.report.sections.roles import role_parts
from profiler.report.views import table
from profiler.table.columns import Column

__all__ = ["SECTION"]

_HELD = 100  # rows of a table
_RATES = (
    "device",
    "busy_ns",
    "attainable_ns",
    "of_roof",
    "verdict",
    Column(
        "rate",
        pl.Float64(),
        "",
        "flops / time of commands that have both",
        label="GFLOP/s",
        kind="number",
        importance=3,
    ),
    Column(
        "bandwidth",
        pl.Float64(),
        "",
        "bytes / time of commands that have both",
        label="GB/s",
        kind="number",
        importance=3,
    ),
    "intensity",
    "wait_ns",
    "unknown_ns",
    "commands",
)
_ROLES = ("role", "submodule", *_RATES)
_OPERATORS = (
    "layer",
    "submodule",
    "op_types",
    *_RATES,
)
_FUSIONS = (
    "what",
    "op_types",
    "submodule",
    "device",
    "chains",
    "busy_ns",
    "saved_bytes",
    "saved_ns",
    "layer",
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """Operators, roles, and verdicts where any FLOP or byte of the run is known."""
    yield from operator_parts(of)
    yield from role_parts(of)
    rows = of.analysis.roofline
    if (rows["flops"].is_not_null() | rows["bytes"].is_not_null()).any():
        yield from _verdicts(of)
    yield Part(
        said("What fusing would save at most, by bytes"),
        table=table(
            "fusions",
            "chains",
            _FUSIONS,
            FUSIONS,
            of.analysis.fusions,
            shown=of.rows(10),
            held=_HELD,
            search=True,
        ),
        folded=True,
    )


def _verdicts(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    roles, operators = with_rates(analysis.roofline_roles), with_rates(analysis.roofline)
    yield Part(
        said("Roles against the roof, by busy time"),
        lead=sentence(roof_sentence(analysis).changed(_without_ticks)),
        figure=Figure("roofline", lambda theme: roofline(analysis, theme)),
        table=table(
            "roofline_roles",
            "roles against the roof",
            _ROLES,
            ROOFLINE_ROLES,
            roles,
            shown=of.rows(10),
            search=True,
        ),
    )
    yield Part(
        said("Operators against the roof, by busy time"),
        table=table(
            "roofline",
            "operators against the roof",
            _OPERATORS,
            ROOFLINE,
            operators,
            shown=of.rows(10),
            held=_HELD,
            search=True,
        ),
        folded=True,
    )


def _without_ticks(text: str) -> str:
    return text.replace("`", "")


SECTION = SectionKind(
    "roofline",
    60,
    said("Operators, roles and roofline"),
    _parts,
    contents=said("Operators"),
    tables=("operators", "geometry", "roles", "blocks", "roofline", "roofline_roles", "fusions"),
)
