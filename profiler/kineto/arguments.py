"""The arguments of torch.profiler's events as columns.

A file has millions of events, and most arguments equal those of another event except a few numbers:
events share one `Args`, and the numbers are columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, overload

import msgspec
import numpy as np

from profiler.files import decoded
from profiler.kineto.operators import Scalar
from profiler.trace.columns import Int32s, Int64s

_LARGEST_FRACTION = 1e9


def whole(value: Scalar, default: int) -> int:
    """A value as an integer, which files write in several ways; `default` if it is not one."""
    try:
        return int(value) if value is not None else default
    except (TypeError, ValueError, OverflowError):
        return default


def fraction(value: Scalar) -> float | None:
    """A value as a non-negative number, which files write in several ways; None if it is not
    one."""
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
        "op_type": "OP Type",
    },
):
    """The parts of an event's `args` that are read; `dims` to `grid` are JSON, not decoded.
    `changed` to `reserved` are those of allocations, `sequence` and `forward_thread` autograd's;
    `finished` is false if an event had not ended; `launch_id` is torch-rbln's `correlation`;
    `collective` exists for some kernels, `occupancy` to `warps` for CUDA's; `copied` is the
    direction of a copy if its name lacks it (`direction`, with `size`, on MTIA), `node` the place
    of work in its CUDA graph, and `annotation` or `name` the user's name for that; `op_type` is
    the type that Ascend's tables have of a kernel."""

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
    op_type: Scalar = None
    direction: Any = None
    size: Any = None


NUMBERS = ("external_id", "correlation", "launch_id", "sequence")
"""The arguments that differ from event to event: columns if they are integers."""
RAW = ("dims", "types", "values", "grid")
"""The arguments that are JSON, not decoded."""
OF_MTIA = ("direction", "size")
"""The arguments of Meta's MTIA, whose events are decoded one by one."""
NO_NUMBER = np.iinfo(np.int64).min
_LARGEST = 1 << 63
_NO_ARGS = Args()


class Arguments(Sequence[Args | None]):
    """The arguments of n events, None for events without any. The `NUMBERS` are columns, and None
    in an `Args` that several events share.

    `row`, int32 [n], is an event's row in `kind` and `columns`, -1 for none; `kind`, int32 [m],
    indexes `kinds`; `columns` are int64 [m] by name. `NO_NUMBER`, or a missing column, means that
    the value is that of the kind.
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
        """Build the columns from single arguments."""
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
        """Concatenate the arguments of the parts of a file, and empty the parts, so that nothing is
        in memory twice. Parts may share their kinds."""
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
        """Remove a column and return it."""
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
        """The distinct arguments of some events without their numbers, and the index of each
        event's, int64; empty arguments for events without any."""
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
        """The values of one argument of some events, None if missing."""
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
        """The values of one of the `NUMBERS` for some events, int64; `NO_NUMBER` if missing or in
        another form."""
        column = self.columns.get(name)
        if column is None or not len(column):
            return np.full(len(events), NO_NUMBER, dtype=np.int64)
        rows = self.row[events]
        return np.where(rows < 0, NO_NUMBER, column[rows])

    def numbers(self, name: str, events: Int64s, default: int) -> Int64s:
        """The values of one of the `NUMBERS` for some events, int64, however the file writes them;
        `default` if missing, or beyond 64 bits."""
        found = self.integers(name, events)
        missing = np.flatnonzero(found == NO_NUMBER)
        if len(missing):
            kinds, index = self.alike(events[missing])
            others = [whole(getattr(one, name), default) for one in kinds]
            kept = [one if abs(one) < _LARGEST else default for one in others]
            found[missing] = np.array(kept, dtype=np.int64)[index]
        return found

    def has_only_integers(self, name: str, events: Int64s) -> bool:
        """Whether all events have this argument as a column value, or not at all."""
        return all(getattr(one, name) is None for one in self.alike(events)[0])

    def set_integers(self, name: str, events: Int64s, numbers: Int64s) -> None:
        """Set one of the `NUMBERS` of some events, which must have arguments."""
        column = self.columns[name] = self.taken(name)
        column[self.row[events]] = numbers


def known_numbers(numbers: Sequence[Int64s]) -> dict[str, Int64s]:
    """The columns of those `NUMBERS` that any event has, by name."""
    return {
        name: column
        for name, column in zip(NUMBERS, numbers, strict=True)
        if (column != NO_NUMBER).any()
    }


def _number(args: Args, name: str) -> int:
    value = getattr(args, name)
    return value if type(value) is int and -_LARGEST < value < _LARGEST else NO_NUMBER


def node_name(args: Args) -> str:
    """The name that the user gave to a CUDA graph node's part (`mark_kernels` of torch ≥ 2.14); the
    innermost if there are several, "" if none."""
    if args.node is None:
        return ""
    name, text = args.name, args.annotation
    if isinstance(text, str):
        try:
            several = decoded(text, list[dict[str, Scalar]])
        except msgspec.MsgspecError:
            return text
        name = next((one["name"] for one in reversed(several) if "name" in one), name)
    return name if isinstance(name, str) else ""
