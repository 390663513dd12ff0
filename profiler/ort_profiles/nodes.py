"""Executed nodes as columns: what all executions of a node share stands once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.events import UNKNOWN
from profiler.ort_profiles.event import Event
from profiler.trace import _core
from profiler.trace.columns import Int32s, Int64s
from profiler.typed_json import decoded

__all__ = ["NodeColumns", "NodeKind", "NodeRows", "node_name"]

_KERNEL_SUFFIX = "_kernel_time"
_DIGITS = 18  # of a number of bytes
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


class NodeRows:
    """Collects the executed nodes of a profile, and counts the `events` that it saw."""

    def __init__(self) -> None:
        self.events = 0
        self._table = _core.ProfileNodes()
        self._shapes: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._table)

    def scan(self, text: bytes) -> list[tuple[int, int, int]] | None:
        """Append the nodes of a text with events apart by commas. Returns, of each kernel, run and
        mark of a full profile, how many nodes lie ahead and where its text begins and ends; None,
        and nothing is appended, where the text must be read event by event."""
        found = self._table.scan(text)
        if found is None:
            return None
        self.events += found[0]
        return found[1]

    def add(self, event: Event) -> bool:
        """Append one event, if it is an executed node. Returns whether it is."""
        self.events += 1
        args = event.args
        if args is None or event.cat != "Node" or not event.name.endswith(_KERNEL_SUFFIX):
            return False
        self._table.add(
            name=event.name,
            op_name=args.op_name,
            provider=args.provider,
            parameter_size=args.parameter_size,
            activation_size=args.activation_size,
            output_size=args.output_size,
            inputs=bytes(args.input_type_shape),
            outputs=bytes(args.output_type_shape),
            thread=event.tid,
            start=event.ts,
            duration=event.dur,
            in_use=args.mem_bytes_in_use,
        )
        return True

    def last(self, count: int) -> tuple[str, int] | None:
        """Name, as events spell it, and begin in µs of the last of so many nodes."""
        return self._table.node(count - 1) if count else None

    def columns(self) -> NodeColumns:
        """All of them, which are not here any more."""
        kind, thread, start, duration, arena = self._table.columns()
        keys = self._table.kinds()
        used = np.bincount(kind, minlength=len(keys)) > 0  # not those of a text that was refused
        kinds = [self._kind(keys[code]) for code in np.flatnonzero(used).tolist()]
        if not used.all():
            kind = (np.cumsum(used) - 1).astype(np.int32)[kind]
        return NodeColumns(kinds, kind, thread, start * 1000, duration * 1000, arena)

    def _kind(self, key: _Key) -> NodeKind:
        name, op_type, provider, parameter_size, activation_size, output_size, inputs, outputs = key
        parameters, activations = _integer(parameter_size), _integer(activation_size)
        known = parameters >= 0 or activations >= 0
        shaped = inputs + b">" + outputs
        text = self._shapes.get(shaped)
        if text is None:
            text = self._shapes[shaped] = f"{_shapes(inputs)} -> {_shapes(outputs)}"
        return NodeKind(
            name=node_name(name),
            op_type=op_type,
            provider=provider,
            bytes_read=max(parameters, 0) + max(activations, 0) if known else UNKNOWN,
            bytes_written=_integer(output_size),
            shapes=text,
        )


def node_name(name: str) -> str:
    """What the node is called of which an event has this name."""
    return name.removesuffix(_KERNEL_SUFFIX)


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else UNKNOWN


def _shapes(raw: bytes) -> str:
    """`[{"float":[2,77,64]},{"int64":[1]}]` → `float[2,77,64] int64[1]`; "" for anything else."""
    try:
        entries = decoded(raw, list[dict[str, list[int]]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return " ".join(
        f"{dtype}[{','.join(map(str, dims))}]" for entry in entries for dtype, dims in entry.items()
    )
