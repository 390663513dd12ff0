"""Columns of the tables that the page itself fills: those of one call's operators, and what a row
of the table of operators unfolds to."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.analysis.operators.columns import OPERATORS
from profiler.report.html.table_json import described, folding_json
from profiler.report.sections.operators import LAYERS
from profiler.report.views import columns_of, renamed
from profiler.run.columns import COMMANDS, Column, Names, Share, Sum
from profiler.text import said

__all__ = ["call_columns", "command_columns", "lane_columns", "tally_columns"]

_IN_CALL = (
    "layer",
    "op_types",
    Column(
        "role",
        pl.String(),
        "",
        "what the operator is for in a diffusion model",
        label="role",
        kind="text",
        combine=Names("role", by="total_ns"),
    ),
    LAYERS,
    "devices",
    "commands",
    "wall_ns",
    "total_ns",
    renamed(OPERATORS, "share", label="share of the call", combine=Share("total_ns")),
)
_RANKED = "total_ns"
_TALLY = (
    Column("commands", pl.Int64(), "", "commands", combine=Sum(("commands",))),
    Column(
        "time",
        pl.Int64(),
        "ns",
        "their time on devices",
        combine=Sum(("total_ns",), where=("host", False)),
    ),
)
_LANES = (
    Column("device", pl.String(), "", said("device whose lane it is"), True, kind="text"),
    Column("track", pl.String(), "", said("track, or what the lane shows"), kind="text"),
    Column("events", pl.Int64(), "", said("events that lie in the window"), True),
    Column("time", pl.Int64(), "ns", said("time in the window in which any of them ran")),
    Column(
        "share", pl.Float64(), "", said("part of the window in which any of them ran"), kind="share"
    ),
)
_LAYERS_OF = (
    "layer",
    "commands",
    "calls",
    "total_ns",
)
_COMMANDS = (
    renamed(COMMANDS, "start_ns", kind="instant"),
    "duration_ns",
    renamed(COMMANDS, "call", kind="step"),
    renamed(COMMANDS, "step", kind="step"),
    renamed(COMMANDS, "command_index", label="index"),
    "device",
    "track",
    "op_type",
    renamed(COMMANDS, "bytes_read", label="read"),
    renamed(COMMANDS, "bytes_written", label="written"),
)


def call_columns() -> dict[str, Any]:
    """Columns of the table of one call's operators, the one that ranks them, how they fold."""
    columns = columns_of(_IN_CALL, OPERATORS)
    return {"columns": described(columns), "ranked": _RANKED, "folding": folding_json(columns)}


def command_columns() -> dict[str, Any]:
    """Columns of the layers that a row of the table of operators stands for, with the one that
    ranks them, and of the commands of one of them."""
    return {
        "layers": described(columns_of(_LAYERS_OF, OPERATORS)),
        "ranked": _RANKED,
        "commands": described(columns_of(_COMMANDS, COMMANDS)),
    }


def tally_columns() -> list[dict[str, Any]]:
    """Columns of what is said of all that matches a choice: commands, and their time on devices."""
    return described(_TALLY)


def lane_columns() -> list[dict[str, Any]]:
    """Columns of what each lane of the timeline shows of its window."""
    return described(_LANES)
