"""Operators, those that were split, and what the host did."""

from __future__ import annotations

import polars as pl

from profiler.analysis.operators.columns import GEOMETRY, OPERATORS
from profiler.analysis.result import Analysis
from profiler.messages import joined, said
from profiler.report.charts import whole as charts
from profiler.report.excerpts import split_operators
from profiler.report.lines import of_all
from profiler.report.model import Figure, Part, Section, Shown, Table, described, table
from profiler.report.patterns import by_pattern
from profiler.report.units import counted
from profiler.table.columns import COMMANDS

__all__ = ["call_columns", "command_columns", "operator_section"]

_SPLIT = 50  # operators
_LAYERS = Shown(
    "layers", "layers", "count", meaning="layers of repeated blocks that this row stands for"
)
_OPERATORS = (
    Shown("layer", "layer", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("op_types", "op types", "list"),
    _LAYERS,
    Shown("commands", "commands", "count"),
    Shown("calls", "calls", "count"),
    Shown("busy_sum_ns", "busy sum", "ns"),
    Shown("share", "share", "share"),
    Shown("wall_union_ns", "wall union", "ns"),
    Shown("parallel_efficiency", "par. eff.", "ratio"),
    Shown("imbalance", "imbal.", "factor", minor=True),
    Shown("devices", "devices", "list"),
    Shown("calibrated_ns", "calibrated", "ns"),
    Shown("median_ns", "median a call", "ns", minor=True),
    Shown("tracks", "tracks", "count", minor=True),
)
_SPLIT_PARTS = (
    Shown("layer", "operator", "layer"),
    Shown("part", "part", "word"),
    Shown("submodule", "submodule", "text"),
    Shown("device", "device", "text"),
    Shown("calls", "calls", "count", minor=True),
    Shown("commands", "commands", "count"),
    Shown("tracks", "tracks", "count"),
    Shown("wall_union_ns", "wall union", "ns"),
    Shown("busy_sum_ns", "busy sum", "ns"),
    Shown("gap_ns", "gaps", "ns"),
    Shown("parallel_efficiency", "par. eff.", "ratio"),
    Shown("imbalance", "imbal.", "factor"),
    Shown("device_imbalance", "of devices", "factor"),
)
_HOST_WORK = (
    Shown("layer", "work", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("commands", "times", "count"),
    Shown("busy_sum_ns", "busy sum", "ns"),
    Shown("share", "share of host work", "share"),
    Shown("wall_union_ns", "wall union", "ns"),
    Shown("median_ns", "median", "ns"),
)
_IN_CALL = (
    Shown("layer", "layer", "layer"),
    Shown("op_types", "op types", "list"),
    Shown("role", "role", "text", meaning="what the operator is for in a diffusion model"),
    _LAYERS,
    Shown("tracks", "tracks", "list"),
    Shown("commands", "commands", "count"),
    Shown("wall_union_ns", "wall union", "ns"),
    Shown("busy_sum_ns", "busy sum", "ns"),
    Shown("share", "share of the call", "share"),
)


_LAYERS_OF = (
    Shown("layer", "layer", "layer"),
    Shown("commands", "commands", "count"),
    Shown("calls", "calls", "count"),
    Shown("busy_sum_ns", "busy sum", "ns"),
)
_COMMANDS = (
    Shown("start_ns", "start", "instant"),
    Shown("duration_ns", "duration", "ns"),
    Shown("call", "call", "step"),
    Shown("step", "step", "step"),
    Shown("command_index", "index", "count"),
    Shown("device", "device", "text"),
    Shown("track", "track", "text"),
    Shown("op_type", "op type", "text"),
    Shown("bytes_read", "read", "bytes"),
    Shown("bytes_written", "written", "bytes"),
)


def operator_section(analysis: Analysis) -> Section:
    """All operators of devices, the geometry of the split ones, and the work of the host."""
    operators = analysis.operators.filter(~pl.col("host"))
    lead = said(
        "{operators}, by the sum of their commands' time on devices.",
        operators=counted(len(operators), "operator"),
    )
    if (operators["calibrated_ns"] != operators["busy_sum_ns"]).any():
        calibrated = said("Calibrated: scaled to calls that ran without tracing operators.")
        lead = joined(" ", [lead, calibrated])
    parts = (
        Part(
            lead=lead,
            figure=Figure("operators", lambda found, theme: charts.operators(found, theme=theme)),
            table=_operators(operators),
        ),
        _split(analysis.geometry),
        Part(said("Host work"), table=_host_work(analysis.operators.filter(pl.col("host")))),
    )
    return Section("operators", said("Operators"), said("Operators"), parts)


def call_columns() -> list[dict[str, object]]:
    """Columns of the table of one call's operators, which the page itself fills."""
    return described(_IN_CALL, OPERATORS)


def command_columns() -> dict[str, list[dict[str, object]]]:
    """Columns of the tables that a row of the table of operators unfolds to, which the page itself
    fills: the layers that it stands for, and the commands of one of them."""
    return {
        "layers": described(_LAYERS_OF, OPERATORS),
        "commands": described(_COMMANDS, COMMANDS),
    }


def _operators(operators: pl.DataFrame) -> Table | None:
    """Operators folded by pattern, and one by one, for the reader to choose."""
    single = operators.with_columns(layers=pl.lit(1, dtype=pl.UInt32))
    folded = by_pattern(operators)
    made = table(
        "operators",
        "operators",
        _OPERATORS,
        OPERATORS,
        folded,
        shown=15,
        search=True,
        sort="busy_sum_ns",
    )
    if made is None or len(folded) == len(single):
        return made
    names = [column["name"] for column in made.document["columns"]]
    variants = (
        (said("operation, blocks folded"), made.document["values"]),
        (said("operator"), {name: single[name].to_list() for name in names}),
    )
    return Table(
        made.key,
        {
            **made.document,
            "variants": [{"label": label, "values": values} for label, values in variants],
        },
    )


def _split(geometry: pl.DataFrame) -> Part:
    rows, count = split_operators(geometry, _SPLIT)
    title = said("Split operators, {shown} by busy time", shown=of_all(min(_SPLIT, count), count))
    lead = said("Operators that ran on several tracks or devices, or moved data beside computing.")
    made = table("split", "split operators", _SPLIT_PARTS, GEOMETRY, rows, shown=10, search=True)
    return Part(title, lead, table=made)


def _host_work(operators: pl.DataFrame) -> Table | None:
    return table(
        "host",
        "host work",
        _HOST_WORK,
        OPERATORS,
        by_pattern(operators),
        shown=10,
        search=True,
        sort="busy_sum_ns",
    )
