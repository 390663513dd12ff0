"""Columns of the tables that say who waits for whom; `columns` puts them among the others."""

from __future__ import annotations

import polars as pl

from profiler.analysis.waiting.codes import PathPart
from profiler.table.columns import DATA_ONLY, Column

__all__ = ["BOUNDARIES", "CRITICAL_PATH", "IDLE", "STRANDED"]

_TEXT, _INT32, _INT64, _REAL = pl.String(), pl.Int32(), pl.Int64(), pl.Float64()

IDLE: tuple[Column, ...] = (
    Column("device", _TEXT, "", "a place that executes commands"),
    Column(
        "span_ns",
        _INT64,
        "ns",
        "from its first command or call to the end of its last",
        importance=2,
    ),
    Column(
        "computing_ns",
        _INT64,
        "ns",
        "wall union of its commands of category compute or other",
        importance=8,
    ),
    Column("waiting_ns", _INT64, "ns", "span_ns - computing_ns: the sum of the next five"),
    Column("data_ns", _INT64, "ns", "waiting for data: one of its transfers ran", label="for data"),
    Column(
        "other_device_ns",
        _INT64,
        "ns",
        "waiting for another device, which ran",
        label="for another device",
    ),
    Column("host_ns", _INT64, "ns", "in its calls, waiting for the host", label="for the host"),
    Column(
        "queued_ns",
        _INT64,
        "ns",
        "in its calls, the next command launched but not begun",
        importance=1,
    ),
    Column("between_ns", _INT64, "ns", "between calls", label="between calls"),
    Column(
        "between_host_ns",
        _INT64,
        "ns",
        "of between_ns: host work of no call ran",
        label="of it host work",
        importance=3,
    ),
    Column(
        "transfer_ns",
        _INT64,
        "ns",
        "wall union of its dma and copy commands",
        label="transfers",
        importance=8,
    ),
    Column(
        "overlapped_ns", _INT64, "ns", "of transfer_ns: it computed meanwhile", importance=DATA_ONLY
    ),
    Column(
        "overlap",
        _REAL,
        "ratio",
        "overlapped_ns / transfer_ns; null without transfers",
        True,
        label="transfers hidden",
        kind="share",
        importance=1,
    ),
    Column(
        "long_gaps",
        _INT64,
        "",
        "gaps of over 100 µs between its commands, in pipeline calls",
        importance=15,
    ),
    Column(
        "long_gap_ns",
        _INT64,
        "ns",
        "sum of these gaps, transfers in them included",
        label="in these",
        importance=15,
    ),
)

CRITICAL_PATH: tuple[Column, ...] = (
    Column(
        "pipeline",
        _INT32,
        "",
        "number of the pipeline call; -1 where the run has none",
        importance=DATA_ONLY,
    ),
    Column("submodule", _TEXT, "", "submodule of the call; null for work in no call", True),
    Column("part", _TEXT, "", ", ".join(PathPart), codes=PathPart),
    Column("device", _TEXT, "", "where it ran, or the call was placed", True, importance=2),
    Column(
        "pieces", _INT64, "", "calls, commands or host work of that part on the path", importance=1
    ),
    Column(
        "path_ns", _INT64, "ns", "time that they have on the critical path", label="on the path"
    ),
    Column("wall_ns", _INT64, "ns", "wall time of the pipeline call", importance=DATA_ONLY),
    Column("share", _REAL, "ratio", "path_ns / wall_ns", kind="share"),
)

BOUNDARIES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule whose session has several providers"),
    Column("source", _TEXT, "", "provider of the node before", label="from provider"),
    Column("target", _TEXT, "", "provider of the node behind", label="to provider"),
    Column("calls", _INT64, "", "traced calls with such a switch", importance=2),
    Column("switches", _INT64, "", "times that execution went from the one to the other"),
    Column("copies", _INT64, "", "Memcpy nodes in this direction", importance=1),
    Column("bytes", _INT64, "bytes", "that these copied; null where the trace does not tell", True),
    Column("copy_ns", _INT64, "ns", "sum of the durations of these", label="copying"),
    Column("gap_ns", _INT64, "ns", "time at the switches in which no node ran", label="gaps"),
)

STRANDED: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule whose session has several providers"),
    Column("layer", _TEXT, "", "tensor-level operation: module path or node name", kind="layer"),
    Column("op_type", _TEXT, "", "ONNX op type", True),
    Column("provider", _TEXT, "", "provider that ran it, on the host", importance=8),
    Column("nodes", _INT64, "", "executions, over all traced calls"),
    Column("busy_ns", _INT64, "ns", "sum of their durations"),
)
