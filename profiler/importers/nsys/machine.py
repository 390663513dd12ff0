"""When and on what an export was recorded: the session's clock, devices, versions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler.importers.gpu.activity import LATEST, Api, Work
from profiler.importers.gpu.commands import Devices
from profiler.importers.gpu.distinct import distinct
from profiler.importers.gpu.run import Machine
from profiler.importers.nsys.memory import read_memory
from profiler.importers.nsys.metrics import read_metrics
from profiler.importers.sqlite_file import SqliteFile
from profiler.trace.manifest_clocks import ClockName
from profiler.trace.manifest_fields import Device, quantity

__all__ = ["read_machine"]

_NORMALIZED = "EXPORT_PARAM_TIME_NORMALIZE"
_VERSIONS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "nsys_schema"}
_SHORT = 64  # characters of a version, 200 of a device's name


def read_machine(database: SqliteFile, work: Work, api: Api) -> Machine:
    """What the file tells of the session; `work` and `api` have the times of the file."""
    told = _exported(database)
    first = min(int(part.start.min()) for part in (work, api) if len(part))
    begun = 0 if told.get(_NORMALIZED) == "true" else _session_begin(database)
    utc = begun is not None and first + begun >= 0
    base = begun if begun is not None and utc else max(-first, 0)
    gpus = _gpus(database)
    placed = _placed(work, gpus)
    return Machine(
        base_ns=base,
        clock=ClockName.REALTIME if utc else None,
        placed=placed,
        devices=_devices(database, placed.names),
        counters=(*read_metrics(database, base), *read_memory(database, base, gpus)),
        versions={name: told[key][:_SHORT] for key, name in _VERSIONS.items() if told.get(key)},
    )


def _exported(database: SqliteFile) -> dict[str, str]:
    """What is read of the export's own description; nothing else of it is."""
    rows = database.rows("META_DATA_EXPORT", ("name", "value"))
    wanted = {_NORMALIZED, *_VERSIONS}
    return {str(name): str(value) for name, value in rows if name in wanted}


def _session_begin(database: SqliteFile) -> int | None:
    """UTC at the session's begin, in ns; None where the file does not tell."""
    rows = database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    return next((value for (value,) in rows if type(value) is int and 0 < value < LATEST), None)


def _gpus(database: SqliteFile) -> dict[tuple[int, int], int]:
    """The numbers of GPUs by process and what it calls them, where the file has them."""
    known = database.numbers("TARGET_INFO_CUDA_DEVICE", {"gpuId": -1, "cudaId": -1, "pid": -1})
    return {
        (pid, cuda): gpu
        for gpu, cuda, pid in zip(*(known[name].tolist() for name in known), strict=True)
    }


def _placed(work: Work, gpus: Mapping[tuple[int, int], int]) -> Devices:
    """The device of each piece of work. `deviceId` counts what the process sees; the number of the
    GPU itself is taken where it is known."""
    pairs, place = distinct(work.pid, work.device)
    numbers = [gpus.get((pid, device), device) for pid, device in pairs]
    order = sorted(set(numbers))
    codes = np.array([order.index(number) for number in numbers], dtype=np.int64)
    return Devices(codes[place], tuple(f"cuda:{number}" for number in order))


def _devices(database: SqliteFile, names: tuple[str, ...]) -> dict[str, Device]:
    rows = database.rows("TARGET_INFO_GPU", ("id", "name", "totalMemory", "smCount"))
    known = {
        f"cuda:{_whole(number)}": Device(
            hardware=name[:200] if isinstance(name, str) else "",
            memory_bytes=quantity(_whole(memory)) if memory is not None else None,
            compute_units=quantity(_whole(units)) if units is not None else None,
        )
        for number, name, memory, units in rows
    }
    return {name: known.get(name, Device()) for name in names}


def _whole(value: object) -> int:
    """A number of the file, whose texts `rows` has cut as text; -1 for none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
