"""ONNX Runtime's profile files, read line by line.

ONNX Runtime writes one JSON array per session, one event per line: `Node` events as nodes finish,
then `SequentialExecutor::Execute` and `model_run` when the run does. Times are integer µs since
the session's profiling start, which is CLOCK_REALTIME. A file at the cap of 1,000,000 events ends
with a `profile_truncated` event (onnxruntime 1.31; older versions only log it).

`tid` is the operating system's number of the thread. A run's nodes have that of its `model_run`,
unless the session executes in parallel (`ORT_PARALLEL`), which hands nodes to further threads. A
run that ONNX Runtime refuses (an input's dims are wrong) leaves no event; one that ends early (a
node fails, `RunOptions.terminate`) leaves its `model_run` and the nodes that had finished.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from profiler.errors import InputError
from profiler.events import UNKNOWN
from profiler.trace.unpack import may_unpack_to, too_small

__all__ = ["EVENT_CAP", "NodeEvent", "ProfiledRun", "Unread", "read_profile"]

EVENT_CAP = 1_000_000  # onnxruntime/core/common/profiler.h: max_num_events_
_KERNEL_SUFFIX = "_kernel_time"
_RUN = "model_run"
_GZIP = b"\x1f\x8b"
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError)
_Microseconds = Annotated[int, msgspec.Meta(gt=-(1 << 50), lt=1 << 50)]  # 35 years: ns fit int64
_DIGITS = 18  # of a number of bytes
_SLACK = 2_000  # ns: begins and durations are cut to whole µs


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
    ts: _Microseconds = 0
    dur: _Microseconds = 0
    tid: int = 0
    args: _Args | None = None


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One executed node. `start_ns` is relative to the session's profiling start; bytes are -1
    where ONNX Runtime gave none; `arena_bytes` is what the arena of the node's provider holds
    after it."""

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
    """One `session.run` on `thread`: its window, relative to the profiling start, and its nodes in
    order of completion. `mixed`: nodes of runs that overlapped cannot be told apart, so it has
    none. `dropped` counts events that ONNX Runtime did not record in or after this run."""

    start_ns: int
    duration_ns: int
    thread: int = 0
    nodes: list[NodeEvent] = field(default_factory=list)
    mixed: bool = False
    dropped: int = 0

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass(slots=True)
class Unread:
    """What of a profile is left out: `lines` that are no events, `kernels` of GPUs, whose begins
    ONNX Runtime computes from their ends."""

    lines: int = 0
    kernels: int = 0


def read_profile(path: Path, unread: Unread | None = None) -> Iterator[ProfiledRun]:
    """Read the runs of one session, in order of their ends. Raises InputError where a line is no
    event, unless `unread` is there to count it.

    Nodes that belong to no run are left out, but for those after the last run: they, and a
    truncation marker, come as a last run whose `duration_ns` is -1.
    """
    tolerant = None if unread is None else Unread()
    threads = iter(_threads_of_overlapping(path, tolerant))
    shapes: dict[bytes, str] = {}
    nodes: list[NodeEvent] = []
    dropped = 0
    for event in _events(path, unread):
        if event.cat == "Kernel" and unread is not None:
            unread.kernels += 1
        elif event.cat == "Node" and event.args and event.name.endswith(_KERNEL_SUFFIX):
            nodes.append(_node(event, event.args, shapes))
        elif event.name == _RUN:
            run, nodes = _cut(event, nodes, next(threads))
            yield run
        elif event.name == "profile_truncated" and event.args:
            count = bytes(event.args.dropped_event_count).strip(b'"')
            dropped = _integer(count.decode("utf-8", "replace"))
    if nodes or dropped:
        start = nodes[0].start_ns if nodes else 0
        yield ProfiledRun(start, UNKNOWN, nodes=nodes, dropped=max(dropped, 0))


def _events(path: Path, unread: Unread | None, containing: bytes = b"") -> Iterator[_Event]:
    """The events of the lines that contain those bytes; a line may be the whole array."""
    event, array = msgspec.json.Decoder(_Event), msgspec.json.Decoder(list[_Event])
    for number, line in _lines(path, unread):
        text = line.strip().rstrip(b",")
        if text in (b"[", b"]", b"") or containing not in text:
            continue
        try:
            for one in array.decode(text) if text.startswith(b"[") else (event.decode(text),):
                if one.dur < 0 and one.cat != "Kernel":
                    raise msgspec.ValidationError("it ends before it begins")
                yield one
        except _BROKEN as error:
            if unread is None:
                advice = "the profile was cut or is not ONNX Runtime's: run again"
                raise InputError(
                    f"{path} line {number} is no profile event ({error}): {advice}"
                ) from error
            unread.lines += 1


def _lines(path: Path, unread: Unread | None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, plain or gzip, with their numbers; of a cut one those before the cut."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        try:
            yield from enumerate(_unpacked(path, file) if packed else file, 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if unread is None:
                raise InputError(f"{path} is damaged ({error}): copy it again") from error
            unread.lines += 1


def _unpacked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The lines of a gzip file, never more of one than the file may hold. Raises InputError."""
    left = may_unpack_to(path.stat().st_size)
    with gzip.GzipFile(fileobj=file) as stream:
        while line := stream.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise too_small(str(path))
            yield line


def _threads_of_overlapping(path: Path, unread: Unread | None) -> list[frozenset[int] | None]:
    """For each run in order of the file: the threads of the runs that it overlaps, directly or
    through others, its own among them; None where it overlaps none."""
    runs = [event for event in _events(path, unread, _RUN.encode()) if event.name == _RUN]
    by_start = sorted(range(len(runs)), key=lambda i: runs[i].ts)
    found: list[frozenset[int] | None] = [None] * len(runs)
    together: list[int] = []
    end = -1
    for position in [*by_start, -1]:
        if position < 0 or runs[position].ts * 1000 >= end * 1000 + _SLACK:
            threads = frozenset(runs[i].tid for i in together)
            if len(threads) > 1:
                for i in together:
                    found[i] = threads
            together = []
        if position >= 0:
            together.append(position)
            end = max(end, runs[position].ts + runs[position].dur)
    return found


def _cut(
    event: _Event, nodes: list[NodeEvent], threads: frozenset[int] | None
) -> tuple[ProfiledRun, list[NodeEvent]]:
    """The run that has ended, and which of the `nodes` before it may belong to others."""
    start, end = event.ts * 1000, (event.ts + event.dur) * 1000
    inside = [
        node
        for node in nodes
        if node.start_ns >= start - _SLACK and node.start_ns + node.duration_ns <= end + _SLACK
    ]
    if threads is None:
        return ProfiledRun(start, end - start, event.tid, inside), []
    mixed = any(node.thread not in threads for node in inside)
    own = [] if mixed else [node for node in inside if node.thread == event.tid]
    others = [node for node in nodes if node.thread != event.tid]
    return ProfiledRun(start, end - start, event.tid, own, mixed), others


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
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else UNKNOWN


def _shapes(raw: bytes) -> str:
    """`[{"float":[2,77,64]},{"int64":[1]}]` → `float[2,77,64] int64[1]`; "" for anything else."""
    try:
        entries = msgspec.json.decode(raw, type=list[dict[str, list[int]]])
    except _BROKEN:
        return ""
    return " ".join(
        f"{dtype}[{','.join(map(str, dims))}]" for entry in entries for dtype, dims in entry.items()
    )
