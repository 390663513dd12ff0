"""The events of one torch.profiler session, as columns: from the trace that Kineto writes.

The importer reads such files with the same reader, so files that were written where devices are
test what places their work here (`docs/decisions/0010-kineto-sessions-as-json.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiler.events import ROOT_DEVICE, UNKNOWN
from profiler.kineto.attention import causal_mark, is_attention
from profiler.kineto.events import Args, Event, Scalar, whole
from profiler.kineto.listed_types import is_list_copy, listed_type
from profiler.kineto.results import has_result, result_of
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = [
    "Activity",
    "TorchEvent",
    "TorchEvents",
    "input_text",
    "session_events",
    "with_listed_type",
]

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
    """What an event is. Everything from KERNEL to MEMSET ran on a device."""

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
_DEVICE_TYPES = {0: "cpu", 1: "cuda", 12: "xpu"}  # c10::DeviceType; others are the session's
_NO_ARGS = Args()
_JSON = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class TorchEvent:
    """One event. `thread` is the host thread, `stream` the device's queue. `correlation` is the
    operator's own id, or the one that a runtime call and the work it launched share; `linked` the
    id of the operator that was running when it was launched, 0 for none. `nbytes` is what was
    copied, set, allocated or released (negative). `shapes` is the text of the inputs. `finished`
    is False where the session was stopped in it."""

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
    """n events in any order. `device`, `stream` and `nbytes` are kept for device work and memory
    events alone, by row. `shapes(row)` is the text of an operator's inputs; `unfinished` are the
    rows of events that had not ended when the session was stopped."""

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
        """Rows of these activities, ascending, int64 [k]."""
        return np.flatnonzero(np.isin(self.activity, activities))

    @classmethod
    def of(cls, events: Iterable[TorchEvent]) -> TorchEvents:
        """The columns of events that are given one by one."""
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

    `kind` is torch's name of the accelerator that the session recorded; `threads` has the numbers
    of threads by their system's ids, others are numbered after them, in the order in which the
    trace has them.
    """
    events = trace.events
    args = [event.args or _NO_ARGS for event in events]
    memory = [event.args or _NO_ARGS for event in trace.memory]
    activity = np.full(len(events) + len(memory), Activity.MEMORY, dtype=np.int8)
    activity[: len(events)] = Activity.OTHER
    for category, rows in trace.rows.items():
        activity[rows] = _ACTIVITIES.get(category, Activity.OTHER)
    launched = np.flatnonzero((activity >= Activity.RUNTIME) & (activity != Activity.MEMORY))
    correlation = _padded(_numbers([arg.external_id for arg in args]), memory)
    linked = np.zeros(len(activity), dtype=np.int64)
    linked[launched] = correlation[launched]
    correlation[launched] = _numbers([args[row].correlation for row in launched.tolist()])
    work = launched[activity[launched] >= Activity.KERNEL].tolist()
    numbers = _thread_numbers(trace, activity[: len(events)], threads or {})
    following = range(len(events), len(activity))
    changed = _numbers([arg.changed for arg in memory]).tolist()
    return TorchEvents(
        names=[event.name for event in events] + [event.name for event in trace.memory],
        activity=activity,
        start_ns=np.concatenate((trace.start_ns, trace.memory_ns)),
        duration_ns=_padded(trace.duration_ns, memory),
        thread=_padded(numbers[trace.thread], memory),
        correlation=correlation,
        linked=linked,
        device={row: f"{kind}:{whole(_place(events[row]), 0)}" for row in work}
        | dict(zip(following, _holders(memory, kind), strict=True)),
        stream={row: whole(_stream(events[row]), 0) for row in work},
        nbytes={row: whole(args[row].bytes, UNKNOWN) for row in work}
        | dict(zip(following, changed, strict=True)),
        shapes=lambda row: _shapes(events[row].name, args[row]),
        unfinished=frozenset(row for row, arg in enumerate(args) if arg.finished is False),
    )


def _numbers(values: list[Scalar]) -> Int64s:
    """A column of numbers, which files write in several ways, 0 where there is none."""
    try:
        return np.array([value or 0 for value in values], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([whole(value, 0) for value in values], dtype=np.int64)


def _padded(values: Int64s, memory: Sequence[Args]) -> Int64s:
    """With zeros for the allocations, which have none of these."""
    return np.append(values, np.zeros(len(memory), dtype=np.int64))


def _thread_numbers(
    trace: KinetoTrace, activity: npt.NDArray[np.int8], known: Mapping[Scalar, int]
) -> Int64s:
    """The number of each of the trace's threads, int64 [n]; 0 of queues of devices."""
    following = max(known.values(), default=0)
    numbers = np.zeros(len(trace.threads), dtype=np.int64)
    on_host = np.isin(activity, (Activity.OPERATOR, Activity.ANNOTATION, Activity.RUNTIME))
    for code in np.unique(trace.thread[on_host]).tolist():
        _, thread = trace.threads[code]
        if thread not in known:
            following += 1
        numbers[code] = known.get(thread, following)
    return numbers


def _place(event: Event) -> Scalar:
    """The index of the device that an event ran on."""
    index = event.args.device if event.args else None
    return event.pid if index is None else index


def _stream(event: Event) -> Scalar:
    stream = event.args.stream if event.args else None
    return event.tid if stream is None else stream


def _holders(memory: Iterable[Args], kind: str) -> list[str]:
    """The devices whose allocators the allocations concern."""
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
    """The inputs, and what the arguments add: the result where it follows (`kineto.results`), of
    attention whether its mask is causal."""
    if not bytes(args.dims) or not bytes(args.types):
        return ""
    try:
        dims, dtypes = _JSON.decode(args.dims), _JSON.decode(args.types)
    except msgspec.DecodeError:
        return ""
    text = input_text(dims, dtypes)
    if has_result(name):
        return text + _result(name, args, dims, dtypes)
    return text + causal_mark(name, args.values) if text and is_attention(name) else text


def _result(name: str, args: Args, dims: Sequence[Any], dtypes: Sequence[str]) -> str:
    """The result of an operator, " -> float[2,64,32,32]"; "" where it does not follow."""
    result = result_of(name, dims, dtypes, args.values)
    if result is None or dtypes[0] not in _DTYPES:
        return ""
    return f" -> {_DTYPES[dtypes[0]]}[{','.join(map(str, result))}]"


def with_listed_type(text: str, operator: str, kernel: str) -> str:
    """The text of an operator that copies the tensors of a list, with their type as the `kernel`
    tells it: "bits16[2,3] bits16[1,3]"."""
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
