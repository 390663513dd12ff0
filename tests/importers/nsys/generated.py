# ruff: noqa: N815  # attributes are columns
# attributes are columns
"""Small exports of Nsight Systems whose tables are written down row by row.

    path = export(tmp_path, kernels=[Kernel(10, 20, correlation=1)], api=[Api(5, 8, 1)], …)

Rows have the columns that real exports have, as far as they are given; tables without rows are
left out, as Nsight Systems does.
"""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass, fields
from pathlib import Path

UTC = 1_790_000_000_000_000_000
VM = 1 << 48
PID, TID = 4242, 4243


def global_id(pid=PID, tid=0):
    """The id that Nsight Systems gives a thread, or a process with `tid` 0."""
    return VM | pid << 24 | tid


@dataclass
class Kernel:
    """A row of CUPTI_ACTIVITY_KIND_KERNEL; `name` is the text, not its id."""

    start: int | None
    end: int | None
    correlationId: int = 0
    name: str = "void at::native::mul_kernel<float>(float*)"
    deviceId: int = 0
    streamId: int = 7
    globalPid: int = global_id()
    graphNodeId: int | None = None
    contextId: int | None = None
    gridX: int | None = None


@dataclass
class Copy:
    start: int
    end: int
    correlationId: int
    bytes: int
    copyKind: int
    srcKind: int = 7
    dstKind: int = 7
    deviceId: int = 0
    streamId: int = 7
    globalPid: int = global_id()


@dataclass
class Graph:
    start: int
    end: int
    correlationId: int
    graphId: int = 3
    deviceId: int = 0
    streamId: int = 7
    globalPid: int = global_id()


@dataclass
class Call:
    """A row of CUPTI_ACTIVITY_KIND_RUNTIME."""

    start: int
    end: int
    correlationId: int
    name: str = "cudaLaunchKernel_v7000"
    globalTid: int = global_id(tid=TID)


@dataclass
class Range:
    """A row of NVTX_EVENTS; a text in `shared` stands in StringIds."""

    start: int
    end: int | None
    text: str | None
    shared: str | None = None
    eventType: int = 59
    globalTid: int = global_id(tid=TID)
    domainId: int = 0


@dataclass
class Metric:
    timestamp: int
    value: int
    typeId: int = 0x1_0001
    metricId: int = 5


@dataclass
class Memory:
    """A row of CUDA_GPU_MEMORY_USAGE_EVENTS: 0 allocates, 1 releases."""

    start: int | None
    bytes: int
    memoryOperationType: int = 0
    memKind: int = 2
    deviceId: int = 0
    globalPid: int = global_id()


_TABLES = {
    Kernel: "CUPTI_ACTIVITY_KIND_KERNEL",
    Copy: "CUPTI_ACTIVITY_KIND_MEMCPY",
    Graph: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    Call: "CUPTI_ACTIVITY_KIND_RUNTIME",
    Range: "NVTX_EVENTS",
    Metric: "GPU_METRICS",
    Memory: "CUDA_GPU_MEMORY_USAGE_EVENTS",
}
_IDS = {(Kernel, "name"): "demangledName", (Call, "name"): "nameId", (Range, "shared"): "textId"}


def export(folder: Path, rows, *, utc=UTC, devices=(), drop=()) -> Path:
    """Write an export with these rows; `devices` are (gpuId, cudaId, pid), `drop` columns that the
    file shall lack."""
    path = folder / "made.sqlite"
    database = sqlite3.connect(path)
    texts: dict[str, int] = {}
    for kind, table in _TABLES.items():
        some = [row for row in rows if isinstance(row, kind)]
        if some:
            _write(database, kind, table, some, texts, drop)
    database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in texts.items()])
    database.execute("CREATE TABLE TARGET_INFO_GPU_METRICS (typeId, metricId, metricName)")
    database.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (65537, 5, 'SMs Active [%]')")
    if utc is not None:
        database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (utc,))
    if devices:
        database.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)")
        database.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?)", devices)
    database.commit()
    database.close()
    return path


def _write(database, kind, table, rows, texts, drop):
    names = [_IDS.get((kind, field.name), field.name) for field in fields(kind)]
    kept = [at for at, name in enumerate(names) if name not in drop]
    columns = ", ".join(f'"{names[at]}"' for at in kept)
    database.execute(f'CREATE TABLE "{table}" ({columns})')
    for row in rows:
        values = list(astuple(row))
        for at, name in enumerate(names):
            if name in _IDS.values() and isinstance(values[at], str):
                values[at] = texts.setdefault(values[at], len(texts) + 1)
        places = ", ".join("?" * len(kept))
        database.execute(f'INSERT INTO "{table}" VALUES ({places})', [values[at] for at in kept])
