"""Convert the events of a torch.profiler session to commands of submodule calls.

If a call launched device work, its commands are that work and the runtime calls that waited for
it. Otherwise they are its outermost operators, so no time counts twice. Weight moves have
category `dma`. The layer is the path of the innermost module. Compilation itself makes no
commands. The importer reads Kineto files with the same reader
(docs/why.md#kinetos-json).
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.capture.torch.compile import Statement, layers_of, statements
from profiler.kineto.arguments import NO_NUMBER, Args, Arguments, whole
from profiler.kineto.events import Event, Ranges
from profiler.kineto.operators import (
    Scalar,
    copy_name,
    has_mark,
    has_result,
    is_compiling,
    is_list_copy,
    is_operator,
    kernel_name,
    listed_type,
    queue,
    result_of,
    text_mark,
)
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import CommandBuilder, CommandColumns, Int64s
from profiler.trace.events import ROOT_DEVICE, UNKNOWN, Track
from profiler.trace.runtime_calls import LAUNCH

# --- The events of one torch.profiler session, as columns: from the trace that Kineto writes.


_LISTED = "tensor["  # a tensor of a list

_DTYPES = {  # Kineto's names of tensors' dtypes → ONNX's
    "float": "float",
    "double": "double",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::Float8_e4m3fn": "float8e4m3fn",
    "c10::Float8_e5m2": "float8e5m2",
}


class Activity(IntEnum):
    """The kind of an event. KERNEL to MEMSET ran on a device."""

    OTHER = 0
    OPERATOR = 1  # cpu_op: operators, our own ranges, ranges of torch.compile
    ANNOTATION = 2  # record_function of the user, and of torch itself
    RUNTIME = 3  # a call of the device's runtime or driver on the host
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6
    MEMORY = 7  # an allocation or, with negative bytes, a release


_ACTIVITIES = {
    "cpu_op": Activity.OPERATOR,
    "user_annotation": Activity.ANNOTATION,
    "cuda_runtime": Activity.RUNTIME,
    "cuda_driver": Activity.RUNTIME,
    "xpu_runtime": Activity.RUNTIME,
    "xpu_driver": Activity.RUNTIME,
    "privateuse1_runtime": Activity.RUNTIME,
    "privateuse1_driver": Activity.RUNTIME,
    "kernel": Activity.KERNEL,
    "gpu_memcpy": Activity.MEMCPY,
    "gpu_memset": Activity.MEMSET,
}
_DEVICE_TYPES = {0: "cpu", 1: "cuda", 12: "xpu"}  # c10::DeviceType; others are an accelerator
_NO_ARGS = Args()
_JSON = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class TorchEvent:
    """One event. `thread` is the host thread, `stream` the device's queue. `correlation` is the
    operator's own id, or the id shared by a runtime call and the work it launched; `linked` is the
    id of the operator running at the launch, 0 for none. `nbytes` are copied, set, allocated or
    released (negative) bytes. `shapes` is the text of the inputs. `finished` is False if the
    session stopped during the event."""

    name: str
    activity: Activity
    start_ns: int
    duration_ns: int = 0
    thread: int = 1
    correlation: int = 0
    linked: int = 0
    device: str = ROOT_DEVICE
    stream: int = 0
    nbytes: int = UNKNOWN
    shapes: str = ""
    finished: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class TorchEvents:
    """n events in any order. `device`, `stream` and `nbytes` exist for device work and memory
    events only, by row. `shapes(row)` is the text of an operator's inputs; `unfinished` are the
    rows of events during which the session stopped."""

    names: Sequence[str]
    activity: npt.NDArray[np.int8]
    start_ns: Int64s
    duration_ns: Int64s
    thread: Int64s
    correlation: Int64s
    linked: Int64s
    device: dict[int, str]
    stream: dict[int, int]
    nbytes: dict[int, int]
    shapes: Callable[[int], str]
    unfinished: frozenset[int]

    def __len__(self) -> int:
        return len(self.names)

    def rows_of(self, *activities: Activity) -> Int64s:
        """Rows of events of these activities, ascending, int64 [k]."""
        return np.flatnonzero(np.isin(self.activity, activities))

    @classmethod
    def of(cls, events: Iterable[TorchEvent]) -> TorchEvents:
        """Build the columns from single events."""
        listed = list(events)

        def column(name: str) -> Int64s:
            return np.array([getattr(event, name) for event in listed], dtype=np.int64)

        return cls(
            names=[event.name for event in listed],
            activity=column("activity").astype(np.int8),
            start_ns=column("start_ns"),
            duration_ns=column("duration_ns"),
            thread=column("thread"),
            correlation=column("correlation"),
            linked=column("linked"),
            device={row: event.device for row, event in enumerate(listed)},
            stream={row: event.stream for row, event in enumerate(listed)},
            nbytes={row: event.nbytes for row, event in enumerate(listed)},
            shapes=lambda row: listed[row].shapes,
            unfinished=frozenset(row for row, e in enumerate(listed) if not e.finished),
        )


def session_events(
    trace: KinetoTrace, kind: str = "cuda", threads: Mapping[Scalar, int] | None = None
) -> TorchEvents:
    """The events of a session, allocations included. Times are Kineto's: ns since the epoch.

    `kind` is torch's name of the accelerator that the session recorded. `threads` numbers threads
    by their OS ids; others are numbered after them, in the order of the trace.
    """
    events = trace.events
    every = np.arange(len(events))
    args = events.args
    memory = [event.args or _NO_ARGS for event in trace.memory]
    activity = np.full(len(events) + len(memory), Activity.MEMORY, dtype=np.int8)
    activity[: len(events)] = Activity.OTHER
    for category, rows in trace.rows.items():
        activity[rows] = _ACTIVITIES.get(category, Activity.OTHER)
    launched = np.flatnonzero((activity >= Activity.RUNTIME) & (activity != Activity.MEMORY))
    correlation = _padded(args.numbers("external_id", every, 0), memory)
    linked = np.zeros(len(activity), dtype=np.int64)
    linked[launched] = correlation[launched]
    correlation[launched] = _launches(args, launched)
    work = launched[activity[launched] >= Activity.KERNEL].tolist()
    numbers = _thread_numbers(trace, activity[: len(events)], threads or {})
    following = range(len(events), len(activity))
    changed = _numbers([arg.changed for arg in memory]).tolist()
    kinds, index = args.alike(every)
    unfinished = np.array([one.finished is False for one in kinds], dtype=np.bool_)
    return TorchEvents(
        names=events.names_of(every) + [event.name for event in trace.memory],
        activity=activity,
        start_ns=np.concatenate((trace.start_ns, trace.memory_ns)),
        duration_ns=_padded(trace.duration_ns, memory),
        thread=_padded(numbers[trace.thread], memory),
        correlation=correlation,
        linked=linked,
        device={row: _device(trace, events[row], kind) for row in work}
        | dict(zip(following, _holders(memory, kind), strict=True)),
        stream={row: whole(_stream(events[row]), 0) for row in work},
        nbytes={row: whole((args[row] or _NO_ARGS).bytes, UNKNOWN) for row in work}
        | dict(zip(following, changed, strict=True)),
        shapes=lambda row: _shapes(events.name_of(row), args[row] or _NO_ARGS),
        unfinished=frozenset(np.flatnonzero(unfinished[index]).tolist()),
    )


def _numbers(values: list[Scalar]) -> Int64s:
    """A column of numbers, which files write in several ways; 0 if missing."""
    try:
        return np.array([value or 0 for value in values], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([whole(value, 0) for value in values], dtype=np.int64)


def _padded(values: Int64s, memory: Sequence[Args]) -> Int64s:
    """Append zeros for the allocations, which lack these values."""
    return np.append(values, np.zeros(len(memory), dtype=np.int64))


def _thread_numbers(
    trace: KinetoTrace, activity: npt.NDArray[np.int8], known: Mapping[Scalar, int]
) -> Int64s:
    """The number of each thread in `trace.threads`, int64; 0 for queues of devices."""
    following = max(known.values(), default=0)
    numbers = np.zeros(len(trace.threads), dtype=np.int64)
    on_host = np.isin(activity, (Activity.OPERATOR, Activity.ANNOTATION, Activity.RUNTIME))
    for code in np.unique(trace.thread[on_host]).tolist():
        _, thread = trace.threads[code]
        if thread not in known:
            following += 1
        numbers[code] = known.get(thread, following)
    return numbers


def _launches(args: Arguments, rows: Int64s) -> Int64s:
    """The id shared by launches and their work: `correlation`, or `launch_id` of torch-rbln; 0 for
    none."""
    numbers = args.numbers("correlation", rows, NO_NUMBER)
    return np.where(numbers == NO_NUMBER, args.numbers("launch_id", rows, 0), numbers)


def _device(trace: KinetoTrace, event: Event, kind: str) -> str:
    """The device of an event: `rbln:1` if its process has that name."""
    if event.pid in trace.device_names:
        return trace.device_names[event.pid]
    index = event.args.device if event.args else None
    return f"{kind}:{whole(event.pid if index is None else index, 0)}"


def _stream(event: Event) -> Scalar:
    stream = event.args.stream if event.args else None
    return event.tid if stream is None else stream


def _holders(memory: Iterable[Args], kind: str) -> list[str]:
    """The device of each allocation."""
    known: dict[tuple[Scalar, Scalar], str] = {}
    found = []
    for args in memory:
        key = (args.device_type, args.device_id)
        name = known.get(key)
        if name is None:
            name = _DEVICE_TYPES.get(whole(args.device_type, 0), kind)
            name = known[key] = f"{name}:{max(whole(args.device_id, 0), 0)}"
        found.append(name)
    return found


def _shapes(name: str, args: Args) -> str:
    """The text of the inputs, and what the arguments add: the result if it can be derived
    (`kineto.results`), for attention whether its mask is causal, for a generated kernel its
    elements."""
    if not bytes(args.dims) or not bytes(args.types):
        return ""
    try:
        dims, dtypes = _JSON.decode(args.dims), _JSON.decode(args.types)
    except msgspec.DecodeError:
        return ""
    text = input_text(dims, dtypes)
    if has_result(name):
        return text + _result(name, args, dims, dtypes)
    return text + text_mark(name, dtypes, args.values) if text and has_mark(name) else text


def _result(name: str, args: Args, dims: Sequence[Any], dtypes: Sequence[str]) -> str:
    """The result of an operator, " -> float[2,64,32,32]"; "" if it cannot be derived."""
    result = result_of(name, dims, dtypes, args.values)
    if result is None or dtypes[0] not in _DTYPES:
        return ""
    return f" -> {_DTYPES[dtypes[0]]}[{','.join(map(str, result))}]"


def with_listed_type(text: str, operator: str, kernel: str) -> str:
    """The input text of an operator that copies a list of tensors, with their type from the
    `kernel`: "bits16[2,3] bits16[1,3]"."""
    listed = listed_type(kernel) if _LISTED in text and is_list_copy(operator) else ""
    if not listed:
        return text
    known = _DTYPES.get(listed) or _DTYPES.get(f"c10::{listed}")
    name = known or (listed if listed.startswith("bits") else "")
    return text.replace(_LISTED, f"{name}[") if name else text


def input_text(dims: Sequence[Any], dtypes: Sequence[str]) -> str:
    """Tensor inputs as "float[2,77,64] int64[1]"; tensors of a list as "tensor[2,77,64]"."""
    words = []
    for shape, dtype in zip(dims, dtypes, strict=False):
        name = _DTYPES.get(dtype)
        if name is not None:
            words.append(f"{name}[{','.join(map(str, shape))}]")
        elif dtype == "TensorList":
            words += [
                f"{_LISTED}{','.join(map(str, s))}]" for s in shape if isinstance(s, Sequence)
            ]
    return " ".join(words)


# --- Host events of a torch.profiler session as nested ranges, with their invocation, module and
# operator.
#
# Our own ranges are among the operators: one around each invocation, each module call, and each
# move of weights. Annotations of the script are never ours, whatever their names.


CALL = "profile-sd3 call "  # a range of an invocation: its number follows
MODULE = "profile-sd3 module "  # a range of a module call: the module's path follows
WEIGHTS = "profile-sd3 weights "  # around a move: direction, bytes and path follow

_GRAPH = "## Call CompiledFxGraph"
_REGION = "Torch-Compiled Region"


class RangeKind(IntEnum):
    """The kind of a range."""

    OTHER = 0  # a range of the user, or a step of torch.compile
    CALL = 1
    MODULE = 2
    OPERATOR = 3
    GRAPH = 4  # code that torch.compile generated
    REGION = 5
    COMPILING = 6  # torch.compile at work: see `compilations`
    WEIGHTS = 7  # a move of weights


class HostRanges:
    """The nested ranges of all threads. All lists are by range, in order of thread and start, so
    that a parent comes before its children.

    `row` is the event's row, `parent` the index of the innermost range around it (-1: none).
    `call` is the number of the invocation (-1: none), `module` the path of its innermost module
    ("": none), `operator` the index of the innermost operator in that (-1: none), itself included.
    """

    def __init__(self, events: TorchEvents) -> None:
        self._events = events
        rows = events.rows_of(Activity.OPERATOR, Activity.ANNOTATION)
        # Of ranges that start and end together, the one with the lower id is the outer one.
        rows = rows[np.argsort(events.correlation[rows], kind="stable")]
        start = events.start_ns[rows]
        ends = start + events.duration_ns[rows]
        self._ranges = Ranges.of(rows, events.thread[rows].astype(np.int32), start, ends)
        self.row: list[int] = self._ranges.row.tolist()
        self.parent: list[int] = self._ranges.parent.tolist()
        self.start_ns: list[int] = self._ranges.start_ns.tolist()
        self.end_ns: list[int] = self._ranges.end_ns.tolist()
        self.kinds, labels = self._named()
        self.call, self.module, self.operator = self._enclosing(labels)

    def _named(self) -> tuple[list[RangeKind], list[str]]:
        """The kind of each range, and the label of our own ranges: a number or a path."""
        known: dict[str, tuple[RangeKind, str]] = {}
        kinds, labels = [], []
        annotated = self._events.activity == Activity.ANNOTATION
        for row in self.row:
            name = self._events.names[row]
            found = known.get(name)
            if found is None:
                found = known[name] = _kind(name, annotation=bool(annotated[row]))
            kinds.append(found[0])
            labels.append(found[1])
        return kinds, labels

    def _enclosing(self, labels: list[str]) -> tuple[list[int], list[str], list[int]]:
        """For each range the invocation (-1: none), the path of the innermost module of it, and
        the innermost operator (index, -1: none), itself included."""
        calls: list[int] = []
        modules: list[str] = []
        operators: list[int] = []
        for index, parent in enumerate(self.parent):
            call, module, operator = -1, "", -1
            if parent >= 0:
                call, module, operator = calls[parent], modules[parent], operators[parent]
            kind = self.kinds[index]
            if kind == RangeKind.CALL:
                call, module, operator = int(labels[index]), "", -1
            elif kind in (RangeKind.MODULE, RangeKind.WEIGHTS):
                module, operator = labels[index], -1
            elif kind == RangeKind.OPERATOR:
                operator = index
            calls.append(call)
            modules.append(module)
            operators.append(operator)
        return calls, modules, operators

    def linked(self, rows: Int64s) -> list[int]:
        """For each row the range of the operator that was running when it was launched, or -1."""
        ids = self._events.correlation[self._ranges.row].tolist()
        by_id = dict(zip(ids, range(len(ids)), strict=True))
        by_id.pop(0, None)
        return [by_id.get(key, -1) for key in self._events.linked[rows].tolist()]

    def places(self, rows: Int64s) -> list[int]:
        """For each runtime call the innermost range around it, or -1: by its link, else by time,
        which is less exact because a device's runtime has its own clock."""
        threads = self._events.thread[rows].astype(np.int32)
        around = self._ranges.innermost(threads, self._events.start_ns[rows]).tolist()
        linked = self.linked(rows)
        return [
            link if link >= 0 else by_time for link, by_time in zip(linked, around, strict=True)
        ]

    def composed(self) -> list[bool]:
        """For each range whether it contains a module range or compiled code."""
        composed = [False] * len(self.row)
        for index in range(len(self.row) - 1, -1, -1):
            parent = self.parent[index]
            marks = self.kinds[index] in (RangeKind.MODULE, RangeKind.GRAPH, RangeKind.REGION)
            if parent >= 0 and (marks or composed[index]):
                composed[parent] = True
        return composed


def weights_moved(name: str) -> tuple[str, int]:
    """The direction in which a range moved weights, and the bytes."""
    kind, nbytes, _ = name[len(WEIGHTS) :].split(" ", 2)
    return kind, int(nbytes)


def _kind(name: str, *, annotation: bool) -> tuple[RangeKind, str]:
    kind, label = RangeKind.OPERATOR, ""
    if name.startswith(_GRAPH):
        kind = RangeKind.GRAPH
    elif name.startswith(_REGION):
        kind = RangeKind.REGION
    elif not annotation and is_compiling(name):
        kind = RangeKind.COMPILING
    elif annotation or not is_operator(name):
        kind = RangeKind.OTHER
    elif name.startswith(MODULE):
        kind, label = RangeKind.MODULE, name[len(MODULE) :]
    elif name.startswith(WEIGHTS):
        kind, label = RangeKind.WEIGHTS, name[len(WEIGHTS) :].split(" ", 2)[2]
    elif name.startswith(CALL):
        number = name[len(CALL) :]
        ours = number.isascii() and number.isdigit()
        kind, label = (RangeKind.CALL, number) if ours else (RangeKind.OTHER, "")
    return kind, label


# --- Events of a torch.profiler session → the commands of each submodule invocation.
#
# Without device work, the outermost operators are the commands, on the track of their thread. An
# operator in which modules are called is not a command, its parts are. A move of weights is one
# command there, of category `dma`, with its bytes. If it launches copies on a device, those are
# commands of the weights' module.
#
# Otherwise the device work is, whenever it ran, linked with the runtime calls that launched it, and
# the runtime calls that waited for the device.
#
# Compiling is no command, nor is what it traces: see `compilations`.
#
# CPU code generated by torch.compile runs between operators of a `CompiledFxGraph` range: the gaps
# are commands, and the generated code says which kernels they are. A `Torch-Compiled Region`
# without finer events is one command.
#
# The layer is the path of the innermost module, also in the command's `module`; outside every
# module, the submodule's own name. For host work, which has no submodule, it is the operator's
# name. `kernel` is the full name of what a device ran.


_GRAPH_KEY = re.compile(r"## Call CompiledFxGraph (\w+) ##")
_ON_PACKED = "quantized::linear"  # of weights that are not tensors
_SHORTEST_GAP_NS = 1_000  # between two operators of generated code
_WAIT = re.compile(r"Synchronize")
_CAPTURE = re.compile(r"Stream(Begin|End)Capture")  # of a CUDA graph: launches run nothing then
_DEVICE_WORK = (Activity.KERNEL, Activity.MEMCPY, Activity.MEMSET)
_KINETO_NAME = {
    Activity.KERNEL: "kernel",
    Activity.MEMCPY: "gpu_memcpy",
    Activity.MEMSET: "gpu_memset",
}


@dataclass(slots=True)
class CallCommands:
    """The commands of one invocation, and statistics of its events.

    `start_ns` and `end_ns` are the range around the invocation, `events` the number of host events
    in it. `total_ns` is the time of its operators or device work, `attributed_ns` the part with a
    module inside the submodule. `dropped` counts launches of kernels and graphs without work,
    `unfinished` events without an end.
    """

    start_ns: int
    end_ns: int
    builder: CommandBuilder = field(default_factory=CommandBuilder)
    events: int = 0
    total_ns: int = 0
    attributed_ns: int = 0
    dropped: int = 0
    unfinished: int = 0

    def build(self) -> CommandColumns:
        """The commands as columns."""
        return self.builder.build()


def find_commands(
    events: TorchEvents,
    roots: Mapping[int, str],
    code_of: Callable[[str], str] = lambda _: "",
    packed: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
) -> dict[int, CallCommands]:
    """The commands of each invocation in `roots`: its number → the name of its submodule, which is
    the layer of work in no module, "" for each operator's own name. Invocations without a range are
    left out. `code_of` returns the code generated for a graph by its key, "" for none. `packed`
    has, by invocation and module, the shapes of weights that events lack."""
    return _Finder(events, roots, code_of, packed).find()


class _Finder:
    """One pass over the nested host ranges of a session."""

    def __init__(
        self,
        events: TorchEvents,
        roots: Mapping[int, str],
        code_of: Callable[[str], str],
        packed: Mapping[int, Mapping[str, str]],
    ) -> None:
        self._events = events
        self._roots = roots
        self._ranges = HostRanges(events)
        self._commands: dict[int, CallCommands] = {}
        self._tracks: dict[tuple[object, ...], Track] = {}
        self._code_of = code_of
        self._packed = packed
        self._generated: dict[str, list[Statement]] = {}  # by the name of a graph's range
        self._parts: dict[int, str] = {}  # of kernels whose operators launched several

    def find(self) -> dict[int, CallCommands]:
        """The commands of every requested invocation."""
        for index, kind in enumerate(self._ranges.kinds):
            if kind == RangeKind.CALL and self._ranges.call[index] in self._roots:
                start = self._ranges.start_ns[index]
                end = self._ranges.end_ns[index]
                self._commands[self._ranges.call[index]] = CallCommands(start, end)
        for number in self._ranges.call:
            if number in self._commands:
                self._commands[number].events += 1
        self._host_operators(self._device_work())
        return self._commands

    def _device_work(self) -> frozenset[int]:
        """Add device work and the runtime calls around it; returns the numbers of invocations with
        device work."""
        events = self._events
        runtime = events.rows_of(Activity.RUNTIME)
        place_of = dict(zip(runtime.tolist(), self._ranges.places(runtime), strict=True))
        launch_of = {int(events.correlation[row]): row for row in place_of}
        work = events.rows_of(*_DEVICE_WORK)
        launches = [launch_of.get(key, -1) for key in events.correlation[work].tolist()]
        places = [
            linked if linked >= 0 else place_of.get(launch, -1)
            for launch, linked in zip(launches, self._ranges.linked(work), strict=True)
        ]
        self._parts = self._parts_of_operators(work.tolist(), places)
        count = Tally(launches)
        added: dict[int, int] = {}  # launch → its row among the commands
        owners = set()
        for row, launch, place in zip(work.tolist(), launches, places, strict=True):
            if place < 0 or self._ranges.call[place] not in self._commands:
                continue
            owners.add(self._ranges.call[place])
            target = self._add_device_work(place, row, several=launch >= 0 and count[launch] > 1)
            if launch >= 0:
                if launch not in added:
                    added[launch] = self._add_runtime(place, launch, " launches", "host")
                self._commands[self._ranges.call[place]].builder.link(added[launch], target)
        captured = self._captured(runtime)
        for row, place in place_of.items():
            if count[row] == 0 and place >= 0 and self._ranges.call[place] in self._commands:
                self._add_wait(place, row, captured=row in captured)
        return frozenset(owners)

    def _parts_of_operators(self, work: list[int], places: list[int]) -> dict[int, str]:
        """The part number of each kernel whose operator launched several kernels: " part 2/5"."""
        kernels: dict[int, list[int]] = {}
        for row, place in zip(work, places, strict=True):
            operator = self._ranges.operator[place] if place >= 0 else -1
            if operator >= 0 and self._events.activity[row] == Activity.KERNEL:
                kernels.setdefault(operator, []).append(row)
        return {
            row: f" part {number}/{len(rows)}"
            for rows in kernels.values()
            if len(rows) > 1
            for number, row in enumerate(rows, 1)
        }

    def _captured(self, runtime: Int64s) -> frozenset[int]:
        """The runtime calls between the start and the end of a CUDA graph's capture on their
        thread."""
        order = runtime[np.argsort(self._events.start_ns[runtime], kind="stable")]
        capturing: dict[int, bool] = {}
        found = set()
        for row, thread in zip(order.tolist(), self._events.thread[order].tolist(), strict=True):
            border = _CAPTURE.search(self._events.names[row])
            if border:
                capturing[thread] = border[1] == "Begin"
            elif capturing.get(thread):
                found.add(row)
        return frozenset(found)

    def _add_device_work(self, place: int, row: int, *, several: bool) -> int:
        events = self._events
        name, activity = events.names[row], Activity(int(events.activity[row]))
        operator = self._ranges.operator[place]
        op_type = copy_name(name)
        if activity == Activity.KERNEL:
            op_type = kernel_name(name)
            if operator >= 0 and not several and not op_type.startswith("triton_"):
                op_type = events.names[self._ranges.row[operator]]
        nbytes = events.nbytes.get(row, UNKNOWN)
        suffix, category = queue(_KINETO_NAME[activity], name)
        device, stream = events.device.get(row, ROOT_DEVICE), events.stream.get(row, 0)
        shapes = ""
        if operator >= 0:
            source = self._ranges.row[operator]
            shapes = with_listed_type(events.shapes(source), events.names[source], name)
        return self._add(
            place,
            row,
            self._track((device, f"stream {stream}{suffix}", category)),
            op_type,
            kernel=name,
            shapes=shapes + self._parts.get(row, "") if shapes else "",
            bytes_read=nbytes if activity == Activity.MEMCPY else UNKNOWN,
            bytes_written=nbytes if activity != Activity.KERNEL else UNKNOWN,
        )

    def _add_wait(self, place: int, row: int, *, captured: bool) -> None:
        """Add a runtime call if it waited for the device; count it as dropped if it is a launch
        without work."""
        name = self._events.names[row]
        if _WAIT.search(name):
            self._add_runtime(place, row, " sync", "sync")
        elif LAUNCH.match(name) and not captured:
            self._commands[self._ranges.call[place]].dropped += 1

    def _add_runtime(self, place: int, row: int, suffix: str, category: str) -> int:
        name = f"CPU thread {self._events.thread[row]}{suffix}"
        track = self._track((ROOT_DEVICE, name, category))
        start, duration = self._times(row)
        builder = self._commands[self._ranges.call[place]].builder
        return builder.add(track, self._events.names[row], "", start, duration)

    def _host_operators(self, with_device_work: frozenset[int]) -> None:
        """Add the outermost operators, and compiled code, of invocations without device work."""
        composed = self._ranges.composed()
        part = [False] * len(self._ranges.row)  # whether each range is part of a command
        inside: dict[int, list[int]] = {}  # recorded commands in each range of torch.compile
        compiled: list[int] = [-1] * len(self._ranges.row)  # the innermost range of torch.compile
        for index, parent in enumerate(self._ranges.parent):
            kind = self._ranges.kinds[index]
            if parent >= 0:
                part[index], compiled[index] = part[parent], compiled[parent]
            part[index] |= kind == RangeKind.COMPILING  # traced code is not executed
            number = self._ranges.call[index]
            if part[index] or number not in self._commands or number in with_device_work:
                continue
            if kind == RangeKind.WEIGHTS:
                part[index] = True
                self._add_weights(index)
            elif kind in (RangeKind.GRAPH, RangeKind.REGION):
                inside[index] = []
                if compiled[index] >= 0:
                    inside[compiled[index]].append(index)
                compiled[index] = index
            elif kind == RangeKind.OPERATOR and not composed[index]:
                part[index] = True
                self._see_operator(index, compiled[index], inside)
        for index, seen in inside.items():
            self._add_compiled(index, seen)

    def _see_operator(self, index: int, around: int, inside: dict[int, list[int]]) -> None:
        """Add an operator, unless the code that torch.compile generated around it will."""
        if around >= 0:
            inside[around].append(index)
        if around < 0 or self._ranges.kinds[around] != RangeKind.GRAPH:
            self._add_operator(index)

    def _add_weights(self, index: int) -> None:
        """Add a move of weights as one command of the weights' module."""
        row = self._ranges.row[index]
        name = f"CPU thread {self._events.thread[row]} weights"
        op_type, nbytes = weights_moved(self._events.names[row])
        track = self._track((ROOT_DEVICE, name, "dma"))
        self._add(index, row, track, op_type, bytes_read=nbytes, bytes_written=nbytes)

    def _add_operator(self, index: int, below: str = "") -> None:
        """Add an operator; `below` is its layer below the module, "" for the module's own."""
        row = self._ranges.row[index]
        name = f"CPU thread {self._events.thread[row]}"
        track = self._track((ROOT_DEVICE, name, "compute"))
        op_type, shapes = self._events.names[row], self._events.shapes(row)
        if op_type.startswith(_ON_PACKED):
            known = self._packed.get(self._ranges.call[index], {})
            shapes = f"{shapes} {known.get(self._ranges.module[index], '')}".rstrip()
        self._add(index, row, track, op_type, below, shapes=shapes)

    def _add_compiled(self, index: int, seen: list[int]) -> None:
        """Add the work of a torch.compile range between the recorded commands `seen` in it."""
        row = self._ranges.row[index]
        track = self._track((ROOT_DEVICE, f"CPU thread {self._events.thread[row]}", "compute"))
        if self._ranges.kinds[index] == RangeKind.GRAPH:
            names = [self._events.names[self._ranges.row[inner]] for inner in seen]
            layers = layers_of(self._code(self._events.names[row]), names)
            for inner, below in zip(seen, layers.operators, strict=True):
                if self._ranges.kinds[inner] == RangeKind.OPERATOR:
                    self._add_operator(inner, below)
            for number, start, end in self._gaps(index, seen):
                below, op_type = layers.gaps[number]
                self._count(index, end - start)
                builder = self._commands[self._ranges.call[index]].builder
                layer, module = self._layer(index, op_type, below), self._ranges.module[index]
                builder.add(track, layer, op_type, start, end - start, module=module)
        elif not seen:
            self._add(index, row, track, "Torch-Compiled Region")

    def _code(self, name: str) -> list[Statement]:
        """The statements of the generated code of a graph, by the name of its range."""
        if name not in self._generated:
            key = _GRAPH_KEY.match(name)
            self._generated[name] = statements(self._code_of(key[1])) if key else []
        return self._generated[name]

    def _gaps(self, index: int, seen: list[int]) -> Iterator[tuple[int, int, int]]:
        """The gaps between `seen`: the index of the one after it, start and end."""
        ranges = self._ranges
        begin, end = ranges.start_ns[index], ranges.end_ns[index]
        for number, inner in enumerate(seen):
            start = ranges.start_ns[inner]
            if start - begin >= _SHORTEST_GAP_NS:
                yield number, begin, start
            begin = ranges.end_ns[inner]
        if end - begin >= _SHORTEST_GAP_NS:
            yield len(seen), begin, end

    def _layer(self, index: int, op_type: str, below: str = "") -> str:
        layer = self._ranges.module[index] or self._roots[self._ranges.call[index]]
        if layer and below:
            return f"{layer}/{below}"
        return layer or below or op_type

    def _add(
        self, index: int, row: int, track: Track, op_type: str, below: str = "", **known: object
    ) -> int:
        """Add the event in `row` to the invocation of the range at `index`."""
        start, duration = self._times(row)
        commands = self._commands[self._ranges.call[index]]
        commands.unfinished += row in self._events.unfinished
        self._count(index, max(duration, 0))
        layer, module = self._layer(index, op_type, below), self._ranges.module[index]
        add = commands.builder.add
        return add(track, layer, op_type, start, duration, module=module, **known)  # type: ignore[arg-type]

    def _count(self, index: int, duration_ns: int) -> None:
        commands = self._commands[self._ranges.call[index]]
        commands.total_ns += duration_ns
        commands.attributed_ns += duration_ns if self._ranges.module[index] else 0

    def _times(self, row: int) -> tuple[int, int]:
        duration = int(self._events.duration_ns[row])
        ended = row not in self._events.unfinished
        return int(self._events.start_ns[row]), duration if ended else UNKNOWN

    def _track(self, key: tuple[str, str, str]) -> Track:
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = Track(*key)
        return track
