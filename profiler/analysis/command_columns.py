"""Columns that tables of commands have in common: what their rows are of."""

from __future__ import annotations

from profiler.run.columns import STRING, Column, Key, Names

__all__ = ["LAYER", "OP_TYPES", "SUBMODULE"]


SUBMODULE = Column(
    "submodule",
    STRING,
    "",
    "submodule of its calls; null for work in no call",
    True,
    combine=Key(),
)
LAYER = Column(
    "layer",
    STRING,
    "",
    "tensor-level operation: module path or node name",
    kind="layer",
    combine=Key(),
)
OP_TYPES = Column(
    "op_types",
    STRING,
    "",
    "op types, longest time first, joined with commas",
    kind="list",
    combine=Names("op_type", by="total_ns"),
)
