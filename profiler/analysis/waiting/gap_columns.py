"""Columns of the tables of what devices did over time: gaps, busy shares, copies."""

from __future__ import annotations

import polars as pl

from profiler.analysis.waiting.codes import CopyDirection, GapPosition, HostDoing, WaitCause
from profiler.table.columns import Column

__all__ = ["BUSY_TIMELINE", "COPIES", "GAPS"]

_TEXT, _INT32, _INT64, _REAL = pl.String(), pl.Int32(), pl.Int64(), pl.Float64()

BUSY_TIMELINE: tuple[Column, ...] = (
    Column("device", _TEXT, "", "a place that executes commands"),
    Column("begin_ns", _INT64, "ns", "begin of an interval, on the run's clock"),
    Column("end_ns", _INT64, "ns", "its end"),
    Column(
        "busy_share",
        _REAL,
        "ratio",
        "of the interval: a command of it ran, of any category but host and sync",
        label="busy",
        kind="share",
    ),
    Column(
        "unrecorded_share",
        _REAL,
        "ratio",
        "of the interval: nothing was recorded though work or the host waited",
        label="not recorded",
        kind="share",
    ),
)

COPIES: tuple[Column, ...] = (
    Column("device", _TEXT, "", "a place that executes commands"),
    Column("direction", _TEXT, "", ", ".join(CopyDirection), codes=CopyDirection),
    Column("copies", _INT64, "", "commands of that direction"),
    Column("bytes", _INT64, "bytes", "that these moved; null where no producer tells", True),
    Column("total_ns", _INT64, "ns", "sum of their durations", importance=5),
    Column("wall_ns", _INT64, "ns", "union of them", label="wall"),
    Column(
        "bandwidth",
        _REAL,
        "GB/s",
        "bytes / time of the copies whose bytes are known, 10⁹ bytes a second",
        True,
        label="rate",
    ),
    Column("hidden_ns", _INT64, "ns", "of wall_ns: the device computed meanwhile", importance=5),
    Column("hidden_share", _REAL, "ratio", "hidden_ns / wall_ns", label="hidden", kind="share"),
)

GAPS: tuple[Column, ...] = (
    Column("device", _TEXT, "", "the device that had nothing to run", importance=6),
    Column("begin_ns", _INT64, "ns", "when it ran dry, on the run's clock"),
    Column(
        "length_ns",
        _INT64,
        "ns",
        "until the next command, less what is outside of the end-to-end time",
    ),
    Column("cause", _TEXT, "", "what most of it is put down to", codes=WaitCause),
    Column(
        "position",
        _TEXT,
        "",
        "where it lies: kernels are commands of category compute or other, copies are none",
        codes=GapPosition,
        importance=2,
    ),
    Column(
        "call",
        _INT32,
        "",
        "the call in whose tile most of it lies; between calls the next; null for none",
        True,
        kind="step",
        importance=12,
    ),
    Column("submodule", _TEXT, "", "that of the call", True, importance=1),
    Column("step", _INT32, "", "that of the call; null or -1 outside denoise", True, kind="step"),
    Column(
        "host_doing",
        _TEXT,
        "",
        "what the launching thread was in: the innermost that covers half of it, else the one "
        "that covers most; null where nothing tells",
        True,
        label="the host was in",
        kind="layer",
    ),
    Column(
        "host_doing_kind",
        _TEXT,
        "",
        "what that is",
        True,
        label="kind",
        codes=HostDoing,
        importance=5,
    ),
    Column(
        "host_doing_share",
        _REAL,
        "ratio",
        "how much of the gap, outside of the end-to-end time too, that covers",
        True,
        label="covers",
        kind="share",
        importance=4,
    ),
    Column(
        "repeated",
        _TEXT,
        "",
        "what it called most often within; null below ten times",
        True,
        label="calling",
        kind="layer",
        importance=3,
    ),
    Column("repeated_times", _INT64, "", "how often", True, label="times", importance=3),
)
