"""The columns of operators held against their devices, and of what fusing them would save."""

from __future__ import annotations

from dataclasses import replace

from profiler.analysis.command_columns import LAYER, OP_TYPES, SUBMODULE
from profiler.analysis.roofline.codes import Bound, FusionKind
from profiler.run.columns import DATA_ONLY, FLOAT64, INT64, STRING, Column, Key, Sum

__all__ = ["FUSIONS", "ROOFLINE", "ROOFLINE_ROLES"]


_WORK: tuple[Column, ...] = (
    Column("device", STRING, "", "device that ran it", True, importance=5, combine=Key()),
    Column(
        "commands",
        INT64,
        "",
        "its commands there, except host, sync, dma and collective",
        importance=15,
        combine=Sum(("commands",)),
    ),
    Column("total_ns", INT64, "ns", "sum of their durations", combine=Sum(("total_ns",))),
    Column(
        "wait_ns",
        INT64,
        "ns",
        "idle time of the device directly before them, within calls",
        label="waited",
        importance=2,
    ),
    Column(
        "flops",
        INT64,
        "",
        "floating-point operations of those that are known",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "bytes",
        INT64,
        "bytes",
        "bytes read and written of those that are known",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "flops_ns",
        INT64,
        "ns",
        "sum of the durations of those whose FLOPs are known",
        importance=DATA_ONLY,
    ),
    Column(
        "bytes_ns",
        INT64,
        "ns",
        "sum of the durations of those whose bytes are known",
        importance=DATA_ONLY,
    ),
    Column(
        "intensity",
        FLOAT64,
        "FLOPs/byte",
        "FLOPs / bytes of the commands for which both are known",
        True,
        label="FLOPs/byte",
        importance=4,
    ),
    Column(
        "unknown_commands",
        INT64,
        "",
        "commands whose FLOPs or bytes are not known",
        importance=DATA_ONLY,
    ),
    Column("unknown_ns", INT64, "ns", "sum of the durations of these", importance=15),
    Column(
        "refuted_ns",
        INT64,
        "ns",
        "sum of the durations of commands that were faster than their roofline, which is then "
        "taken as unknown",
        importance=DATA_ONLY,
    ),
    Column(
        "roofline_ns",
        INT64,
        "ns",
        "shortest time by the device's profile, of the known work",
        True,
    ),
    Column(
        "beyond_ns",
        INT64,
        "ns",
        "time above the roofline: total_ns - roofline_ns, of the known work",
        True,
        label="above roofline",
        importance=2,
    ),
    Column(
        "of_roofline",
        FLOAT64,
        "ratio",
        "roofline_ns / total_ns, of the known work, where that is half or more",
        True,
        kind="share",
    ),
    Column(
        "bound",
        STRING,
        "",
        "what bounds it: " + ", ".join(Bound),
        True,
        codes=Bound,
    ),
)

ROOFLINE: tuple[Column, ...] = (
    replace(SUBMODULE, importance=1),
    LAYER,
    replace(OP_TYPES, importance=15),
    *_WORK,
)

ROOFLINE_ROLES: tuple[Column, ...] = (
    replace(SUBMODULE, importance=1),
    Column("role", STRING, "", "what the commands are for in a diffusion model", combine=Key()),
    *_WORK,
)

FUSIONS: tuple[Column, ...] = (
    Column(
        "submodule",
        STRING,
        "",
        "submodule in whose calls the chain stands",
        importance=2,
        combine=Key(),
    ),
    Column("device", STRING, "", "device that ran it", importance=15, combine=Key()),
    Column(
        "what",
        STRING,
        "",
        ", ".join(FusionKind),
        codes=FusionKind,
    ),
    Column(
        "layer",
        STRING,
        "",
        "layer of the first command of the first such chain",
        label="first layer",
        kind="layer",
        importance=15,
    ),
    Column("op_types", STRING, "", "op types of its commands in order", kind="layer"),
    Column("chains", INT64, "", "such chains in all traced calls", importance=1),
    Column("total_ns", INT64, "ns", "sum of their commands' durations"),
    Column(
        "saved_bytes",
        INT64,
        "bytes",
        "upper bound of the bytes of intermediates that are written and read",
        label="saves traffic",
    ),
    Column(
        "saved_ns",
        INT64,
        "ns",
        "upper bound of the time that fusing saves: total_ns - the roofline of one command in "
        "their place",
        True,
        label="saves time",
    ),
)
