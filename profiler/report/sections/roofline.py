"""Operators, what they are for, how they stand against the roof of their device, and fusions."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analysis.roofline.columns import FUSIONS, ROOFLINE, ROOFLINE_ROLES
from profiler.messages import said, sentence
from profiler.report.charts.roofline import roofline
from profiler.report.excerpts import roof_sentence, with_rates
from profiler.report.model import Figure, Part, ReportInput, SectionKind, Shown
from profiler.report.sections.operators import operator_parts
from profiler.report.sections.roles import role_parts
from profiler.report.views import table

__all__ = ["SECTION"]

_HELD = 100  # rows of a table
_RATES = (
    Shown("device", "device", "text", 4),
    Shown("busy_ns", "busy", "ns"),
    Shown("attainable_ns", "attainable", "ns"),
    Shown("of_roof", "of roof", "share"),
    Shown("verdict", "verdict", "word"),
    Shown("rate", "GFLOP/s", "number", 3, "flops / time of commands that have both"),
    Shown("bandwidth", "GB/s", "number", 3, "bytes / time of commands that have both"),
    Shown("intensity", "FLOPs/byte", "number", 4),
    Shown("wait_ns", "waited", "ns", 2),
    Shown("unknown_ns", "unknown", "ns", 5),
    Shown("commands", "commands", "count", 6),
)
_ROLES = (Shown("role", "role", "text"), Shown("submodule", "submodule", "text", 1), *_RATES)
_OPERATORS = (
    Shown("layer", "layer", "layer"),
    Shown("submodule", "submodule", "text", 1),
    Shown("op_types", "op types", "list", 5),
    *_RATES,
)
_FUSIONS = (
    Shown("what", "what", "word"),
    Shown("op_types", "op types", "layer"),
    Shown("submodule", "submodule", "text", 2),
    Shown("device", "device", "text", 5),
    Shown("chains", "chains", "count", 1),
    Shown("busy_ns", "busy", "ns"),
    Shown("saved_bytes", "saves traffic", "bytes"),
    Shown("saved_ns", "saves time", "ns"),
    Shown("layer", "first layer", "layer", 6),
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
    "roofline", 60, said("Operators, roles and roofline"), _parts, contents=said("Operators")
)
