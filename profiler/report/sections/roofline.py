"""Operators, what they are for, how they stand against the roofline of their device, and
fusions."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.result import Analysis
from profiler.analysis.roofline.columns import FUSIONS, ROOFLINE, ROOFLINE_ROLES
from profiler.report.excerpts import roofline_sentence, with_rates
from profiler.report.model import Figure, Part, ReportInput, SectionKind, Selected
from profiler.report.sections.operators import operator_parts
from profiler.report.sections.roles import role_parts
from profiler.report.views import table
from profiler.run.columns import Column
from profiler.text import said, sentence

__all__ = ["SECTION", "bounds", "roofline_figure"]

_HELD = 100  # rows of a table
_RATES = (
    "device",
    "total_ns",
    "roofline_ns",
    "of_roofline",
    "beyond_ns",
    "bound",
    Column(
        "rate",
        pl.Float64(),
        "TFLOP/s",
        "FLOPs / time, of commands whose FLOPs are known",
        label="compute",
        importance=3,
    ),
    Column(
        "bandwidth",
        pl.Float64(),
        "GB/s",
        "bytes / time, of commands whose bytes are known",
        label="memory",
        importance=3,
    ),
    "intensity",
    "wait_ns",
    "unknown_ns",
    "commands",
)
_NO_SHAPES = said(
    "There is no roofline: the trace has no shapes of operators, so their FLOPs are unknown."
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
    "total_ns",
    "saved_bytes",
    "saved_ns",
    "layer",
)


def _parts(of: ReportInput) -> Iterator[Part]:
    """Operators, roles, and bounds where any FLOP or byte of the run is known."""
    yield from operator_parts(of)
    yield from role_parts(of)
    if _known(of.analysis):
        yield from _bounds(of)
    elif _without_shapes(of.analysis):
        yield Part(lead=_NO_SHAPES, always=True)
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


def _known(analysis: Analysis) -> bool:
    """Whether FLOPs or bytes of the run are known; of a trace without shapes, which has those of
    copies alone, for most of its time."""
    rows = analysis.roofline
    known = rows["flops"].is_not_null() | rows["bytes"].is_not_null()
    if not _without_shapes(analysis) or (rows["flops"] > 0).any():
        return bool(known.any())
    return bool(known.any() and rows.filter(known)["total_ns"].sum() >= rows["total_ns"].sum() / 2)


def _without_shapes(analysis: Analysis) -> bool:
    told = analysis.inputs.run.info.capabilities
    return bool(told) and "shapes" not in told


def _bounds(of: ReportInput) -> Iterator[Part]:
    analysis = of.analysis
    roles, operators = with_rates(analysis.roofline_roles), with_rates(analysis.roofline)
    known = roofline_sentence(operators, roles, analysis.device_profiles)
    yield Part(
        said("Roles against the roofline, by total time"),
        lead=sentence(known.changed(_without_ticks)),
        figure=roofline_figure(analysis),
        table=table(
            "roofline_roles",
            "roles against the roofline",
            _ROLES,
            ROOFLINE_ROLES,
            roles,
            shown=of.rows(10),
            search=True,
            sort="total_ns",
            selected=Selected("roofline_roles", where={"rated": True}, shown_rows=True),
        ),
    )
    yield Part(
        said("Operators against the roofline, by total time"),
        table=table(
            "roofline",
            "operators against the roofline",
            _OPERATORS,
            ROOFLINE,
            operators,
            shown=of.rows(10),
            held=_HELD,
            search=True,
            sort="total_ns",
            selected=Selected("roofline", where={"rated": True}, shown_rows=True),
        ),
        folded=True,
    )


def roofline_figure(analysis: Analysis) -> Figure:
    """Roles by FLOPs a byte and rate, below the roofs of their devices."""
    used = analysis.roofline["device"].unique().drop_nulls().sort().to_list()
    data = (analysis.roofline_roles, analysis.device_profiles, used)
    return Figure("roofline", "roofline", data)


def _without_ticks(text: str) -> str:
    return text.replace("`", "")


SECTION = SectionKind(
    "roofline",
    60,
    said("Operators and roofline"),
    _parts,
    tables=(
        "operators",
        "partitioning",
        "roles",
        "blocks",
        "roofline",
        "roofline_roles",
        "fusions",
    ),
)


def bounds(analysis: Analysis) -> pl.DataFrame:
    """What bounds each operator, a row each, as the timeline colours its commands by it."""
    return analysis.roofline
