"""Events of torch.profiler's Chrome JSON, as far as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import msgspec
import numpy as np

from profiler.trace.columns import Int32s, Int64s

__all__ = ["Args", "Event", "Events", "Scalar", "whole"]

_Bools = np.ndarray[Any, np.dtype[np.bool_]]
Scalar = int | float | str | None


def whole(value: Scalar, default: int) -> int:
    """A number, which files write in several ways; `default` where there is none."""
    try:
        return int(value) if value is not None else default
    except (ValueError, OverflowError):
        return default


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "dims": "Input Dims",
        "types": "Input type",
        "values": "Concrete Inputs",
        "changed": "Bytes",
        "device_type": "Device Type",
        "device_id": "Device Id",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "collective": "Collective name",
    },
):
    """What is read of an event's `args`; `dims`, `types` and `values` are JSON, not decoded.
    `changed` to `reserved` are those of allocations, `sequence` and `forward_thread` autograd's;
    `finished` is false where an event had not ended; `collective` is told by some kernels."""

    external_id: Scalar = None
    correlation: Scalar = None
    device: Scalar = None
    stream: Scalar = None
    bytes: Scalar = None
    name: Scalar = None
    dims: msgspec.Raw = msgspec.Raw(b"")
    types: msgspec.Raw = msgspec.Raw(b"")
    values: msgspec.Raw = msgspec.Raw(b"")
    finished: bool | Scalar = None
    changed: Scalar = None
    device_type: Scalar = None
    device_id: Scalar = None
    allocated: Scalar = None
    reserved: Scalar = None
    sequence: Scalar = None
    forward_thread: Scalar = None
    kernel: Scalar = None
    collective: Scalar = None


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Events(Sequence[Event]):
    """The n complete events of a file, in its order. A file has millions, so each is made when it
    is asked for, without its times: `name`, `category` and `thread`, int32 [n], index `names`,
    `categories` and `threads`, the (pid, tid) pairs; `args` are those of each, None where nothing
    of them is read."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[tuple[Scalar, Scalar], ...]
    name: Int32s
    category: Int32s
    thread: Int32s
    args: list[Args | None]

    def __len__(self) -> int:
        return len(self.args)

    @overload
    def __getitem__(self, row: int) -> Event: ...
    @overload
    def __getitem__(self, row: slice) -> list[Event]: ...
    def __getitem__(self, row: int | slice) -> Event | list[Event]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        pid, tid = self.threads[self.thread.item(row)]
        category = self.categories[self.category.item(row)]
        name = self.names[self.name.item(row)]
        return Event("X", category, name, pid, tid, None, None, self.args[row])

    def __iter__(self) -> Iterator[Event]:
        return (self[row] for row in range(len(self)))

    def name_of(self, row: int) -> str:
        """The name of one event."""
        return self.names[self.name.item(row)]

    def names_of(self, rows: Int64s) -> list[str]:
        """The names of some events."""
        return [self.names[code] for code in self.name[rows].tolist()]

    def of_category(self, rows: Int64s, category: str) -> _Bools:
        """Which of some events are of a category."""
        known = category in self.categories
        code = self.categories.index(category) if known else -1
        found: _Bools = self.category[rows] == code
        return found

    def named(self, rows: Int64s, test: Callable[[str], object]) -> np.ndarray[Any, Any]:
        """What `test` says of the names of some events, asked once for each name."""
        codes = self.name[rows]
        there = np.zeros(len(self.names), dtype=np.bool_)
        there[codes] = True
        known = np.flatnonzero(there).tolist()
        told = np.array([test(self.names[code]) for code in known] or [False])
        table = np.zeros(len(self.names), dtype=told.dtype)
        table[known] = told[: len(known)]
        return table[codes]
