"""Columns of the tables that the page itself fills: those of one call's operators, and what a row
of the table of operators unfolds to."""

from __future__ import annotations

import polars as pl

from profiler.analysis.operators.columns import OPERATORS
from profiler.report.html.table_json import described
from profiler.report.sections.operators import LAYERS
from profiler.report.views import columns_of, renamed
from profiler.table.columns import COMMANDS, Column

__all__ = ["call_columns", "command_columns"]

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
    ),
    LAYERS,
    renamed(OPERATORS, "tracks", kind="list"),
    "commands",
    "wall_union_ns",
    "busy_sum_ns",
    renamed(OPERATORS, "share", label="share of the call"),
)
_LAYERS_OF = (
    "layer",
    "commands",
    "calls",
    "busy_sum_ns",
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


def call_columns() -> list[dict[str, object]]:
    """Columns of the table of one call's operators."""
    return described(columns_of(_IN_CALL, OPERATORS))


def command_columns() -> dict[str, list[dict[str, object]]]:
    """Columns of the layers that a row of the table of operators stands for, and of the commands of
    one of them."""
    return {
        "layers": described(columns_of(_LAYERS_OF, OPERATORS)),
        "commands": described(columns_of(_COMMANDS, COMMANDS)),
    }
