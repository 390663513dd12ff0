"""Read ONNX Runtime profile files: runs of a session, executed nodes, providers.

    table = CommandTable(kinds, of_kind)            # for all runs of a profile
    table.commands(run.nodes, origin_ns)            # CommandColumns

A file is one JSON array per session with one event per line: `Node` events, then
`SequentialExecutor::Execute` and `model_run`. Times are integer µs since the profile's start
(CLOCK_REALTIME). A file ends at 1,000,000 events. A run that is refused leaves no event; one
that ends early leaves its `model_run` and its finished nodes. `trace/core/profile_nodes.cpp`
reads most nodes by the same rules.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.errors import InputError
from profiler.files import decoded, decoder_of, opened, size_of
from profiler.trace import _core
from profiler.trace.columns import CommandColumns, Int32s, Int64s, numbered
from profiler.trace.compression import may_unpack_to, too_small
from profiler.trace.events import NO_STEP, ROOT_DEVICE, UNKNOWN, Track

# --- An event of ONNX Runtime's profiles in JSON, and GPU work in them.


_Microseconds = Annotated[int, msgspec.Meta(gt=-(1 << 50), lt=1 << 50)]  # 35 years: ns fit int64
_NO_TIME = 1 - (1 << 50)  # of an event that lacks it
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]


class Args(msgspec.Struct, gc=False):
    """The parts of an event's arguments that are read."""

    op_name: str = ""
    provider: str = ""
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    parameter_size: str = ""
    activation_size: str = ""
    output_size: str = ""
    mem_bytes_in_use: str = ""
    dropped_event_count: msgspec.Raw = msgspec.Raw(b"")
    stream: msgspec.Raw = msgspec.Raw(b"")
    parent_name: str = ""


class Event(msgspec.Struct, gc=False):
    """An event; times are µs since the profile's start."""

    name: str
    cat: str = ""
    ts: _Microseconds = _NO_TIME
    dur: _Microseconds = _NO_TIME
    tid: _Number = 0
    args: Args | None = None


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """A GPU kernel, in ns since the profile's start. `parent` is the node that launched it, by
    start and name, None if unknown. ONNX Runtime up to 1.9 recorded a kernel's end as its start."""

    name: str
    op_type: str
    stream: str
    start_ns: int
    duration_ns: int
    parent: tuple[int, str] | None


@dataclass(slots=True)
class Unread:
    """The parts of a profile outside its runs: the number of `lines` that are not events, of
    `nodes` in no run, and GPU kernels; and the number of `events` that ONNX Runtime recorded
    itself, `EVENT_CAP` at most."""

    lines: int = 0
    events: int = 0
    nodes: int = 0
    kernels: list[KernelEvent] = field(default_factory=list)


# --- Executed nodes as columns: values that all executions of a node share are stored once.


_KERNEL_SUFFIX = "_kernel_time"
_DIGITS = 18  # of a number of bytes
_Key = tuple[str, str, str, str, str, str, bytes, bytes]
_COLUMNS = ("kind", "thread", "start_ns", "duration_ns", "arena_bytes")


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The values that all executions of a node share; bytes are -1 if ONNX Runtime gave none."""

    name: str
    op_type: str
    provider: str
    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN
    shapes: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """n executed nodes in order of completion: `kind` indexes `kinds`, which all runs of a profile
    share. Times are ns since the session's profiling start; a length is negative if the file has
    none. `arena_bytes` are those in the arena of the node's provider after it, -1 if unknown."""

    kinds: Sequence[NodeKind] = ()
    kind: Int32s = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    thread: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    start_ns: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    duration_ns: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    arena_bytes: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.start_ns)

    def each(self) -> Iterator[NodeKind]:
        """The kind of each node, in order."""
        return map(self.kinds.__getitem__, self.kind.tolist())

    def there(self) -> Iterator[NodeKind]:
        """The distinct kinds of the nodes."""
        return map(self.kinds.__getitem__, np.unique(self.kind).tolist())

    def rows(self, picked: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> NodeColumns:
        """The picked nodes."""
        return NodeColumns(self.kinds, *(getattr(self, name)[picked] for name in _COLUMNS))

    @classmethod
    def joined(cls, parts: Sequence[NodeColumns]) -> NodeColumns:
        """Concatenate the nodes of several runs of one profile."""
        if len(parts) < 2:
            return parts[0] if parts else cls()
        columns = ([getattr(part, name) for part in parts] for name in _COLUMNS)
        return cls(parts[0].kinds, *map(np.concatenate, columns))


class NodeRows:
    """Collects the executed nodes of a profile, and counts all `events`."""

    def __init__(self) -> None:
        self.events = 0
        self._table = _core.ProfileNodes()
        self._shapes: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._table)

    def scan(self, text: bytes) -> list[tuple[int, int, int]] | None:
        """Append the nodes of a text of comma-separated events. Returns for each other event
        (kernel, run, mark of a full profile) the number of nodes before it and the start and end of
        its text. None, and nothing is appended, if the text must be read event by event."""
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
        last = self.last(len(self))
        timed = _NO_TIME not in (event.ts, event.dur)
        begun = event.ts
        if begun == _NO_TIME:
            begun = last[1] if last else 0
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
            start=begun,
            duration=event.dur if timed else UNKNOWN,
            in_use=args.mem_bytes_in_use,
        )
        return True

    def last(self, count: int) -> tuple[str, int] | None:
        """Name, as in its event, and start in µs of the last of the first `count` nodes."""
        return self._table.node(count - 1) if count else None

    def columns(self) -> NodeColumns:
        """Take all nodes out as columns."""
        kind, thread, start, duration, arena = self._table.columns()
        keys = self._table.kinds()
        used = np.bincount(kind, minlength=len(keys)) > 0  # not those of a refused text
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
    """The name of the node in an event with this name."""
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


# --- Executed nodes as commands: the layer and track of each node are looked up once, however often
# it was executed.


_TEXTS = ("layer", "op_type", "shapes", "module", "kernel")
_NO_FLOWS: Int64s = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Placed:
    """The command of a node: `track` is for the first executor thread with such nodes, further
    threads get tracks of their own."""

    track: Track
    layer: str
    module: str = ""
    command_index: int = UNKNOWN
    kernel: str = ""


_Said = tuple[Int32s, tuple[str, ...], dict[str, Int32s], Int32s]


class CommandTable:
    """Builds the commands of nodes of some `kinds`, with the values of `of_kind`. Runs of the same
    nodes in the same order, as nearly all are, share all columns except times."""

    def __init__(self, kinds: Sequence[NodeKind], of_kind: Callable[[NodeKind], Placed]) -> None:
        self._kinds, self._of_kind = kinds, of_kind
        self._strings, self._places = [""], {"": 0}
        self._tracks: dict[Track, int] = {}
        self._codes = np.full((len(kinds), len(_TEXTS)), -1, dtype=np.int64)
        self._numbers = np.zeros((len(kinds), 4), dtype=np.int64)
        self._last: _Said | None = None

    def commands(
        self, nodes: NodeColumns, origin_ns: int, flows: Int64s | None = None
    ) -> CommandColumns:
        """The commands of some executions; `origin_ns` is the profile's start on the run's clock,
        `flows` are pairs of launching and launched node, int64 [m, 2]."""
        self._know(nodes.kind)
        tracks, track = self._threads(self._numbers[nodes.kind, 0], nodes.thread)
        order = np.argsort(nodes.start_ns, kind="stable")
        kind, strings, text, command_index = self._said(nodes.kind[order])
        none: Int32s = np.zeros(len(kind), dtype=np.int32)
        module = text["module"] if text["module"].any() else None
        return CommandColumns(
            tracks=tracks,
            strings=strings,
            track=track[order],
            layer=text["layer"],
            command_index=command_index,
            op_type=text["op_type"],
            role=none,
            shapes=text["shapes"],
            stage=none,
            step=np.full(len(kind), NO_STEP, dtype=np.int32),
            start_ns=nodes.start_ns[order] + origin_ns,
            duration_ns=nodes.duration_ns[order],
            bytes_read=self._numbers[kind, 2],
            bytes_written=self._numbers[kind, 3],
            flops=np.full(len(kind), UNKNOWN, dtype=np.int64),
            flows=_NO_FLOWS if flows is None or not len(flows) else np.argsort(order)[flows],
            kernel=text["kernel"] if text["kernel"].any() else None,
            module=module,
            name=module,
        )

    def _said(self, kind: Int32s) -> _Said:
        """The columns of these commands that do not depend on time; those of the last run if it had
        the same kinds."""
        if self._last is None or not np.array_equal(self._last[0], kind):
            codes = self._codes[kind]
            used = np.zeros(len(self._strings), dtype=np.bool_)
            used[0] = True
            used[codes] = True
            place = (np.cumsum(used) - 1).astype(np.int32)
            strings = tuple(map(self._strings.__getitem__, np.flatnonzero(used).tolist()))
            columns = map(np.ascontiguousarray, place[codes].T)
            text: dict[str, Int32s] = dict(zip(_TEXTS, columns, strict=True))
            index = numbered(text["layer"], self._numbers[kind, 1].astype(np.int32))
            self._last = kind, strings, text, index
        return self._last

    def _know(self, kind: Int32s) -> None:
        """Look up the values of new kinds."""
        unknown = kind[self._codes[kind, 0] < 0]
        for code in np.unique(unknown).tolist() if len(unknown) else ():
            one = self._kinds[code]
            placed = self._of_kind(one)
            shapes = one.shapes if one.shapes.strip(" ->") else ""
            texts = (placed.layer, one.op_type, shapes, placed.module, placed.kernel)
            self._codes[code] = [self._places.setdefault(t, len(self._places)) for t in texts]
            lane = self._tracks.setdefault(placed.track, len(self._tracks))
            self._numbers[code] = lane, placed.command_index, one.bytes_read, one.bytes_written
        if len(self._strings) < len(self._places):
            self._strings = list(self._places)

    def _threads(self, lane: Int64s, thread: Int64s) -> tuple[tuple[Track, ...], Int32s]:
        """The track of each node: its kind's track, with a number per thread, in order of the
        nodes."""
        lanes = list(self._tracks)
        if len(lane) and (lane == lane[0]).all() and (thread == thread[0]).all():
            return (lanes[int(lane[0])],), np.zeros(len(lane), dtype=np.int32)
        threads, of_thread = np.unique(thread, return_inverse=True)
        pair = lane * len(threads) + of_thread.reshape(-1)
        found, first, place = np.unique(pair, return_index=True, return_inverse=True)
        seen: dict[Track, int] = {}
        tracks: list[Track] = []
        code = np.zeros(len(found), dtype=np.int32)
        for position in np.argsort(first).tolist():
            base = lanes[int(found[position]) // len(threads)]
            number = seen[base] = seen.get(base, -1) + 1
            name = f"{base.name} thread {number}" if number else base.name
            code[position] = len(tracks)
            tracks.append(Track(base.device, name, base.category))
        return tuple(tracks), code[place.reshape(-1)]


# --- Reading the events in a profile of ONNX Runtime: blocks of lines by the core, or one by one if
# a line of the block is invalid.


Others = Iterator[tuple[int, Event]]
"""Events that are not nodes, each with the number of nodes before it."""

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 18  # bytes read together
_ELEMENTS = decoder_of(list[msgspec.Raw])
_EVENT, _ARRAY = decoder_of(Event), decoder_of(list[Event])
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_events(path: Path, nodes: NodeRows, unread: Unread | None) -> Others:
    """Read the events of a file in order: nodes are appended to `nodes`, other relevant events are
    yielded. Raises InputError for an invalid line, after all events before it, unless `unread`
    counts it."""
    try:
        for begin, block in _blocks(path):
            others = nodes.scan(block)
            if others is not None:
                yield from _decoded(block, others)
            elif begin == 0 and _spread(block):
                yield from _of_document(path, nodes, unread)
                return
            else:
                yield from _one_by_one(path, block, begin, nodes, unread)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if unread is None:
            raise InputError(f"{path} is damaged ({error}): copy it again") from error
        unread.lines += 1


def _decoded(block: bytes, others: list[tuple[int, int, int]]) -> Others:
    """The events of a block that are not nodes."""
    texts = b",".join([block[begin:end] for _, begin, end in others])
    events = _ARRAY.decode(b"[%b]" % texts)
    return zip((ahead for ahead, *_ in others), events, strict=True)


def _spread(block: bytes) -> bool:
    """Whether events go over several lines, as other tools write them: no line is an event."""
    for line in block.split(b"\n"):
        try:
            if _of_line(line.strip().rstrip(b",")):
                return False
        except _BROKEN:
            continue
    return True


def _of_document(path: Path, nodes: NodeRows, unread: Unread | None) -> Others:
    """Read the events of a whole file, wherever its lines end."""
    block = b"".join(piece for _, piece in _blocks(path))
    others = nodes.scan(block)
    if others is not None:
        yield from _decoded(block, others)
        return
    try:
        elements = _ELEMENTS.decode(block)
    except _BROKEN:
        yield from _one_by_one(path, block, 0, nodes, unread)
    else:
        yield from _each(path, enumerate(elements, 1), "event", nodes, unread)


def _one_by_one(
    path: Path, block: bytes, begin: int, nodes: NodeRows, unread: Unread | None
) -> Others:
    """Read a block line by line; a line may be a whole array. The block starts at byte `begin`."""
    first = 1
    if unread is None and begin:
        ahead = takewhile(lambda found: found[0] < begin, _blocks(path))
        first += sum(piece.count(b"\n") for _, piece in ahead)
    lines = (line.strip().rstrip(b",") for line in block.split(b"\n"))
    yield from _each(path, enumerate(lines, first), "line", nodes, unread)


def _each(
    path: Path,
    texts: Iterable[tuple[int, bytes | msgspec.Raw]],
    what: str,
    nodes: NodeRows,
    unread: Unread | None,
) -> Others:
    """Read the events in numbered texts. Raises InputError for an invalid text, unless `unread`
    counts it."""
    for number, text in texts:
        try:
            events = _of_line(bytes(text))
        except _BROKEN as error:
            if unread is None:
                advice = "the profile was cut or is not ONNX Runtime's: run again"
                raise InputError(
                    f"{path} {what} {number} is no profile event ({error}): {advice}"
                ) from error
            unread.lines += 1
            continue
        for event in events:
            if not nodes.add(event):
                yield len(nodes), event


def _of_line(text: bytes) -> list[Event]:
    if text in (b"[", b"]", b""):
        return []
    events = _ARRAY.decode(text) if text.startswith(b"[") else [_EVENT.decode(text)]
    for event in events:
        timed = _NO_TIME not in (event.ts, event.dur)
        if timed and event.dur < 0 and event.cat != "Kernel":
            raise msgspec.ValidationError("it ends before it begins")
        if not timed and (event.cat == "Kernel" or event.name == _RUN):
            raise msgspec.ValidationError("it has no time")
    return events


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines, each with the byte at which it starts; of a damaged file the
    lines before the damage."""
    at = 0
    begun: list[bytes | memoryview] = []
    for piece in _pieces(path):
        end = piece.rfind(b"\n") + 1
        if not end:
            begun.append(piece)
            continue
        view = memoryview(piece)
        block = b"".join((*begun, view[:end]))
        begun = [view[end:]]
        yield at, block
        at += len(block)
    yield at, b"".join(begun)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield a file, plain or gzip, in pieces, up to the limit of unpacked files. Raises
    InputError."""
    with opened(path) as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if not packed:
            while piece := file.read(_PIECE):
                yield piece
            return
        left = may_unpack_to(size_of(file))
        with gzip.GzipFile(fileobj=file) as stream:
            while piece := stream.read1(_PIECE):  # all data before the damage
                left -= len(piece)
                if left < 0:
                    raise too_small(str(path))
                yield piece


# --- The runs in ONNX Runtime's profile files, and the nodes of each.
#
# At the cap, a file ends with a `profile_truncated` event (onnxruntime 1.31; older versions only
# log it).
#
# `tid` is the OS thread. A run's nodes have that of its `model_run`, unless the session executes in
# parallel (`ORT_PARALLEL`), which passes nodes to further threads. A run that ONNX Runtime refuses
# (an input's dims are wrong) leaves no event; one that ends early (a node fails,
# `RunOptions.terminate`) leaves its `model_run` and the finished nodes.


EVENT_CAP = 1_000_000  # onnxruntime/core/common/profiler.h: max_num_events_
_RUN, _TRUNCATED = "model_run", "profile_truncated"
_SLACK = 2_000  # ns: starts and durations are cut to whole µs


@dataclass(frozen=True, slots=True, eq=False)
class ProfiledRun:
    """One `session.run` on `thread`: its time range, relative to the profiling start, and its nodes
    in order of completion. `mixed`: it has no nodes, since they cannot be distinguished from those
    of an overlapping run. `misfits` are nodes that begin in the run and do not fit into it,
    `unended` those without a time.
    `dropped` counts events that ONNX Runtime did not record in or after this run."""

    start_ns: int
    duration_ns: int
    thread: int = 0
    nodes: NodeColumns = field(default_factory=NodeColumns)
    mixed: bool = False
    dropped: int = 0
    misfits: NodeColumns = field(default_factory=NodeColumns)
    unended: NodeColumns = field(default_factory=NodeColumns)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True)
class _Ended:
    """A `model_run`, in µs, and the number of nodes before it in the file."""

    start: int
    duration: int
    thread: int
    nodes: int


def _kernel(event: Event, last: tuple[str, int] | None) -> KernelEvent:
    """A kernel; its node is the last one before it in the file, if that has the name of its
    parent."""
    args = event.args or Args()
    launched = last is not None and last[0] == args.parent_name
    return KernelEvent(
        name=event.name,
        op_type=args.op_name,
        stream=bytes(args.stream).strip(b'"').decode("utf-8", "replace"),
        start_ns=event.ts * 1000,
        duration_ns=event.dur * 1000,
        parent=(last[1] * 1000, node_name(last[0])) if last is not None and launched else None,
    )


def read_profile(path: Path, unread: Unread | None = None) -> Iterator[ProfiledRun]:
    """Read the runs of one session, in order of their ends. Raises InputError for an invalid line,
    after the runs before it, unless `unread` counts it, which also gets the GPU kernels.

    Nodes outside runs are left out, except those after the last run: these, and a truncation
    marker, come as a last run with `duration_ns` -1.
    """
    rows = NodeRows()
    runs: list[_Ended] = []
    kernels: list[KernelEvent] = []
    dropped = 0
    failure: InputError | None = None
    try:
        for ahead, event in read_events(path, rows, unread):
            if event.cat == "Kernel":
                kernels.append(_kernel(event, rows.last(ahead)))
            elif event.name == _RUN:
                runs.append(_Ended(event.ts, event.dur, event.tid, ahead))
            elif event.name == _TRUNCATED and event.args is not None:
                count = bytes(event.args.dropped_event_count).strip(b'"')
                dropped = int(count) if count.isdigit() and len(count) <= _DIGITS else 0
    except InputError as error:
        failure = error
    if unread is not None:
        unread.kernels += kernels
        unread.events += rows.events - len(kernels)  # kernels are added when recording has ended
    nodes = rows.columns()
    begin, waiting, left = 0, np.zeros(0, dtype=np.intp), len(nodes)
    for run, threads in zip(runs, _threads_of_overlapping(runs), strict=True):
        waiting = np.concatenate((waiting, np.arange(begin, run.nodes)))
        begin = run.nodes
        cut, waiting = _cut(run, nodes, waiting, threads)
        left -= len(cut.nodes) + len(cut.misfits) + len(cut.unended)
        yield cut
    if failure is not None:
        raise failure
    waiting = np.concatenate((waiting, np.arange(begin, len(nodes))))
    if unread is not None:
        unread.nodes += left - len(waiting)
    if len(waiting) or dropped:
        ended = nodes.duration_ns[waiting] >= 0
        rest, unended = nodes.rows(waiting[ended]), nodes.rows(waiting[~ended])
        start = int(rest.start_ns[0]) if len(rest) else 0
        yield ProfiledRun(start, UNKNOWN, nodes=rest, dropped=dropped, unended=unended)


def _threads_of_overlapping(runs: Sequence[_Ended]) -> list[frozenset[int] | None]:
    """For each run in order of the file: the threads of all runs that it overlaps, directly or
    through others, including its own; None if there is no other thread."""
    by_start = sorted(range(len(runs)), key=lambda i: runs[i].start)
    found: list[frozenset[int] | None] = [None] * len(runs)
    together: list[int] = []
    end = -1
    for position in [*by_start, -1]:
        if position < 0 or runs[position].start * 1000 >= end * 1000 + _SLACK:
            threads = frozenset(runs[i].thread for i in together)
            if len(threads) > 1:
                for i in together:
                    found[i] = threads
            together = []
        if position >= 0:
            together.append(position)
            end = max(end, runs[position].start + runs[position].duration)
    return found


def _cut(
    run: _Ended, nodes: NodeColumns, waiting: npt.NDArray[np.intp], threads: frozenset[int] | None
) -> tuple[ProfiledRun, npt.NDArray[np.intp]]:
    """The run, and those of the `waiting` nodes that may belong to other runs."""
    start, end = run.start * 1000, (run.start + run.duration) * 1000
    begins, ended = nodes.start_ns[waiting], nodes.duration_ns[waiting] >= 0
    begun = begins >= start - _SLACK
    fits = begins + nodes.duration_ns[waiting] <= end + _SLACK
    own, mixed = np.ones_like(fits), False
    if threads is not None:
        own = nodes.thread[waiting] == run.thread
        mixed = not np.isin(nodes.thread[waiting[begun & fits]], list(threads)).all()
    inside = waiting[:0] if mixed else waiting[begun & fits & own & ended]
    later = begun & own & (begins < end)
    placed, misfits, unended = map(
        nodes.rows, (inside, waiting[later & ~fits & ended], waiting[later & ~ended])
    )
    cut = ProfiledRun(
        start, end - start, run.thread, placed, mixed, misfits=misfits, unended=unended
    )
    return cut, waiting[~own]


# --- Runs and nodes that no thread can have run: a profile's check, for capture and importers.


NO_THREAD = 0  # of runs whose thread is not known


def once(runs: Sequence[ProfiledRun]) -> list[ProfiledRun]:
    """The runs without duplicates. A thread starts a node, or a run, once at a time and not again
    before it ended."""
    seen: set[tuple[int, int, int]] = set()
    found = []
    for run in runs:
        when = run.thread, run.start_ns, run.duration_ns
        if run.duration_ns > 0 and when in seen:
            continue
        seen.add(when)
        nodes = run.nodes
        if (np.diff(nodes.start_ns) > 0).all():
            found.append(run)
            continue
        columns = np.stack((nodes.kind, nodes.thread, nodes.start_ns, nodes.duration_ns))
        _, first = np.unique(columns, axis=1, return_index=True)
        kept = nodes.duration_ns <= 0
        kept[first] = True
        found.append(run if kept.all() else replace(run, nodes=nodes.rows(kept)))
    return found


def in_turn(runs: Sequence[ProfiledRun]) -> tuple[list[ProfiledRun], int]:
    """The runs, of which a thread has one at a time, and how many are recorded as running past the
    next one's start: these end with their last node."""
    found, longer = list(runs), 0
    order = sorted(range(len(runs)), key=lambda one: (runs[one].thread, runs[one].start_ns))
    for one, following in pairwise(order):
        run, after = runs[one], runs[following]
        if run.thread != after.thread or run.thread == NO_THREAD:
            continue
        if run.end_ns > after.start_ns + _SLACK:
            ended = int((run.nodes.start_ns + run.nodes.duration_ns).max(initial=run.start_ns))
            duration_ns = min(ended, after.start_ns) - run.start_ns
            found[one], longer = replace(run, duration_ns=duration_ns), longer + 1
    return found, longer


def without_misfits(run: ProfiledRun) -> ProfiledRun:
    """The run with nodes that do not fit among its `misfits`: a thread runs one node at a time, or
    one inside another, as those of a loop's body. Of two that cross, the longer one is wrong."""
    nodes = run.nodes
    end = nodes.start_ns + nodes.duration_ns
    order = np.lexsort((-end, nodes.start_ns, nodes.thread))
    thread, start, end = (column[order] for column in (nodes.thread, nodes.start_ns, end))
    if not ((thread[1:] == thread[:-1]) & (start[1:] + _SLACK < end[:-1])).any():
        return run
    misfit = np.zeros(len(order), dtype=np.bool_)
    around: list[tuple[int, int, int, int]] = []  # what a node lies in, outermost first
    columns = (column.tolist() for column in (thread, start, end, order))
    for on, begin, until, row in zip(*columns, strict=True):
        while around and (around[-1][0] != on or around[-1][2] <= begin + _SLACK):
            around.pop()
        while around and around[-1][2] < until - _SLACK and not misfit[row]:
            _, begun, ended, other = around[-1]
            if ended - begun >= until - begin:
                around.pop()
            misfit[other if ended - begun >= until - begin else row] = True
        if not misfit[row]:
            around.append((on, begin, until, row))
    misfits = NodeColumns.joined([run.misfits, nodes.rows(misfit)])
    return replace(run, nodes=nodes.rows(~misfit), misfits=misfits)


# --- The devices of ONNX Runtime's execution providers.


CPU = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
_OLDER = ("DNNL", "MKLDNN", "Nuphar", "NGRAPH")
_ON_HOST = ("CPU", "Azure", "Dnnl", "Xnnpack", "XNNPACK", "ACL", "ArmNN", *_OLDER)
_KINDS = {"Tensorrt": "cuda", "NvTensorRTRTX": "cuda", "CUDA": "cuda", "MIGraphX": "rocm"}
KNOWN = frozenset(
    f"{name}{_SUFFIX}"
    for name in (*_ON_HOST, *_KINDS, "ROCM", "Dml", "OpenVINO", "QNN", "CoreML", "WebGpu", "JS")
)
"""The known providers, by their full names."""


def device_of_provider(provider: str, options: Mapping[str, Any]) -> str:
    """The device of a provider, from the `options` that a session reports for it."""
    name = provider.removesuffix(_SUFFIX)
    if name in _ON_HOST:
        return ROOT_DEVICE
    if name == "OpenVINO":  # its device_type is "CPU", "GPU", "GPU.1", "NPU", "AUTO:GPU,CPU", …
        kind, _, index = str(options.get("device_type") or "CPU").lower().partition(".")
        if kind == "cpu":
            return ROOT_DEVICE
        return f"{kind}:{index or 0}" if kind.isalpha() else "openvino:0"
    return f"{_KINDS.get(name, name.lower())}:{options.get('device_id') or 0}"


def devices_of_session(session: Any) -> dict[str, str]:
    """Device by provider, in the session's order."""
    options = session.get_provider_options()
    names = session.get_providers()
    return {name: device_of_provider(name, options.get(name, {})) for name in names}


def device_of_session(session: Any) -> str:
    """The device of a session: that of its first provider, "cpu:0" if it has none."""
    return next(iter(devices_of_session(session).values()), ROOT_DEVICE)
