"""ONNX Runtime's profile files, read line by line.

ONNX Runtime writes one JSON array per session, one event per line: `Node` events as nodes finish,
then `SequentialExecutor::Execute` and `model_run` when the run does. Times are integer µs since
the session's profiling start, which is CLOCK_REALTIME. A file at the cap of 1,000,000 events ends
with a `profile_truncated` event (onnxruntime 1.31; older versions only log it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profiler.errors import InputError
from profiler.events import UNKNOWN

__all__ = ["EVENT_CAP", "NodeEvent", "ProfiledRun", "read_profile"]

EVENT_CAP = 1_000_000  # onnxruntime/core/common/profiler.h: max_num_events_
_KERNEL_SUFFIX = "_kernel_time"


class _Args(msgspec.Struct):
    op_name: str = ""
    provider: str = ""
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    parameter_size: str = ""
    activation_size: str = ""
    output_size: str = ""
    mem_bytes_in_use: str = ""
    max_num_events: msgspec.Raw = msgspec.Raw(b"")
    dropped_event_count: msgspec.Raw = msgspec.Raw(b"")


class _Event(msgspec.Struct):
    name: str
    cat: str = ""
    ts: int = 0
    dur: int = 0
    tid: int = 0
    args: _Args | None = None


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One executed node. `start_ns` is relative to the session's profiling start; bytes are -1
    where ONNX Runtime gave none; `arena_bytes` is what the session's arena holds after it."""

    name: str
    op_type: str
    provider: str
    thread: int
    start_ns: int
    duration_ns: int
    bytes_read: int
    bytes_written: int
    arena_bytes: int
    shapes: str


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One `session.run`: its window, relative to the profiling start, and its nodes in order of
    completion. `dropped` counts events that ONNX Runtime did not record in or after this run."""

    start_ns: int
    duration_ns: int
    nodes: list[NodeEvent] = field(default_factory=list)
    dropped: int = 0


def read_profile(path: Path) -> Iterator[ProfiledRun]:
    """Read the runs of one session, in order. Raises InputError where a line is no event.

    Nodes of a run that never finished, and a truncation marker, come as a last run whose
    `duration_ns` is -1.
    """
    decoder = msgspec.json.Decoder(_Event)
    shapes: dict[bytes, str] = {}
    nodes: list[NodeEvent] = []
    dropped = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.strip().rstrip(b",")
            if text in (b"[", b"]", b""):
                continue
            try:
                event = decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                remedy = "the profile was cut or is not ONNX Runtime's: run again"
                raise InputError(
                    f"{path} line {number} is no profile event ({error}): {remedy}"
                ) from error
            if event.cat == "Node" and event.args and event.name.endswith(_KERNEL_SUFFIX):
                nodes.append(_node(event, event.args, shapes))
            elif event.name == "model_run":
                yield ProfiledRun(event.ts * 1000, event.dur * 1000, nodes)
                nodes = []
            elif event.name == "profile_truncated" and event.args:
                dropped = _integer(bytes(event.args.dropped_event_count).strip(b'"').decode())
    if nodes or dropped:
        yield ProfiledRun(nodes[0].start_ns if nodes else 0, UNKNOWN, nodes, max(dropped, 0))


def _node(event: _Event, args: _Args, shapes: dict[bytes, str]) -> NodeEvent:
    parameters, activations = _integer(args.parameter_size), _integer(args.activation_size)
    known = parameters >= 0 or activations >= 0
    inputs, outputs = bytes(args.input_type_shape), bytes(args.output_type_shape)
    key = inputs + b">" + outputs
    text = shapes.get(key)
    if text is None:
        text = shapes[key] = f"{_shapes(inputs)} -> {_shapes(outputs)}"
    return NodeEvent(
        name=event.name.removesuffix(_KERNEL_SUFFIX),
        op_type=args.op_name,
        provider=args.provider,
        thread=event.tid,
        start_ns=event.ts * 1000,
        duration_ns=event.dur * 1000,
        bytes_read=max(parameters, 0) + max(activations, 0) if known else UNKNOWN,
        bytes_written=_integer(args.output_size),
        arena_bytes=_integer(args.mem_bytes_in_use),
        shapes=text,
    )


def _integer(text: str) -> int:
    return int(text) if text.isdigit() else UNKNOWN


def _shapes(raw: bytes) -> str:
    """`[{"float":[2,77,64]},{"int64":[1]}]` → `float[2,77,64] int64[1]`."""
    entries = msgspec.json.decode(raw)
    return " ".join(
        f"{dtype}[{','.join(map(str, dims))}]" for entry in entries for dtype, dims in entry.items()
    )
