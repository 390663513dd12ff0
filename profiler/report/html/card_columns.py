"""Columns of the tables that the page itself fills: those of one call's operators, and what a row
of the table of operators unfolds to."""

from __future__ import annotations

from profiler.analysis.operators.columns import OPERATORS
from profiler.report.html.table_json import described
from profiler.report.model import Shown
from profiler.report.sections.operators import LAYERS
from profiler.report.views import meanings_of
from profiler.table.columns import COMMANDS

__all__ = ["call_columns", "command_columns"]

_IN_CALL = (
    Shown("layer", "layer", "layer"),
    Shown("op_types", "op types", "list"),
    Shown("role", "role", "text", meaning="what the operator is for in a diffusion model"),
    LAYERS,
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


def call_columns() -> list[dict[str, object]]:
    """Columns of the table of one call's operators."""
    return described(_IN_CALL, meanings_of(_IN_CALL, OPERATORS))


def command_columns() -> dict[str, list[dict[str, object]]]:
    """Columns of the layers that a row of the table of operators stands for, and of the commands of
    one of them."""
    return {
        "layers": described(_LAYERS_OF, meanings_of(_LAYERS_OF, OPERATORS)),
        "commands": described(_COMMANDS, meanings_of(_COMMANDS, COMMANDS)),
    }
