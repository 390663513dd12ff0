"""The columns of operators held against their devices, and of what fusing them would save."""

from __future__ import annotations

import polars as pl

from profiler.analysis.roofline.codes import Bound, FusionKind
from profiler.table.columns import Column

__all__ = ["FUSIONS", "ROOFLINE", "ROOFLINE_ROLES"]

_TEXT, _INT64, _REAL = pl.String(), pl.Int64(), pl.Float64()

_WORK: tuple[Column, ...] = (
    Column("device", _TEXT, "", "device that ran it", True),
    Column("commands", _INT64, "", "its commands there, but host, sync and dma"),
    Column("busy_ns", _INT64, "ns", "sum of their durations"),
    Column("wait_ns", _INT64, "ns", "idle time of the device directly before them, within calls"),
    Column("flops", _INT64, "", "floating-point operations of those that are known", True),
    Column("bytes", _INT64, "bytes", "bytes read and written of those that are known", True),
    Column("intensity", _REAL, "FLOPs/byte", "of commands of which both are known", True),
    Column("unknown_commands", _INT64, "", "commands whose FLOPs or bytes are not known"),
    Column("unknown_ns", _INT64, "ns", "sum of the durations of these"),
    Column(
        "attainable_ns", _INT64, "ns", "least time by the device's profile, of what is known", True
    ),
    Column(
        "of_roof", _REAL, "ratio", "attainable_ns / busy_ns, of what is known: half or more", True
    ),
    Column("verdict", _TEXT, "", "what bounds it: " + ", ".join(Bound), True, Bound),
)

ROOFLINE: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of its calls; null for work in no call", True),
    Column("layer", _TEXT, "", "tensor-level operation: module path or node name"),
    Column("op_types", _TEXT, "", "op types, most time first, joined with commas"),
    *_WORK,
)

ROOFLINE_ROLES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of its calls; null for work in no call", True),
    Column("role", _TEXT, "", "what the commands are for in a diffusion model"),
    *_WORK,
)

FUSIONS: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule in whose calls the chain stands"),
    Column("device", _TEXT, "", "device that ran it"),
    Column(
        "what",
        _TEXT,
        "",
        ", ".join(FusionKind),
        codes=FusionKind,
    ),
    Column("layer", _TEXT, "", "layer of the first command of the first such chain"),
    Column("op_types", _TEXT, "", "op types of its commands in order"),
    Column("chains", _INT64, "", "such chains in all traced calls"),
    Column("busy_ns", _INT64, "ns", "sum of their commands' durations"),
    Column("saved_bytes", _INT64, "bytes", "writing and reading of intermediates, at most"),
    Column("saved_ns", _INT64, "ns", "time that fusing saves by the device's profile", True),
)
