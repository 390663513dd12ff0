"""The columns of roles and blocks."""

from __future__ import annotations

from profiler.analysis.command_columns import SUBMODULE
from profiler.run.columns import (
    FLOAT64,
    INT64,
    STRING,
    Column,
    Key,
    Names,
    Ratio,
    Scaled,
    Share,
    Sum,
)

__all__ = ["BLOCKS", "ROLES"]


_COMMANDS, _TOTAL = Sum(("commands",)), Sum(("total_ns",))
_NORMS = Sum(("total_ns",), where=("role", "norm"))
_MODULATION = Sum(("total_ns",), where=("role", "modulation"))

_STREAMS: tuple[Column, ...] = (
    Column(
        "image_stream_ns",
        INT64,
        "ns",
        "total_ns of the image stream of a joint transformer",
        True,
        importance=1,
    ),
    Column("text_stream_ns", INT64, "ns", "total_ns of its text stream", True, importance=1),
)

ROLES: tuple[Column, ...] = (
    SUBMODULE,
    Column("role", STRING, "", "what the commands are for in a diffusion model", combine=Key()),
    Column("commands", INT64, "", "device commands of that role", importance=3, combine=_COMMANDS),
    Column("total_ns", INT64, "ns", "sum of their durations", combine=_TOTAL),
    Column(
        "share",
        FLOAT64,
        "ratio",
        "total_ns / that of all roles of the submodule",
        True,
        kind="share",
        combine=Share("total_ns", within=("submodule",)),
    ),
    Column(
        "corrected_ns",
        INT64,
        "ns",
        "total_ns * overhead_ratio of the submodule",
        True,
        label="untraced",
        importance=4,
        combine=Scaled("total_ns", by="overhead_ratio"),
    ),
    *_STREAMS,
    Column(
        "norm_kinds",
        STRING,
        "",
        "kinds of norms, longest time first, joined with commas",
        label="norms",
        kind="list",
        importance=2,
        combine=Names("norm_kind", by="total_ns"),
    ),
    Column(
        "decided_by",
        STRING,
        "",
        "evidence for the role, longest time first, joined with commas",
        kind="list",
        importance=15,
        combine=Names("role_by", by="total_ns"),
    ),
)

BLOCKS: tuple[Column, ...] = (
    Column("submodule", STRING, "", "submodule that the block is a part of", True, combine=Key()),
    Column("block", STRING, "", "module path of the block", kind="layer", combine=Key()),
    Column("commands", INT64, "", "device commands in the block", importance=8, combine=_COMMANDS),
    Column("total_ns", INT64, "ns", "sum of their durations", combine=_TOTAL),
    Column(
        "norm_ns",
        INT64,
        "ns",
        "total_ns of its norms",
        label="norms",
        importance=1,
        combine=_NORMS,
    ),
    Column(
        "norm_share",
        FLOAT64,
        "ratio",
        "norm_ns / total_ns",
        True,
        label="norms",
        kind="share",
        combine=Ratio(_NORMS, _TOTAL),
    ),
    Column(
        "modulation_ns",
        INT64,
        "ns",
        "total_ns of its modulation: shift, scale and gate",
        importance=1,
        combine=_MODULATION,
    ),
    Column(
        "modulation_share",
        FLOAT64,
        "ratio",
        "modulation_ns / total_ns",
        True,
        label="modulation",
        kind="share",
        combine=Ratio(_MODULATION, _TOTAL),
    ),
    *_STREAMS,
)
