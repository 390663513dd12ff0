"""Memory of devices that CUDA gave to the processes (`--cuda-memory-usage=true`), as counters.

The events are allocations and releases alone: what was held before the recording began is not
known, and the counter's name says so.

Source of the columns and codes: public programs that read such exports. `memKind` 2 is memory of
the device, 3 an array, 5 what a module declares, 4 and 6 are managed; `memoryOperationType` 0
allocates, 1 releases.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler.importers.gpu.activity import NO_TIME, in_time, process_of
from profiler.importers.gpu.distinct import distinct
from profiler.importers.sqlite_file import SqliteFile
from profiler.trace.columns import Counter

__all__ = ["read_memory"]

_NAME = "CUDA allocated since the pipeline began"
_ALLOCATED, _RELEASED = 0, 1  # ENUM_CUDA_DEV_MEM_EVENT_OPER
_ON_DEVICE = (2, 3, 5)  # ENUM_CUDA_MEM_KIND: device, array, device static
_LARGEST = 1 << 42  # bytes; a million of them still add up in an int64
_ASKED = {
    "start": NO_TIME,
    "deviceId": 0,
    "globalPid": -1,
    "bytes": -1,
    "memKind": -1,
    "memoryOperationType": -1,
}


def read_memory(
    database: SqliteFile, base_ns: int, gpus: Mapping[tuple[int, int], int]
) -> tuple[Counter, ...]:
    """What all processes hold of each device; `gpus` has the number of a GPU by process and what
    that calls it, `base_ns` is added to times."""
    found = database.numbers("CUDA_GPU_MEMORY_USAGE_EVENTS", _ASKED)
    kept = in_time(found["start"], found["start"]) & np.isin(found["memKind"], _ON_DEVICE)
    kept &= np.isin(found["memoryOperationType"], (_ALLOCATED, _RELEASED))
    kept &= (found["bytes"] >= 0) & (found["bytes"] < _LARGEST)
    found = {name: column[kept] for name, column in found.items()}
    released = found["memoryOperationType"] == _RELEASED
    changes = np.where(released, -found["bytes"], found["bytes"])
    pairs, place = distinct(process_of(found["globalPid"]), found["deviceId"])
    numbers = np.array([gpus.get((pid, own), own) for pid, own in pairs], dtype=np.int64)
    counters = []
    for gpu in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers[place] == gpu)
        rows = rows[np.argsort(found["start"][rows], kind="stable")]
        times, held = found["start"][rows] + base_ns, np.cumsum(changes[rows])
        counters.append(Counter(f"cuda:{gpu}", _NAME, "bytes", times, held))
    return tuple(counters)
