"""The columns of what is found about memory."""

from __future__ import annotations

from profiler.run.columns import BOOL, DATA_ONLY, FLOAT64, INT32, INT64, STRING, Column, Key

__all__ = ["MEMORY", "MEMORY_DEVICES", "MEMORY_TIMELINE"]

_OF_DEVICE = Column("device", STRING, "", "device whose memory it is", combine=Key())

MEMORY_DEVICES: tuple[Column, ...] = (
    _OF_DEVICE,
    Column(
        "counters",
        STRING,
        "",
        "counters of its memory, joined with commas",
        kind="list",
        importance=15,
    ),
    Column("peak_bytes", INT64, "bytes", "largest sum of these counters at one time", True),
    Column("peak_ns", INT64, "ns", "time, on the run's clock", True, label="at", importance=8),
    Column(
        "submodule", STRING, "", "submodule whose call ran then", True, label="in", importance=1
    ),
    Column("stage", STRING, "", "stage of that call", True, importance=DATA_ONLY),
    Column(
        "step", INT32, "", "step of that call; -1 outside denoise", True, kind="step", importance=1
    ),
    Column(
        "least_bytes",
        INT64,
        "bytes",
        "smallest sum of these counters during the run",
        True,
        importance=4,
    ),
    Column(
        "weight_bytes",
        INT64,
        "bytes",
        "weights of the submodules placed there",
        True,
        label="weights",
        importance=2,
    ),
    Column(
        "weights_counted",
        BOOL,
        "",
        "whether the counters count weights",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "needed_bytes",
        INT64,
        "bytes",
        "peak_bytes plus weights that are not counted in it; only weights where there are no "
        "counters",
        True,
    ),
    Column(
        "size_bytes",
        INT64,
        "bytes",
        "memory of the device: as given by the user, else as known",
        True,
        label="memory",
        importance=3,
    ),
    Column(
        "headroom_bytes",
        INT64,
        "bytes",
        "size_bytes - needed_bytes; below 0, memory is too small",
        True,
        label="head-room",
    ),
)

MEMORY: tuple[Column, ...] = (
    _OF_DEVICE,
    Column(
        "submodule",
        STRING,
        "",
        "submodule that held it; null for memory that is not known to belong to one",
        True,
        combine=Key(),
    ),
    Column("calls", INT64, "", "its calls with samples", importance=2),
    Column(
        "peak_bytes",
        INT64,
        "bytes",
        "most that its own arena held; with torch's allocator, most that the device held in its "
        "calls",
        True,
        label="peak in calls",
        importance=1,
    ),
    Column(
        "activation_bytes",
        INT64,
        "bytes",
        "most that one of its calls held in addition to its weights",
        True,
        label="activations",
    ),
    Column(
        "weight_bytes",
        INT64,
        "bytes",
        "its weights, except those shared with an earlier submodule",
        True,
        label="weights",
    ),
    Column("held_bytes", INT64, "bytes", "its part of the device's needed_bytes at the peak", True),
    Column(
        "share", FLOAT64, "ratio", "held_bytes / needed_bytes of the device", True, kind="share"
    ),
)

MEMORY_TIMELINE: tuple[Column, ...] = (
    _OF_DEVICE,
    Column("time_ns", INT64, "ns", "begin of an interval, on the run's clock"),
    Column("bytes", INT64, "bytes", "most that the counters held in it"),
    Column("submodule", STRING, "", "submodule whose call ran at that moment", True),
)
