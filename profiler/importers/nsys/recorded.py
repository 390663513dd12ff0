"""What an export recorded of devices and of the host's calls."""

from __future__ import annotations

import re

import numpy as np

from profiler.importers.gpu.activity import (
    KINDS,
    NO_TIME,
    Api,
    Names,
    Work,
    joined,
    keys_of,
    process_of,
)
from profiler.importers.nsys.database import shared_texts
from profiler.importers.sqlite_file import SqliteFile
from profiler.trace.columns import Int64s

__all__ = ["read_api", "read_work"]

_NONE = -1
_COMMON = {
    "start": NO_TIME,
    "end": NO_TIME,
    "deviceId": 0,
    "streamId": 0,
    "correlationId": _NONE,
    "globalPid": _NONE,
}
_COPIES = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD (unified memory)",
    12: "DtoH (unified memory)",
    13: "DtoD (unified memory)",
}
_VERSION = re.compile(r"_v\d+$")
_WAIT = re.compile("synchronize", re.IGNORECASE)


def read_work(database: SqliteFile) -> Work:
    """Everything that devices did, as the file has it. A replayed graph whose kernels were
    recorded one by one is left out."""
    names = Names()
    kernels, of_graph = _kernels(database, names)
    parts = [kernels, _copies(database, names), _sets(database, names)]
    graphs = _graphs(database, names)
    recorded = np.isin(keys_of(graphs.pid, graphs.correlation), of_graph)
    parts.append(graphs.select(~recorded))
    return joined(parts, names)


def _kernels(database: SqliteFile, names: Names) -> tuple[Work, Int64s]:
    """The kernels, and the keys of those that replayed graphs launched."""
    asked = {**_COMMON, "demangledName": _NONE, "shortName": _NONE, "graphNodeId": 0}
    found = database.numbers("CUPTI_ACTIVITY_KIND_KERNEL", asked)
    full = found["demangledName"]
    name = _of_ids(database, names, np.where(full == _NONE, found["shortName"], full), "kernel")
    work = _work("kernel", found, name, np.full(len(name), _NONE))
    return work, keys_of(work.pid, work.correlation)[found["graphNodeId"] > 0]


def _copies(database: SqliteFile, names: Names) -> Work:
    found = database.numbers("CUPTI_ACTIVITY_KIND_MEMCPY", {**_COMMON, "copyKind": 0, "bytes": -1})
    kinds, place = np.unique(found["copyKind"], return_inverse=True)
    texts = [f"Memcpy {_COPIES.get(kind, '')}".strip() for kind in kinds.tolist()]
    return _work("gpu_memcpy", found, names.of(texts, place.reshape(-1)), found["bytes"])


def _sets(database: SqliteFile, names: Names) -> Work:
    found = database.numbers("CUPTI_ACTIVITY_KIND_MEMSET", {**_COMMON, "bytes": -1})
    name = names.of(["Memset"], np.zeros(len(found["start"]), dtype=np.int64))
    return _work("gpu_memset", found, name, found["bytes"])


def _graphs(database: SqliteFile, names: Names) -> Work:
    found = database.numbers("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {**_COMMON, "graphId": _NONE})
    ids, place = np.unique(found["graphId"], return_inverse=True)
    texts = [f"CUDA graph {one}" if one >= 0 else "CUDA graph" for one in ids.tolist()]
    name = names.of(texts, place.reshape(-1))
    return _work("graph", found, name, np.full(len(name), _NONE))


def _work(kind: str, found: dict[str, Int64s], name: Int64s, size: Int64s) -> Work:
    return Work(
        kind=np.full(len(name), KINDS.index(kind), dtype=np.int64),
        name=name,
        start=found["start"],
        end=found["end"],
        device=found["deviceId"],
        stream=found["streamId"],
        pid=process_of(found["globalPid"]),
        correlation=found["correlationId"],
        bytes=np.where(size < 0, _NONE, size),
        names=(),
    )


def read_api(database: SqliteFile) -> Api:
    """All calls of runtime and driver, without the version in their names."""
    times = {"start": NO_TIME, "end": NO_TIME}
    asked = {**times, "globalTid": 0, "correlationId": _NONE, "nameId": _NONE}
    found = database.numbers("CUPTI_ACTIVITY_KIND_RUNTIME", asked)
    recorded = Names()
    code = _of_ids(database, recorded, found["nameId"], "runtime call")
    plain, shared = np.unique(
        [_VERSION.sub("", text) for text in recorded.codes] or [""], return_inverse=True
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


def _of_ids(database: SqliteFile, names: Names, ids: Int64s, what: str) -> Int64s:
    """The text of each id in `StringIds`; `what` and the id where it is not there."""
    unique, place = np.unique(ids, return_inverse=True)
    texts = shared_texts(database, unique.tolist())
    found = [texts.get(one) or f"{what} {one}" for one in unique.tolist()]
    return names.of(found, place.reshape(-1))
