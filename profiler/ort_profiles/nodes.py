"""Executed nodes as columns: what all executions of a node share stands once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from profiler.events import UNKNOWN
from profiler.ort_profiles.lines import Args, Event
from profiler.trace.columns import Int32s, Int64s

__all__ = ["NodeColumns", "NodeKind", "NodeRows", "node_name", "nodes_of"]

_KERNEL_SUFFIX = "_kernel_time"
_DIGITS = 18  # of a number of bytes
_SIZES = 1 << 12  # texts of such numbers that are kept
_IN_USE = attrgetter("args.mem_bytes_in_use")
_NUMBERS = tuple(map(attrgetter, ("tid", "ts", "dur")))
_Key = tuple[str, str, str, str, str, str, bytes, bytes]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What executions of a node have in common; bytes are -1 where ONNX Runtime gave none."""

    name: str
    op_type: str
    provider: str
    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN
    shapes: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """n executed nodes in order of completion: `kind` indexes `kinds`, which all runs of a profile
    share. Times are ns since the session's profiling start; `arena_bytes` is what the arena of the
    node's provider holds after it, -1 where that is not told."""

    kinds: Sequence[NodeKind] = ()
    kind: Int32s = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    thread: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    start_ns: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    duration_ns: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    arena_bytes: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.start_ns)

    def each(self) -> Iterator[NodeKind]:
        """What each node is, in order."""
        return map(self.kinds.__getitem__, self.kind.tolist())

    def there(self) -> Iterator[NodeKind]:
        """What its nodes are, each once."""
        return map(self.kinds.__getitem__, np.unique(self.kind).tolist())

    def rows(self, picked: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> NodeColumns:
        """Some of them."""
        return NodeColumns(
            self.kinds,
            self.kind[picked],
            self.thread[picked],
            self.start_ns[picked],
            self.duration_ns[picked],
            self.arena_bytes[picked],
        )

    @classmethod
    def joined(cls, parts: Sequence[NodeColumns]) -> NodeColumns:
        """Nodes of several runs of one profile."""
        if len(parts) < 2:
            return parts[0] if parts else cls()
        return cls(
            parts[0].kinds,
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.thread for part in parts]),
            np.concatenate([part.start_ns for part in parts]),
            np.concatenate([part.duration_ns for part in parts]),
            np.concatenate([part.arena_bytes for part in parts]),
        )


class _Kinds(dict[_Key, int]):
    """The code of each kind; a new one gets the next."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[NodeKind] = []
        self._shapes: dict[bytes, str] = {}
        self._last: dict[str, tuple[Args, int]] = {}

    def codes(self, events: Sequence[Event]) -> list[int]:
        """The codes of some nodes' kinds. Most executions of a node are as its last one was, but
        for the memory in use, and comparing them takes a tenth of what a key does that has to be
        made first."""
        last, found = self._last, []
        for event in events:
            args, known = event.args, last.get(event.name)
            if known is not None and args is not None:
                known[0].mem_bytes_in_use = args.mem_bytes_in_use
                if args == known[0]:
                    found.append(known[1])
                    continue
            last[event.name] = known = self._seen(event)
            found.append(known[1])
        return found

    def _seen(self, event: Event) -> tuple[Args, int]:
        """What is kept of a node's execution: its arguments, whose texts are no part of the file's
        any more, and its code."""
        args = event.args or Args()
        inputs, outputs = args.input_type_shape.copy(), args.output_type_shape.copy()
        key = (
            *(event.name, args.op_name, args.provider),
            *(args.parameter_size, args.activation_size, args.output_size),
            *(bytes(inputs), bytes(outputs)),
        )
        kept = structs.replace(args, input_type_shape=inputs, output_type_shape=outputs)
        return kept, self[key]

    def __missing__(self, key: _Key) -> int:
        code = self[key] = len(self.kinds)
        self.kinds.append(self._kind(key))
        return code

    def _kind(self, key: _Key) -> NodeKind:
        name, op_type, provider, parameter_size, activation_size, output_size, inputs, outputs = key
        parameters, activations = _integer(parameter_size), _integer(activation_size)
        known = parameters >= 0 or activations >= 0
        shaped = inputs + b">" + outputs
        text = self._shapes.get(shaped)
        if text is None:
            text = self._shapes[shaped] = f"{_shapes(inputs)} -> {_shapes(outputs)}"
        return NodeKind(
            name=name.removesuffix(_KERNEL_SUFFIX),
            op_type=op_type,
            provider=provider,
            bytes_read=max(parameters, 0) + max(activations, 0) if known else UNKNOWN,
            bytes_written=_integer(output_size),
            shapes=text,
        )


class _Sizes(dict[str, int]):
    """Numbers of bytes by their text."""

    def __missing__(self, text: str) -> int:
        found = self[text] = _integer(text)
        return found


class NodeRows:
    """Collects the nodes among events."""

    def __init__(self) -> None:
        self.count = 0
        self._kinds = _Kinds()
        self._sizes = _Sizes()
        self._parts: list[tuple[Int32s, Int64s]] = []

    def add(self, events: Sequence[Event]) -> None:
        """Append some events that are executed nodes."""
        if not events:
            return
        if len(self._sizes) > _SIZES:
            self._sizes.clear()
        table = np.empty((4, len(events)), dtype=np.int64)
        for row, values in zip(table[:3], _NUMBERS, strict=True):
            row[:] = np.fromiter(map(values, events), dtype=np.int64, count=len(events))
        sizes = map(self._sizes.__getitem__, map(_IN_USE, events))
        table[3] = np.fromiter(sizes, dtype=np.int64, count=len(events))
        self._parts.append((np.array(self._kinds.codes(events), dtype=np.int32), table))
        self.count += len(events)

    def columns(self) -> NodeColumns:
        """All of them."""
        if not self._parts:
            return NodeColumns(self._kinds.kinds)
        thread, start, duration, arena = np.concatenate([part for _, part in self._parts], axis=1)
        kind = np.concatenate([part for part, _ in self._parts])
        return NodeColumns(self._kinds.kinds, kind, thread, start * 1000, duration * 1000, arena)


def node_name(event: Event) -> str:
    """What the node is called of which this is the event."""
    return event.name.removesuffix(_KERNEL_SUFFIX)


def nodes_of(events: Sequence[Event]) -> list[Event]:
    """Those events that are executed nodes."""
    return [
        event
        for event in events
        if event.cat == "Node" and event.name.endswith(_KERNEL_SUFFIX) and event.args is not None
    ]


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else UNKNOWN


def _shapes(raw: bytes) -> str:
    """`[{"float":[2,77,64]},{"int64":[1]}]` → `float[2,77,64] int64[1]`; "" for anything else."""
    try:
        entries = msgspec.json.decode(raw, type=list[dict[str, list[int]]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return " ".join(
        f"{dtype}[{','.join(map(str, dims))}]" for entry in entries for dtype, dims in entry.items()
    )
