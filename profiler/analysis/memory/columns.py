"""The columns of what is found about memory."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import DATA_ONLY, Column
from profiler.table.combining import Key

__all__ = ["MEMORY", "MEMORY_DEVICES", "MEMORY_TIMELINE"]

_TEXT, _FLAG = pl.String(), pl.Boolean()
_INT32, _INT64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()
_OF_DEVICE = Column("device", _TEXT, "", "device whose memory it is", combine=Key())

MEMORY_DEVICES: tuple[Column, ...] = (
    _OF_DEVICE,
    Column(
        "counters",
        _TEXT,
        "",
        "counters that tell of it, joined with commas",
        kind="list",
        importance=15,
    ),
    Column("peak_bytes", _INT64, "bytes", "most that these held at one time", True),
    Column("peak_ns", _INT64, "ns", "when, on the run's clock", True, label="at", importance=8),
    Column("submodule", _TEXT, "", "submodule whose call ran then", True, label="in", importance=1),
    Column("stage", _TEXT, "", "stage of that call", True, importance=DATA_ONLY),
    Column(
        "step", _INT32, "", "step of that call; -1 outside denoise", True, kind="step", importance=1
    ),
    Column(
        "least_bytes", _INT64, "bytes", "least that they held during the run", True, importance=4
    ),
    Column(
        "weight_bytes",
        _INT64,
        "bytes",
        "weights of the submodules placed there",
        True,
        label="weights",
        importance=2,
    ),
    Column(
        "weights_counted",
        _FLAG,
        "",
        "whether the counters count weights",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "needed_bytes",
        _INT64,
        "bytes",
        "peak_bytes, and weights that are not counted in it; weights alone without counters",
        True,
    ),
    Column(
        "size_bytes",
        _INT64,
        "bytes",
        "memory of the device: as asked for, else as known",
        True,
        label="memory",
        importance=3,
    ),
    Column(
        "headroom_bytes",
        _INT64,
        "bytes",
        "size_bytes - needed_bytes; below 0: too little",
        True,
        label="head-room",
    ),
)

MEMORY: tuple[Column, ...] = (
    _OF_DEVICE,
    Column(
        "submodule",
        _TEXT,
        "",
        "who held it; null for what no submodule is known to hold",
        True,
        combine=Key(),
    ),
    Column("calls", _INT64, "", "its calls with samples", importance=2),
    Column(
        "peak_bytes",
        _INT64,
        "bytes",
        "most that its own arena held; of torch's allocator, that the device held in its calls",
        True,
        label="peak in calls",
        importance=1,
    ),
    Column(
        "activation_bytes",
        _INT64,
        "bytes",
        "most that a call of it held beside its weights",
        True,
        label="activations",
    ),
    Column(
        "weight_bytes",
        _INT64,
        "bytes",
        "its weights, but those shared with one before",
        True,
        label="weights",
    ),
    Column(
        "held_bytes", _INT64, "bytes", "its part of the device's needed_bytes at the peak", True
    ),
    Column("share", _REAL, "ratio", "held_bytes / needed_bytes of the device", True, kind="share"),
)

MEMORY_TIMELINE: tuple[Column, ...] = (
    _OF_DEVICE,
    Column("time_ns", _INT64, "ns", "begin of an interval, on the run's clock"),
    Column("bytes", _INT64, "bytes", "most that the counters held in it"),
    Column("submodule", _TEXT, "", "submodule whose call ran at that moment", True),
)
