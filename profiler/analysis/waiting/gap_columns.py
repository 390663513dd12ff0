"""Columns of the tables of what devices did over time: gaps, busy shares, copies."""

from __future__ import annotations

from profiler.analysis.waiting.codes import (
    CopyDirection,
    GapPosition,
    HostDoing,
    WaitCause,
)
from profiler.run.columns import FLOAT64, INT32, INT64, STRING, Column

__all__ = ["BUSY_TIMELINE", "COPIES", "GAPS"]


BUSY_TIMELINE: tuple[Column, ...] = (
    Column("device", STRING, "", "a place that executes commands"),
    Column("begin_ns", INT64, "ns", "begin of an interval, on the run's clock"),
    Column("end_ns", INT64, "ns", "its end"),
    Column(
        "busy_share",
        FLOAT64,
        "ratio",
        "share of the interval in which a command of the device ran, of any category except host "
        "and sync",
        label="busy",
        kind="share",
    ),
    Column(
        "unrecorded_share",
        FLOAT64,
        "ratio",
        "share of the interval in which nothing was recorded although work or the host waited",
        label="not recorded",
        kind="share",
    ),
)

COPIES: tuple[Column, ...] = (
    Column("device", STRING, "", "a place that executes commands"),
    Column("direction", STRING, "", ", ".join(CopyDirection), codes=CopyDirection),
    Column("copies", INT64, "", "commands of that direction"),
    Column(
        "bytes",
        INT64,
        "bytes",
        "bytes that these moved; null where no producer recorded them",
        True,
    ),
    Column("total_ns", INT64, "ns", "sum of their durations", importance=5),
    Column("wall_ns", INT64, "ns", "union of them", label="wall"),
    Column(
        "bandwidth",
        FLOAT64,
        "GB/s",
        "bytes / time of the copies whose bytes are known, 10⁹ bytes a second",
        True,
        label="rate",
    ),
    Column(
        "hidden_ns", INT64, "ns", "part of wall_ns in which the device also computed", importance=5
    ),
    Column("hidden_share", FLOAT64, "ratio", "hidden_ns / wall_ns", label="hidden", kind="share"),
)

GAPS: tuple[Column, ...] = (
    Column("device", STRING, "", "the device that had nothing to run", importance=6),
    Column("begin_ns", INT64, "ns", "when it ran dry, on the run's clock"),
    Column(
        "length_ns",
        INT64,
        "ns",
        "until the next command, minus time outside of the end-to-end time",
    ),
    Column("cause", STRING, "", "cause of most of it", codes=WaitCause),
    Column(
        "position",
        STRING,
        "",
        "where it lies; kernels are commands of category compute or other, and copies do not "
        "count as kernels",
        codes=GapPosition,
        importance=2,
    ),
    Column(
        "call",
        INT32,
        "",
        "the call in whose tile most of it lies; between calls the next; null for none",
        True,
        kind="step",
        importance=12,
    ),
    Column("submodule", STRING, "", "that of the call", True, importance=1),
    Column("step", INT32, "", "that of the call; null or -1 outside denoise", True, kind="step"),
    Column(
        "host_doing",
        STRING,
        "",
        "what the launching thread was executing: the innermost function that covers half of the "
        "gap, else the one that covers most of it; null where unknown",
        True,
        label="the host was in",
        kind="layer",
    ),
    Column(
        "host_doing_kind",
        STRING,
        "",
        "kind of host_doing",
        True,
        label="kind",
        codes=HostDoing,
        importance=5,
    ),
    Column(
        "host_doing_share",
        FLOAT64,
        "ratio",
        "share of the gap that host_doing covers, including time outside of the end-to-end time",
        True,
        label="covers",
        kind="share",
        importance=4,
    ),
    Column(
        "repeated",
        STRING,
        "",
        "what host_doing called most often during the gap; null below ten times",
        True,
        label="calling",
        kind="layer",
        importance=3,
    ),
    Column("repeated_times", INT64, "", "how often", True, label="times", importance=3),
)
