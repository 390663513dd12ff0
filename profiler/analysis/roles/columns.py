"""The columns of roles and blocks."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["BLOCKS", "ROLES"]

_TEXT, _INT64, _REAL = pl.String(), pl.Int64(), pl.Float64()

_STREAMS: tuple[Column, ...] = (
    Column(
        "image_ns",
        _INT64,
        "ns",
        "busy_ns of the image stream of a joint transformer",
        True,
        importance=1,
    ),
    Column("context_ns", _INT64, "ns", "busy_ns of its context (text) stream", True, importance=1),
)

ROLES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of its calls; null for work in no call", True),
    Column("role", _TEXT, "", "what the commands are for in a diffusion model"),
    Column("commands", _INT64, "", "device commands of that role", importance=3),
    Column("busy_ns", _INT64, "ns", "sum of their durations"),
    Column(
        "share", _REAL, "ratio", "busy_ns / that of all roles of the submodule", True, kind="share"
    ),
    Column(
        "calibrated_ns",
        _INT64,
        "ns",
        "busy_ns * calibration of the submodule",
        True,
        label="untraced",
        importance=4,
    ),
    *_STREAMS,
    Column(
        "norm_kinds",
        _TEXT,
        "",
        "kinds of norms, most time first, joined with commas",
        label="norms",
        kind="list",
        importance=2,
    ),
    Column(
        "decided_by",
        _TEXT,
        "",
        "evidence that decided, most time first, joined with commas",
        kind="list",
        importance=15,
    ),
)

BLOCKS: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule that the block is a part of", True),
    Column("block", _TEXT, "", "module path of the block", kind="layer"),
    Column("commands", _INT64, "", "device commands in the block", importance=8),
    Column("busy_ns", _INT64, "ns", "sum of their durations"),
    Column("norm_ns", _INT64, "ns", "busy_ns of its norms", label="norms", importance=1),
    Column("norm_share", _REAL, "ratio", "norm_ns / busy_ns", True, label="norms", kind="share"),
    Column(
        "modulation_ns",
        _INT64,
        "ns",
        "busy_ns of its modulation: shift, scale and gate",
        importance=1,
    ),
    Column(
        "modulation_share",
        _REAL,
        "ratio",
        "modulation_ns / busy_ns",
        True,
        label="modulation",
        kind="share",
    ),
    *_STREAMS,
)
