"""Import an Nsight Systems export (SQLite): kernels, NVTX ranges, memory, GPU metrics.

    import_trace(Path("report.sqlite"), Path("traces"))
    import_trace(Path("report.sqlite"), Path("traces"), options={"submodules": "encoder,dit"})

Tables and columns exist only if their data was recorded. Times are ns from the session's start.
Memory counters start at zero, because earlier allocations are not recorded. Process names, thread
names and the environment are not read. Source: docs.nvidia.com/nsight-systems/UserGuide, "SQLite
schema reference".
"""

from __future__ import annotations

import re
from collections import Counter as Counted
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from profiler.errors import InputError
from profiler.importers.foreign_run import ForeignRunBuilder, drops_of
from profiler.importers.gpu_calls import (
    KINDS,
    LATEST,
    NO_TIME,
    OPEN,
    Api,
    Marks,
    MarkTexts,
    Names,
    Work,
    asked_for,
    in_time,
    keys_of,
    may_be_host_only,
    process_of,
)
from profiler.importers.gpu_run import Devices, Machine, Recorded, gpu_run
from profiler.importers.sqlite_file import SqliteFile, open_sqlite
from profiler.trace.columns import Counter, Int32s, Int64s, distinct
from profiler.trace.events import Drop, DropKind, DropReason
from profiler.trace.manifest_fields import ClockName, Device, quantity

# --- An export of Nsight Systems, whose tables and columns exist only if something was recorded.
#
# Source: https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite schema reference".


_AGAIN = "`nsys export --type sqlite`"


def shared_texts(database: SqliteFile, ids: Iterable[int]) -> dict[int, str]:
    """The texts of `StringIds` for these ids, without ids that it lacks."""
    return database.texts("StringIds", "value", ids)


# --- Memory of devices that CUDA gave to the processes (`--cuda-memory-usage=true`), as counters.
#
# The events are allocations and releases alone: what was held before the recording started is not
# known, and the counter's name says so.
#
# Source of the columns and codes: public programs that read such exports. `memKind` 2 is memory of
# the device, 3 an array, 5 what a module declares, 4 and 6 are managed; `memoryOperationType` 0
# allocates, 1 releases.


_NAME = "CUDA allocated since the pipeline began"
_ALLOCATED, _RELEASED = 0, 1  # ENUM_CUDA_DEV_MEM_EVENT_OPER
_ON_DEVICE = (2, 3, 5)  # ENUM_CUDA_MEM_KIND: device, array, device static
_LARGEST = 1 << 42  # bytes; a million of them still add up in an int64
_MEMORY_COLUMNS = {
    "start": NO_TIME,
    "deviceId": 0,
    "globalPid": -1,
    "bytes": -1,
    "memKind": -1,
    "memoryOperationType": -1,
}


def read_memory(
    database: SqliteFile, base_ns: int, gpus: Mapping[tuple[int, int], int]
) -> Iterator[Counter]:
    """Yield counters of the memory that all processes hold on each device. `gpus` has the number of
    a GPU by process and the process's own number for it; `base_ns` is added to times."""
    found = database.numbers("CUDA_GPU_MEMORY_USAGE_EVENTS", _MEMORY_COLUMNS)
    kept = in_time(found["start"], found["start"]) & np.isin(found["memKind"], _ON_DEVICE)
    kept &= np.isin(found["memoryOperationType"], (_ALLOCATED, _RELEASED))
    kept &= (found["bytes"] >= 0) & (found["bytes"] < _LARGEST)
    found = {name: column[kept] for name, column in found.items()}
    released = found["memoryOperationType"] == _RELEASED
    changes = np.where(released, -found["bytes"], found["bytes"])
    pairs, place = distinct(process_of(found["globalPid"]), found["deviceId"])
    numbers = np.array([gpus.get((pid, own), own) for pid, own in pairs], dtype=np.int64)
    for gpu in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers[place] == gpu)
        rows = rows[np.argsort(found["start"][rows], kind="stable")]
        times, held = found["start"][rows] + base_ns, np.cumsum(changes[rows])
        yield Counter(f"cuda:{gpu}", _NAME, "bytes", times, held)


# --- GPU metrics that Nsight Systems sampled (`--gpu-metrics-devices`), as counters of the devices.


_DEVICE = 0xFF  # the bits of a metric's type that are the number of the GPU
_MAX_METRIC_NAME = 200  # characters of a name


def read_metrics(database: SqliteFile, base_ns: int) -> Iterator[Counter]:
    """Yield a counter per metric and device, in its own unit; `base_ns` is added to times."""
    columns = {"timestamp": NO_TIME, "typeId": 0, "metricId": -1, "value": 0}
    found = database.numbers("GPU_METRICS", columns)
    kept = in_time(found["timestamp"], found["timestamp"])
    if not kept.any():
        return
    found = {name: column[kept] for name, column in found.items()}
    named = database.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    names = {(str(kind), str(metric)): str(name)[:_MAX_METRIC_NAME] for kind, metric, name in named}
    metrics, place = distinct(found["typeId"], found["metricId"])
    for number, (kind, metric) in enumerate(metrics):
        rows = np.flatnonzero(place == number)
        rows = rows[np.argsort(found["timestamp"][rows], kind="stable")]
        yield Counter(
            device=f"cuda:{kind & _DEVICE}",
            name=names.get((str(kind), str(metric)), f"metric {metric}"),
            unit="count",
            times_ns=found["timestamp"][rows] + base_ns,
            values=found["value"][rows],
        )


# --- When and on what an export was recorded: the session's clock, devices, versions.


_NORMALIZED = "EXPORT_PARAM_TIME_NORMALIZE"
_VERSIONS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "nsys_schema"}
_SHORT = 64  # characters of a version, 200 of a device's name


_Contexts = Mapping[tuple[int, ...], int]
"""How much work there is by process, context and the process's number of the device."""


def read_machine(database: SqliteFile, work: Work, api: Api, contexts: _Contexts) -> Machine:
    """The machine and the session's clock; `work` and `api` have the times of the file."""
    rows = database.rows("META_DATA_EXPORT", ("name", "value"))  # nothing else is kept
    versions = {str(n): str(value) for n, value in rows if n in (_NORMALIZED, *_VERSIONS)}
    begins = database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    begun = next((one for (one,) in begins if type(one) is int and 0 < one < LATEST), None)
    begun = 0 if versions.get(_NORMALIZED) == "true" else begun
    first = min(part.first_ns() for part in (work, api) if len(part))
    utc = begun is not None and first + begun >= 0
    base = begun if begun is not None and utc else max(-first, 0)
    known = database.numbers("TARGET_INFO_CUDA_DEVICE", {"gpuId": -1, "cudaId": -1, "pid": -1})
    columns = (known[name].tolist() for name in known)
    gpus = {(pid, cuda): gpu for gpu, cuda, pid in zip(*columns, strict=True)}
    # `deviceId` counts what the process sees; the GPU's own number is taken if it is known
    pairs, place = distinct(work.pid, work.device)
    numbers = [gpus.get((pid, device), device) for pid, device in pairs]
    order = sorted(set(numbers))
    codes = np.array([order.index(number) for number in numbers], dtype=np.int64)
    placed = Devices(codes[place], tuple(f"cuda:{number}" for number in order))
    return Machine(
        base_ns=base,
        clock=ClockName.REALTIME if utc else None,
        placed=placed,
        devices=_devices(database, placed.names),
        counters=(*read_metrics(database, base), *read_memory(database, base, gpus)),
        elsewhere=_elsewhere(contexts, gpus),
        hardware=_hardware(database),
        versions={
            name: versions[key][:_SHORT] for key, name in _VERSIONS.items() if versions.get(key)
        },
    )


def _elsewhere(
    contexts: _Contexts, gpus: Mapping[tuple[int, int], int]
) -> Mapping[tuple[str, str], int]:
    """How much work names no device, or another one than most of its context does, by both. A
    context is of one device."""
    found = Counted[tuple[str, str]]()
    devices: dict[tuple[int, int], Counted[str]] = {}
    for (pid, context, own), count in contexts.items():
        if own < 0:
            is_certain, of = _device_of(contexts, pid, context)
            if not is_certain:
                found[f"cuda:{gpus.get((pid, of), of)}", "no device"] += count
        elif pid != _NONE and context > 0:
            of_context = devices.setdefault((pid, context), Counted())
            of_context[f"cuda:{gpus.get((pid, own), own)}"] += count
    for of_context in devices.values():
        (usual, _), *others = of_context.most_common()
        found.update({(usual, device): count for device, count in others})
    return found


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


def _hardware(database: SqliteFile) -> str:
    named = {name for (name,) in database.rows("TARGET_INFO_GPU", ("name",))}
    return ", ".join(sorted(name for name in named if isinstance(name, str)))


def _whole(value: object) -> int:
    """A whole number from the file, which `rows` returns as text; -1 for none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


# --- NVTX ranges of an export, and the domains that they are of.
#
# A domain of a process has a number (`domainId`, 0 for the default one), which a row of its own
# names (`eventType` 75). Those that no row names are called by the number.


_PUSH_POP, _START_END, _DOMAIN = 59, 60, 75
_MAX_DOMAIN_NAME = 64  # characters of a domain's name
_KEPT = {"start": NO_TIME, "end": NO_TIME, "globalTid": 0, "domainId": 0}
_NVTX_COLUMNS = {**_KEPT, "eventType": 0, "textId": -1}


def read_nvtx(database: SqliteFile, submodules: Collection[str] = ()) -> Marks:
    """The ranges of an export. `submodules` are the texts of ranges that are calls, by default the
    names of components."""
    return _Ranges(database).marks(submodules)


class _Ranges:
    """Reads the ranges of an export; their texts stay codes."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._texts = MarkTexts()
        self._domains: dict[tuple[int, int], str] = {}  # by process and number

    def marks(self, submodules: Collection[str]) -> Marks:
        """All ranges."""
        found, texts, place = self._database.with_texts("NVTX_EVENTS", _NVTX_COLUMNS, "text")
        kind = found.pop("eventType")
        for row in np.flatnonzero(kind == _DOMAIN).tolist():
            self._name_domain(found, texts[place[row]] if place[row] >= 0 else None, row)
        ranges = np.isin(kind, (_PUSH_POP, _START_END))
        ranges &= found["start"] != NO_TIME
        closed = ranges & in_time(found["start"], found["end"])
        unclosed = int((ranges & ~closed).sum())
        ongoing = ranges & (found["end"] == NO_TIME) & in_time(found["start"], found["start"])
        found["end"][ongoing] = OPEN
        kept = closed | ongoing
        if not kept.all():
            place = place[kept]
            found = {name: found[name][kept] for name in found}
        text, sizes = self._numbered(texts, place, found.pop("textId"))
        start, end, thread, domain = (found.pop(name) for name in _KEPT)
        text, named = self._with_domains(text, thread >> 24, domain)
        columns = start, end, thread, text, sizes
        return Marks.of(*columns, self._texts, submodules, unclosed, named=named)

    def _with_domains(
        self, text: Int32s, process: Int64s, domain: Int64s
    ) -> tuple[Int32s, list[tuple[int, str]]]:
        """The codes of texts. Ranges in named domains get codes after all others; the list has the
        text and the domain of each of these."""
        rows = np.flatnonzero(domain)
        if not len(rows):
            return text, []
        pairs, place = distinct(text[rows].astype(np.int64), process[rows], domain[rows])
        named = [
            (code, self._domains.get((pid, number), f"domain {number}"))
            for code, pid, number in pairs
        ]
        numbers = {one: at for at, one in enumerate(dict.fromkeys(named))}
        first = len(self._texts.names)
        code = np.array([first + numbers[one] for one in named], dtype=np.int32)
        text[rows] = code[place]
        return text, [*numbers]

    def _name_domain(self, found: dict[str, Int64s], text: str | None, row: int) -> None:
        number = int(found["domainId"][row])
        if text is None:
            shared = int(found["textId"][row])
            text = shared_texts(self._database, [shared]).get(shared)
        if text:
            key = int(found["globalTid"][row]) >> 24, number
            self._domains.setdefault(key, text[:_MAX_DOMAIN_NAME])

    def _numbered(self, own: list[str], place: Int32s, ids: Int64s) -> tuple[Int32s, Int32s]:
        """The codes of some ranges' texts and shapes, which are in the table itself or in
        `StringIds`."""
        ids, shared = np.unique(ids[place < 0], return_inverse=True)
        texts = shared_texts(self._database, ids.tolist())
        place[place < 0] = len(own) + shared.reshape(-1)
        every = [*own, *(texts.get(one, "") for one in ids.tolist())]
        used = np.zeros(len(every), dtype=np.bool_)
        used[place] = True
        text, sizes = np.zeros((2, len(every)), dtype=np.int32)
        text[used], sizes[used] = self._texts.of([every[one] for one in np.flatnonzero(used)])
        return text[place], sizes[place]


# --- What an export recorded of devices and of the host's calls.


_NONE = -1
_NO_TEXT = re.compile(r"(?:kernel|runtime call) \d+")  # a name made from its number
_COMMON = {
    "start": NO_TIME,
    "end": NO_TIME,
    "deviceId": 0,
    "streamId": 0,
    "correlationId": _NONE,
    "globalPid": _NONE,
    "contextId": _NONE,
}
_COPIES = (  # by number
    *("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *(f"{ends} (unified memory)" for ends in ("HtoD", "DtoH", "DtoD")),
)
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_GRID = ("gridX", "gridY", "gridZ")
_VERSION = re.compile(r"_v\d+$")
_WAIT = re.compile("synchronize", re.IGNORECASE)


def read_work(database: SqliteFile) -> tuple[Work, _Contexts]:
    """All device work in the file, and its contexts. A replayed graph is left out if its kernels
    were recorded individually."""
    names, contexts = Names(), Counted[tuple[int, ...]]()

    def read(table: str, **columns: int) -> dict[str, Int64s]:
        found = database.numbers(f"CUPTI_ACTIVITY_KIND_{table}", {**_COMMON, **columns})
        context = found.pop("contextId")
        of = process_of(found["globalPid"]), context, found["deviceId"]
        if "copyKind" in found:  # some copies are of two devices, or of the driver
            own = found["copyKind"] < _COPIES.index("PtoP")
            of = of[0][own], of[1][own], of[2][own]
        several, place = distinct(*of)
        number = np.bincount(place, minlength=len(several))
        contexts.update(dict(zip(several, number.tolist(), strict=True)))
        unnamed = np.flatnonzero(found["deviceId"] < 0)
        pairs, place = distinct(process_of(found["globalPid"])[unnamed], context[unnamed])
        devices = [_device_of(contexts, *pair)[1] for pair in pairs]
        found["deviceId"][unnamed] = np.array(devices, dtype=np.int64)[place]
        return found

    grid = dict.fromkeys(_GRID, _NONE)
    found = read("KERNEL", demangledName=_NONE, shortName=_NONE, graphNodeId=0, **grid)
    full = found["demangledName"]
    name = _of_ids(database, names, np.where(full == _NONE, found["shortName"], full), "kernel")
    name = names.by_size(name, *(found.pop(size) for size in grid))
    kernels = _work("kernel", found, name)
    of_graph = keys_of(kernels.pid, kernels.correlation)[found["graphNodeId"] > 0]

    found = read("MEMCPY", copyKind=0, bytes=_NONE, srcKind=_NONE, dstKind=_NONE)
    kinds, place = distinct(found["copyKind"], found["srcKind"], found["dstKind"])
    name = names.of([_copy_name(*kind) for kind in kinds], place)
    copies = _work("gpu_memcpy", found, name)

    found = read("MEMSET", bytes=_NONE)
    name = names.of(["Memset"], np.zeros(len(found["start"]), dtype=np.int64))
    sets = _work("gpu_memset", found, name)

    found = read("GRAPH_TRACE", graphId=_NONE)
    ids, place = np.unique(found["graphId"], return_inverse=True)
    texts = [f"CUDA graph {one}" if one >= 0 else "CUDA graph" for one in ids.tolist()]
    graphs = _work("graph", found, names.of(texts, place.reshape(-1)))
    recorded = np.isin(keys_of(graphs.pid, graphs.correlation), of_graph)
    return Work.joined([kernels, copies, sets, graphs.select(~recorded)], names), contexts


def _device_of(contexts: _Contexts, pid: int, context: int) -> tuple[bool, int]:
    """The device of work that names none, and before it whether that is certain: the device of
    other work of its context, else of most work of its process, else of the file, else 0."""
    known = [
        (one == pid and of == context, one == pid, count, own)
        for (one, of, own), count in contexts.items()
        if own >= 0
    ]
    of_context, *_, own = max(known, default=(False, False, 0, 0))
    return of_context and context > 0, own


def _copy_name(kind: int, source: int, target: int) -> str:
    """The name of a copy as in Kineto: `Memcpy HtoD (Pinned -> Device)`."""
    name = f"Memcpy {_COPIES[kind] if 0 <= kind < len(_COPIES) else ''}".strip()
    memory = _MEMORY.get(source), _MEMORY.get(target)
    return f"{name} ({memory[0]} -> {memory[1]})" if all(memory) and "(" not in name else name


def _work(kind: str, found: dict[str, Int64s], name: Int32s) -> Work:
    return Work(
        kind=np.full(len(name), KINDS.index(kind), dtype=np.int32),
        name=name,
        start=found["start"],
        end=found["end"],
        device=found["deviceId"],
        stream=found["streamId"],
        pid=process_of(found["globalPid"]),
        correlation=found["correlationId"],
        bytes=np.maximum(found.get("bytes", np.full(len(name), _NONE)), _NONE),
    )


def read_api(database: SqliteFile) -> Api:
    """All calls of runtime and driver, without the version in their names."""
    times = {"start": NO_TIME, "end": NO_TIME}
    asked = {**times, "globalTid": 0, "correlationId": _NONE, "nameId": _NONE}
    found = database.numbers("CUPTI_ACTIVITY_KIND_RUNTIME", asked)
    recorded = Names()
    code = _of_ids(database, recorded, found["nameId"], "runtime call")
    plain, shared = np.unique(
        [_VERSION.sub("", text) for text in recorded.texts] or [""], return_inverse=True
    )
    waits = np.array([bool(_WAIT.search(text)) for text in plain.tolist()], dtype=np.bool_)
    name = shared.reshape(-1)[code] if len(code) else code
    return Api(
        name=name,
        start=found["start"],
        end=found["end"],
        thread=found["globalTid"],
        pid=process_of(found["globalTid"]),
        correlation=found["correlationId"],
        waits=waits[name],
        names=tuple(plain.tolist()),
    )


def _nameless(recorded: Recorded, where: str) -> tuple[Drop, ...]:
    """A drop for names of kernels and calls that `StringIds` lacks."""
    texts = {*recorded.work.names, *recorded.api.names}
    count = sum(bool(_NO_TEXT.fullmatch(text)) for text in texts)
    return drops_of(DropKind.DROPPED_EVENTS, count, "names", DropReason.DAMAGED, where)


def _of_ids(database: SqliteFile, names: Names, ids: Int64s, what: str) -> Int32s:
    """The code of the text of each id in `StringIds`; `what` and the id if it is missing."""
    unique, place = np.unique(ids, return_inverse=True)
    texts = shared_texts(database, unique.tolist())
    found = [texts.get(one) or f"{what} {one}" for one in unique.tolist()]
    return names.of(found, place.reshape(-1))


# --- An export of Nsight Systems → a bundle.
#
# Times of the file are ns from the session's start, which the file tells in UTC; if it does not,
# they are kept, moved so that none is negative. Names of processes and threads, of the whole
# machine, and its environment are not read.


def read_run(path: Path, submodules: str = "") -> ForeignRunBuilder:
    """Read an export; `submodules` are the texts of NVTX ranges that are calls, separated by
    commas.

    Raises InputError if the file is not an export, is damaged, or has no device work.
    """
    given = asked_for(submodules)
    with open_sqlite(path, _AGAIN) as database:
        work, contexts = read_work(database)
        recorded = Recorded(work, read_api(database), read_nvtx(database, given))
        recorded = replace(recorded, drops=_nameless(recorded, path.name)).timed(path.name)
        if not len(recorded.work) and not may_be_host_only(recorded.work, recorded.api):
            raise InputError(
                f"{path} holds no kernel and no copy of a GPU: record with "
                "`nsys profile --trace=cuda,nvtx` and export that"
            )
        recorded.marks.check(path, given, "NVTX range")
        machine = read_machine(database, recorded.work, recorded.api, contexts)
    name = path.name.removesuffix(".gz").removesuffix(".sqlite").removesuffix(".db")
    return gpu_run(ForeignRunBuilder("nsys", name, path), recorded, machine)
