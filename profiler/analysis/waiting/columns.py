"""Columns of the tables that say who waits for whom; `columns` puts them among the others."""

from __future__ import annotations

from profiler.analysis.waiting.codes import PathPart
from profiler.run.columns import DATA_ONLY, FLOAT64, INT32, INT64, STRING, Column

__all__ = ["CPU_FALLBACK", "CRITICAL_PATH", "DEVICE_TRANSITIONS", "IDLE"]


IDLE: tuple[Column, ...] = (
    Column("device", STRING, "", "a place that executes commands"),
    Column(
        "span_ns",
        INT64,
        "ns",
        "from its first command or tile to the end of the last one, minus the profiler's own work",
        importance=2,
    ),
    Column(
        "computing_ns",
        INT64,
        "ns",
        "union of its commands of category compute or other",
        importance=8,
    ),
    Column(
        "waiting_ns",
        INT64,
        "ns",
        "span_ns - computing_ns - unrecorded_ns: idle_ns + data_ns + exposed_ns",
        importance=DATA_ONLY,
    ),
    Column(
        "idle_ns",
        INT64,
        "ns",
        "time in its span in which nothing ran on it: the sum of the next seven columns",
    ),
    Column(
        "launch_ns",
        INT64,
        "ns",
        "idle in tiles of its calls because the host launched too late, or had nothing more to "
        "launch",
        label="launch-bound",
    ),
    Column(
        "unknown_cause_ns",
        INT64,
        "ns",
        "idle in tiles of its calls for an unknown reason: the launch that would tell was not "
        "recorded",
        label="cause not recorded",
        importance=1,
    ),
    Column(
        "sync_ns",
        INT64,
        "ns",
        "idle because the host launched too late after it had waited for a device",
        label="sync-bound",
        importance=1,
    ),
    Column(
        "queue_ns",
        INT64,
        "ns",
        "idle in tiles of its calls although work was launched in time: it had not begun",
        importance=1,
    ),
    Column(
        "copy_wait_ns",
        INT64,
        "ns",
        "waiting for an asynchronous copy of its own, while a command that waits for the copy ran",
        label="waiting for copies",
    ),
    Column("other_device_ns", INT64, "ns", "waiting for another device, which was running"),
    Column("host_ns", INT64, "ns", "between calls", label="between calls", importance=1),
    Column(
        "outside_ns",
        INT64,
        "ns",
        "outside of the end-to-end time",
        label="outside of end to end",
        importance=16,
    ),
    Column(
        "host_work_ns",
        INT64,
        "ns",
        "part of host_ns in which host work of no call ran",
        label="of it host work",
        importance=3,
    ),
    Column(
        "data_ns", INT64, "ns", "waiting for data, while one of its transfers ran", importance=1
    ),
    Column(
        "collective_ns",
        INT64,
        "ns",
        "union of its collectives between ranks, including the wait for the last rank",
        label="collectives",
        importance=4,
    ),
    Column(
        "exposed_ns",
        INT64,
        "ns",
        "part of collective_ns in which it computed nothing",
        label="of it exposed",
        importance=4,
    ),
    Column(
        "unrecorded_ns",
        INT64,
        "ns",
        "time in which nothing was recorded although work or the host waited, or which a drop "
        "says is missing",
        label="not recorded",
    ),
    Column(
        "idle_inside_ns",
        INT64,
        "ns",
        "part of idle_ns within tiles of its calls",
        importance=DATA_ONLY,
    ),
    Column(
        "unused_ns",
        INT64,
        "ns",
        "part of the end-to-end time outside of span_ns",
        label="before and behind",
        importance=16,
    ),
    Column(
        "idle_share",
        FLOAT64,
        "ratio",
        "share of the end-to-end time: idle_ns - outside_ns + unused_ns",
        True,
        label="idle of run",
        kind="share",
    ),
    Column(
        "transfer_ns",
        INT64,
        "ns",
        "union of its dma and copy commands",
        label="transfers",
        importance=8,
    ),
    Column(
        "overlapped_ns",
        INT64,
        "ns",
        "part of transfer_ns in which it also computed or communicated",
        importance=DATA_ONLY,
    ),
    Column(
        "overlap_share",
        FLOAT64,
        "ratio",
        "overlapped_ns / transfer_ns; null without transfers",
        True,
        label="transfers hidden",
        kind="share",
        importance=1,
    ),
    Column(
        "long_gaps",
        INT64,
        "",
        "gaps with more than 100 µs of idle time within the end-to-end time",
        importance=15,
    ),
    Column(
        "long_gap_ns",
        INT64,
        "ns",
        "idle time of these gaps",
        label="in these",
        importance=15,
    ),
)

CRITICAL_PATH: tuple[Column, ...] = (
    Column(
        "pipeline",
        INT32,
        "",
        "number of the pipeline call; -1 where the run has none",
        importance=DATA_ONLY,
    ),
    Column("submodule", STRING, "", "submodule of the call; null for work in no call", True),
    Column("part", STRING, "", ", ".join(PathPart), codes=PathPart),
    Column("device", STRING, "", "where it ran, or the call was placed", True, importance=2),
    Column(
        "pieces", INT64, "", "calls, commands or host work of that part on the path", importance=1
    ),
    Column("path_ns", INT64, "ns", "their time on the critical path", label="on the path"),
    Column(
        "guessed_ns",
        INT64,
        "ns",
        "part of path_ns for which no wait of the host was recorded: it is guessed because "
        "nothing else was recorded of the host; null for none",
        True,
        label="of it guessed",
    ),
    Column("wall_ns", INT64, "ns", "wall time of the pipeline call", importance=DATA_ONLY),
    Column("share", FLOAT64, "ratio", "path_ns / wall_ns", kind="share"),
)

DEVICE_TRANSITIONS: tuple[Column, ...] = (
    Column("submodule", STRING, "", "submodule whose session has several providers"),
    Column("source", STRING, "", "provider of the node before the switch", label="from provider"),
    Column("target", STRING, "", "provider of the node after the switch", label="to provider"),
    Column("calls", INT64, "", "traced calls with such a switch", importance=2),
    Column("switches", INT64, "", "how often execution went from source to target"),
    Column("copies", INT64, "", "Memcpy nodes in this direction", importance=1),
    Column(
        "bytes", INT64, "bytes", "bytes that these copied; null where the trace does not say", True
    ),
    Column("copy_ns", INT64, "ns", "sum of the durations of these", label="copying"),
    Column("gap_ns", INT64, "ns", "time at the switches in which no node ran", label="gaps"),
)

CPU_FALLBACK: tuple[Column, ...] = (
    Column("submodule", STRING, "", "submodule whose session has several providers"),
    Column("layer", STRING, "", "tensor-level operation: module path or node name", kind="layer"),
    Column("op_type", STRING, "", "ONNX op type", True),
    Column("provider", STRING, "", "provider that ran it, on the host", importance=8),
    Column("nodes", INT64, "", "executions, over all traced calls"),
    Column("total_ns", INT64, "ns", "sum of their durations"),
)
