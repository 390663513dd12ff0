"""What devices did and what the host asked of them: n rows each, int64 [n] in ns of the file.

A piece of work and the call of the runtime that launched it share process and correlation id; the
id alone is not enough, since each process counts for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.trace.columns import Int64s

__all__ = [
    "KINDS",
    "LATEST",
    "NO_TIME",
    "Api",
    "Bools",
    "Names",
    "Work",
    "global_ids",
    "in_time",
    "joined",
    "keys_of",
    "launches",
    "process_of",
]

Bools = npt.NDArray[np.bool_]
KINDS = ("kernel", "gpu_memcpy", "gpu_memset", "graph")
_NONE = -1
NO_TIME = -(1 << 62)
"""Where the file has no time."""
LATEST = 1 << 61
"""ns, the year 2043: times are before it, so that a session's begin can be added."""
_MASK = 0xFFFFFF  # of a process or thread in a global id
_WORK = ("kind", "name", "start", "end", "device", "stream", "pid", "correlation", "bytes")
_API = ("name", "start", "end", "thread", "pid", "correlation", "waits")


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Kernels, copies, sets and replayed graphs: `kind` indexes `KINDS`, `name` `names`; `bytes`
    is -1 for kernels, `pid` and `stream` where the file does not tell. `lane` is what a stream is
    called."""

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
    lane: str = "stream"

    def __len__(self) -> int:
        return len(self.start)

    def select(self, rows: Int64s | Bools) -> Work:
        """Some of the rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _WORK})

    def timed(self) -> Work:
        """The rows that have a begin, and an end that is not before it."""
        kept = in_time(self.start, self.end)
        return self if kept.all() else self.select(kept)


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """Calls of the runtime and the driver: `name` indexes `names`; `thread` is the global id of
    the thread (`global_ids`), `waits` whether the host waited in it for a device."""

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
        return replace(self, **{name: getattr(self, name)[rows] for name in _API})

    def timed(self) -> Api:
        """The rows that have a begin, and an end that is not before it."""
        kept = in_time(self.start, self.end)
        return self if kept.all() else self.select(kept)


def in_time(start: Int64s, end: Int64s) -> Bools:
    """Which rows have a begin, and an end that is not before it; NO_TIME, and what the epoch moves
    out of 64 bits, is none."""
    return (start > -LATEST) & (end >= start) & (end < LATEST)


class Names:
    """Texts as positions in one tuple."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def of(self, texts: Sequence[str], place: Int64s) -> Int64s:
        """The code of each of `texts[place]`."""
        codes = [self.codes.setdefault(text, len(self.codes)) for text in texts]
        return np.array(codes, dtype=np.int64)[place] if codes else np.zeros(0, dtype=np.int64)


def global_ids(pid: Int64s, tid: Int64s) -> Int64s:
    """Global ids of threads: the process in bits 24 to 47, the thread below."""
    ids: Int64s = ((pid & _MASK) << 24) | (tid & _MASK)
    return ids


def process_of(identity: Int64s) -> Int64s:
    """The process in global ids of processes or threads, -1 where there is none."""
    return np.where(identity == _NONE, _NONE, (identity >> 24) & _MASK)


def joined(parts: Sequence[Work], names: Names) -> Work:
    """The rows of all parts, one after the other; their names are codes of `names`."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _WORK
    }
    return replace(parts[0], **columns, names=tuple(names.codes))


def keys_of(pid: Int64s, correlation: Int64s) -> Int64s:
    """A number for each pair of process and correlation id."""
    keys: Int64s = (pid << 32) | (correlation & 0xFFFFFFFF)
    return keys


def launches(work: Work, api: Api) -> Int64s:
    """For each piece of work the row of the call that launched it, int64 [n]; -1 where the file
    has none. Where it does not tell the process of the work, the id alone decides, if one call
    alone has it."""
    told = bool((work.pid != _NONE).any()) or not len(work)
    if told:
        asked, keys = keys_of(work.pid, work.correlation), keys_of(api.pid, api.correlation)
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
