"""The arguments of torch.profiler's events as columns.

A file has millions of events, and most arguments are those of another event but for a few numbers:
what is alike is one `Args` for all of them, the numbers are columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, overload

import msgspec
import numpy as np

from profiler.kineto.operators import Scalar
from profiler.trace.columns import Int32s, Int64s

_LARGEST_FRACTION = 1e9


def whole(value: Scalar, default: int) -> int:
    """A number, which files write in several ways; `default` if there is none."""
    try:
        return int(value) if value is not None else default
    except (TypeError, ValueError, OverflowError):
        return default


def fraction(value: Scalar) -> float | None:
    """A number of zero or more, which files write in several ways; None if there is none."""
    try:
        number = float(value) if value is not None else -1.0
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < _LARGEST_FRACTION else None


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
        "occupancy": "est. achieved occupancy %",
        "blocks": "blocks per SM",
        "warps": "warps per SM",
        "copied": "copy kind",
        "node": "graph node id",
    },
):
    """What is read of an event's `args`; `dims` to `grid` are JSON, not decoded.
    `changed` to `reserved` are those of allocations, `sequence` and `forward_thread` autograd's;
    `finished` is false if an event had not ended; `launch_id` is torch-rbln's `correlation`;
    `collective` is that of some kernels, and `occupancy` to `warps` those of CUDA; `copied` is the
    direction of a copy that its name does not have (`direction`, with `size`, on MTIA), `node` the
    place of work in its CUDA graph, and `annotation` or `name` what the user called that."""

    external_id: Scalar = None
    correlation: Scalar = None
    launch_id: Scalar = None
    device: Scalar = None
    stream: Scalar = None
    bytes: Scalar = None
    name: Scalar = None
    dims: msgspec.Raw = msgspec.Raw(b"")
    types: msgspec.Raw = msgspec.Raw(b"")
    values: msgspec.Raw = msgspec.Raw(b"")
    grid: msgspec.Raw = msgspec.Raw(b"")
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
    occupancy: Scalar = None
    blocks: Scalar = None
    warps: Scalar = None
    copied: Scalar = None
    node: Scalar = None
    annotation: Scalar = None
    direction: Any = None
    size: Any = None


NUMBERS = ("external_id", "correlation", "launch_id", "sequence")
"""The arguments that differ from event to event: columns if they are integers."""
RAW = ("dims", "types", "values", "grid")
"""Those that are JSON, not decoded."""
OF_MTIA = ("direction", "size")
"""Those of Meta's MTIA alone, whose events are decoded one by one."""
NO_NUMBER = np.iinfo(np.int64).min
_LARGEST = 1 << 63
_NO_ARGS = Args()


class Arguments(Sequence[Args | None]):
    """The arguments of n events, None if nothing of them is read. Their `NUMBERS` are columns,
    and None in what stands for many events.

    `row`, int32 [n], is the row of an event in what follows, -1 for none; `kind`, int32 [m],
    indexes `kinds`; `columns` are int64 [m] by name, `NO_NUMBER` if the value is that of the kind,
    as all are of a name that is not there.
    """

    def __init__(
        self, row: Int32s, kind: Int32s, columns: dict[str, Int64s], kinds: list[Args]
    ) -> None:
        self.row = row
        self.kind = kind
        self.columns = columns
        self.kinds = kinds

    @classmethod
    def of(cls, args: Iterable[Args | None]) -> Arguments:
        """The arguments of events that are objects already."""
        rows: list[int] = []
        kind: list[int] = []
        kinds: list[Args] = []
        columns: dict[str, list[int]] = {name: [] for name in NUMBERS}
        known: dict[bytes, int] = {}
        for one in args:
            if one is None or one == _NO_ARGS:
                rows.append(-1)
                continue
            rows.append(len(kind))
            alike = copy(one)
            for name, column in columns.items():
                column.append(_number(one, name))
                if column[-1] != NO_NUMBER:
                    setattr(alike, name, None)
            kind.append(known.setdefault(msgspec.json.encode(alike), len(kinds)))
            if kind[-1] == len(kinds):
                kinds.append(alike)
        numbers = [np.array(column, dtype=np.int64) for column in columns.values()]
        return cls(
            np.array(rows, dtype=np.int32),
            np.array(kind, dtype=np.int32),
            known_numbers(numbers),
            kinds,
        )

    @classmethod
    def joined(cls, parts: Sequence[Arguments]) -> Arguments:
        """Those of the parts of a file in turn, which have nothing any more: a file's are not kept
        twice. Parts may share their kinds."""
        every: list[Args] = []
        places: dict[int, int] = {}
        first = 0
        for part in parts:
            place = places.get(id(part.kinds))
            if place is None:
                place = places[id(part.kinds)] = len(every)
                every += part.kinds
            part.row = np.where(part.row >= 0, part.row + np.int32(first), np.int32(-1))
            part.kind = part.kind + np.int32(place)
            first += len(part.kind)
        numbers = {}
        for name in NUMBERS:
            if any(name in part.columns for part in parts):
                numbers[name] = np.concatenate([part.taken(name) for part in parts])
        none: Int32s = np.zeros(0, dtype=np.int32)
        kind = np.concatenate((none, *(part.kind for part in parts)))
        for part in parts:
            part.kind = none
        return cls(np.concatenate((none, *(part.row for part in parts))), kind, numbers, every)

    def taken(self, name: str) -> Int64s:
        """One of the columns, which is not here any more."""
        found = self.columns.pop(name, None)
        return np.full(len(self.kind), NO_NUMBER, dtype=np.int64) if found is None else found

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, event: int) -> Args | None: ...
    @overload
    def __getitem__(self, event: slice) -> list[Args | None]: ...
    def __getitem__(self, event: int | slice) -> Args | list[Args | None] | None:
        if isinstance(event, slice):
            return [self[one] for one in range(*event.indices(len(self)))]
        row = self.row.item(event)
        if row < 0:
            return None
        return self.kinds[self.kind.item(row)]

    def __iter__(self) -> Iterator[Args | None]:
        return (self[event] for event in range(len(self)))

    def alike(self, events: Int64s) -> tuple[list[Args], Int64s]:
        """The arguments of some events without their numbers, each once, and the index of each
        event's among them, int64; those of events without any are empty."""
        kinds = self.kinds_of(events)
        there = np.bincount(kinds + 1, minlength=1) > 0
        known = np.flatnonzero(there)
        index = (np.cumsum(there) - 1)[kinds + 1]
        return [self.kinds[kind - 1] if kind else _NO_ARGS for kind in known.tolist()], index

    def kinds_of(self, events: Int64s) -> Int32s:
        """The index in `kinds` of the arguments of some events, -1 for those without."""
        rows = self.row[events]
        return np.where(rows < 0, np.int32(-1), self.kind[rows]) if len(self.kind) else rows

    def values(self, name: str, events: Int64s) -> list[Any]:
        """One argument of some events, None for those without."""
        kinds, index = self.alike(events)
        alike = [getattr(one, name) for one in kinds]
        places = index.tolist()
        if name not in NUMBERS:
            return [alike[place] for place in places]
        integers = self.integers(name, events)
        return [
            alike[place] if number == NO_NUMBER else number
            for place, number in zip(places, integers.tolist(), strict=True)
        ]

    def integers(self, name: str, events: Int64s) -> Int64s:
        """One of the `NUMBERS` of some events, int64, `NO_NUMBER` for those that have none or have
        it in another form."""
        column = self.columns.get(name)
        if column is None or not len(column):
            return np.full(len(events), NO_NUMBER, dtype=np.int64)
        rows = self.row[events]
        return np.where(rows < 0, NO_NUMBER, column[rows])

    def numbers(self, name: str, events: Int64s, default: int) -> Int64s:
        """One of the `NUMBERS` of some events, int64, however the file writes it; `default` if they
        have none, or one beyond 64 bits."""
        found = self.integers(name, events)
        missing = np.flatnonzero(found == NO_NUMBER)
        if len(missing):
            kinds, index = self.alike(events[missing])
            others = [whole(getattr(one, name), default) for one in kinds]
            kept = [one if abs(one) < _LARGEST else default for one in others]
            found[missing] = np.array(kept, dtype=np.int64)[index]
        return found

    def has_only_integers(self, name: str, events: Int64s) -> bool:
        """Whether no event has an argument in another form than as a column."""
        return all(getattr(one, name) is None for one in self.alike(events)[0])

    def set_integers(self, name: str, events: Int64s, numbers: Int64s) -> None:
        """Give events that have arguments a number of theirs."""
        column = self.columns[name] = self.taken(name)
        column[self.row[events]] = numbers


def known_numbers(numbers: Sequence[Int64s]) -> dict[str, Int64s]:
    """The columns of the `NUMBERS` that any event has."""
    return {
        name: column
        for name, column in zip(NUMBERS, numbers, strict=True)
        if (column != NO_NUMBER).any()
    }


def _number(args: Args, name: str) -> int:
    value = getattr(args, name)
    return value if type(value) is int and -_LARGEST < value < _LARGEST else NO_NUMBER
