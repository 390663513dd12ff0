"""What devices did and what the host asked of them: n rows each, int64 [n] in ns of the file.

A piece of work and the call of the runtime that launched it share process and correlation id; the
id alone is not enough, since each process counts for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from profiler.importers.nsys.database import NsysDatabase
from profiler.trace.columns import Int64s

__all__ = [
    "KINDS",
    "LATEST",
    "NO_TIME",
    "Api",
    "Bools",
    "Work",
    "in_time",
    "launches",
    "read_api",
    "read_work",
]

Bools = npt.NDArray[np.bool_]
KINDS = ("kernel", "gpu_memcpy", "gpu_memset", "graph")
_NONE = -1
NO_TIME = -(1 << 62)
"""Where the file has no time."""
LATEST = 1 << 61
"""ns, the year 2043: times are before it, so that a session's begin can be added."""
_MASK = 0xFFFFFF  # of a process or thread in a global id
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


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Kernels, copies, sets and replayed graphs: `kind` indexes `KINDS`, `name` `names`; `bytes`
    is -1 for kernels, `pid` where the file does not tell."""

    kind: Int64s
    name: Int64s
    start: Int64s
    end: Int64s
    device: Int64s
    stream: Int64s
    pid: Int64s
    correlation: Int64s
    bytes: Int64s
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    def select(self, rows: Int64s | Bools) -> Work:
        """Some of the rows."""
        columns = ("kind", "name", "start", "end", "device", "stream")
        more = ("pid", "correlation", "bytes")
        return replace(self, **{name: getattr(self, name)[rows] for name in (*columns, *more)})

    def timed(self) -> Work:
        """The rows that have a begin, and an end that is not before it."""
        return self.select(in_time(self.start, self.end))

    def moved(self, base_ns: int) -> Work:
        """The same `base_ns` later."""
        return replace(self, start=self.start + base_ns, end=self.end + base_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """Calls of the runtime and the driver: `name` indexes `names`; `thread` is the global id of
    the thread, `waits` whether the host waited in it for a device."""

    name: Int64s
    start: Int64s
    end: Int64s
    thread: Int64s
    pid: Int64s
    correlation: Int64s
    waits: Bools
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    def select(self, rows: Int64s | Bools) -> Api:
        """Some of the rows."""
        columns = ("name", "start", "end", "thread", "pid", "correlation", "waits")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    def timed(self) -> Api:
        """The rows that have a begin, and an end that is not before it."""
        return self.select(in_time(self.start, self.end))

    def moved(self, base_ns: int) -> Api:
        """The same `base_ns` later."""
        return replace(self, start=self.start + base_ns, end=self.end + base_ns)


def in_time(start: Int64s, end: Int64s) -> Bools:
    """Which rows have a begin, and an end that is not before it; NO_TIME, and what the epoch moves
    out of 64 bits, is none."""
    return (start > -LATEST) & (end >= start) & (end < LATEST)


class _Names:
    """Texts as positions in one tuple."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def of_ids(self, database: NsysDatabase, ids: Int64s, what: str) -> Int64s:
        """The text of each id in `StringIds`; `what` and the id where it is not there."""
        unique, place = np.unique(ids, return_inverse=True)
        texts = database.texts(unique.tolist())
        return self.of(
            [texts.get(one) or f"{what} {one}" for one in unique.tolist()], place.reshape(-1)
        )

    def of(self, texts: list[str], place: Int64s) -> Int64s:
        """The code of each of `texts[place]`."""
        codes = [self.codes.setdefault(text, len(self.codes)) for text in texts]
        return np.array(codes, dtype=np.int64)[place] if codes else np.zeros(0, dtype=np.int64)


def _process_of(identity: Int64s) -> Int64s:
    """The process in global ids of processes or threads, -1 where there is none."""
    return np.where(identity == _NONE, _NONE, (identity >> 24) & _MASK)


def read_work(database: NsysDatabase) -> Work:
    """Everything that devices did, as the file has it. A replayed graph whose kernels were
    recorded one by one is left out."""
    names = _Names()
    kernels, of_graph = _kernels(database, names)
    parts = [kernels, _copies(database, names), _sets(database, names)]
    graphs = _graphs(database, names)
    recorded = np.isin(_keys(graphs.pid, graphs.correlation), of_graph)
    parts.append(graphs.select(~recorded))
    columns = ("kind", "name", "start", "end", "device", "stream", "pid", "correlation", "bytes")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    return Work(**joined, names=tuple(names.codes))


def _kernels(database: NsysDatabase, names: _Names) -> tuple[Work, Int64s]:
    """The kernels, and the keys of those that replayed graphs launched."""
    asked = {**_COMMON, "demangledName": _NONE, "shortName": _NONE, "graphNodeId": 0}
    found = database.numbers("CUPTI_ACTIVITY_KIND_KERNEL", asked)
    full = found["demangledName"]
    name = names.of_ids(database, np.where(full == _NONE, found["shortName"], full), "kernel")
    work = _work("kernel", found, name, np.full(len(name), _NONE))
    return work, _keys(work.pid, work.correlation)[found["graphNodeId"] > 0]


def _copies(database: NsysDatabase, names: _Names) -> Work:
    found = database.numbers("CUPTI_ACTIVITY_KIND_MEMCPY", {**_COMMON, "copyKind": 0, "bytes": -1})
    kinds, place = np.unique(found["copyKind"], return_inverse=True)
    texts = [f"Memcpy {_COPIES.get(kind, '')}".strip() for kind in kinds.tolist()]
    return _work("gpu_memcpy", found, names.of(texts, place.reshape(-1)), found["bytes"])


def _sets(database: NsysDatabase, names: _Names) -> Work:
    found = database.numbers("CUPTI_ACTIVITY_KIND_MEMSET", {**_COMMON, "bytes": -1})
    name = names.of(["Memset"], np.zeros(len(found["start"]), dtype=np.int64))
    return _work("gpu_memset", found, name, found["bytes"])


def _graphs(database: NsysDatabase, names: _Names) -> Work:
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
        pid=_process_of(found["globalPid"]),
        correlation=found["correlationId"],
        bytes=np.where(size < 0, _NONE, size),
        names=(),
    )


def read_api(database: NsysDatabase) -> Api:
    """All calls of runtime and driver, without the version in their names."""
    times = {"start": NO_TIME, "end": NO_TIME}
    asked = {**times, "globalTid": 0, "correlationId": _NONE, "nameId": _NONE}
    found = database.numbers("CUPTI_ACTIVITY_KIND_RUNTIME", asked)
    recorded = _Names()
    code = recorded.of_ids(database, found["nameId"], "runtime call")
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
        pid=_process_of(found["globalTid"]),
        correlation=found["correlationId"],
        waits=waits[name],
        names=tuple(plain.tolist()),
    )


def launches(work: Work, api: Api) -> Int64s:
    """For each piece of work the row of the call that launched it, int64 [n]; -1 where the file
    has none. Where it does not tell the process of the work, the id alone decides, if one call
    alone has it."""
    told = bool((work.pid != _NONE).any()) or not len(work)
    if told:
        asked, keys = _keys(work.pid, work.correlation), _keys(api.pid, api.correlation)
    else:
        asked, keys = work.correlation, api.correlation
    order = np.lexsort((api.start, keys))
    keys = keys[order]
    place = np.searchsorted(keys, asked)
    inside = np.minimum(place, max(len(keys) - 1, 0))
    there = (place < len(keys)) & (work.correlation > 0)
    if len(keys):
        there &= keys[inside] == asked
    if not told:
        there &= np.searchsorted(keys, asked, side="right") - place == 1
    return np.where(there, order[inside] if len(keys) else _NONE, _NONE)


def _keys(pid: Int64s, correlation: Int64s) -> Int64s:
    keys: Int64s = (pid << 32) | (correlation & 0xFFFFFFFF)
    return keys
