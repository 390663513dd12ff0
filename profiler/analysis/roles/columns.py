"""The columns of roles and blocks."""

from __future__ import annotations

import polars as pl

from profiler.analysis.command_columns import SUBMODULE
from profiler.table.columns import Column
from profiler.table.combining import Key, Names, Ratio, Scaled, Share, Sum

__all__ = ["BLOCKS", "ROLES"]

_TEXT, _INT64, _REAL = pl.String(), pl.Int64(), pl.Float64()

_COMMANDS, _TOTAL = Sum(("commands",)), Sum(("total_ns",))
_NORMS = Sum(("total_ns",), where=("role", "norm"))
_MODULATION = Sum(("total_ns",), where=("role", "modulation"))

_STREAMS: tuple[Column, ...] = (
    Column(
        "image_stream_ns",
        _INT64,
        "ns",
        "total_ns of the image stream of a joint transformer",
        True,
        importance=1,
    ),
    Column("text_stream_ns", _INT64, "ns", "total_ns of its text stream", True, importance=1),
)

ROLES: tuple[Column, ...] = (
    SUBMODULE,
    Column("role", _TEXT, "", "what the commands are for in a diffusion model", combine=Key()),
    Column("commands", _INT64, "", "device commands of that role", importance=3, combine=_COMMANDS),
    Column("total_ns", _INT64, "ns", "sum of their durations", combine=_TOTAL),
    Column(
        "share",
        _REAL,
        "ratio",
        "total_ns / that of all roles of the submodule",
        True,
        kind="share",
        combine=Share("total_ns", within=("submodule",)),
    ),
    Column(
        "corrected_ns",
        _INT64,
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
        _TEXT,
        "",
        "kinds of norms, longest time first, joined with commas",
        label="norms",
        kind="list",
        importance=2,
        combine=Names("norm_kind", by="total_ns"),
    ),
    Column(
        "decided_by",
        _TEXT,
        "",
        "evidence for the role, longest time first, joined with commas",
        kind="list",
        importance=15,
        combine=Names("role_by", by="total_ns"),
    ),
)

BLOCKS: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule that the block is a part of", True, combine=Key()),
    Column("block", _TEXT, "", "module path of the block", kind="layer", combine=Key()),
    Column("commands", _INT64, "", "device commands in the block", importance=8, combine=_COMMANDS),
    Column("total_ns", _INT64, "ns", "sum of their durations", combine=_TOTAL),
    Column(
        "norm_ns",
        _INT64,
        "ns",
        "total_ns of its norms",
        label="norms",
        importance=1,
        combine=_NORMS,
    ),
    Column(
        "norm_share",
        _REAL,
        "ratio",
        "norm_ns / total_ns",
        True,
        label="norms",
        kind="share",
        combine=Ratio(_NORMS, _TOTAL),
    ),
    Column(
        "modulation_ns",
        _INT64,
        "ns",
        "total_ns of its modulation: shift, scale and gate",
        importance=1,
        combine=_MODULATION,
    ),
    Column(
        "modulation_share",
        _REAL,
        "ratio",
        "modulation_ns / total_ns",
        True,
        label="modulation",
        kind="share",
        combine=Ratio(_MODULATION, _TOTAL),
    ),
    *_STREAMS,
)
