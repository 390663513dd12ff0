"""The events of one torch.profiler session, as columns.

They are read from Kineto's results in process. Writing the session's JSON and parsing that takes
4 µs of CPU time an event instead of 6, but 400 bytes of disk; torch itself takes 6 µs to stop
(`benchmarks/torch_capture.py --events`, torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.events import ROOT_DEVICE, UNKNOWN
from profiler.kineto.convolution import is_convolution, result_dims
from profiler.trace.columns import Int64s

__all__ = [
    "Activity",
    "TorchEvent",
    "TorchEvents",
    "guessed_activity",
    "input_text",
    "read_events",
]

_BYTES = re.compile(r'"bytes": (\d+)')
_RUNTIME = re.compile(r"(cuda|cu|hip|ur|ze)[A-Z]")
_MEMORY = "[memory]"
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


@dataclass(frozen=True, slots=True)
class TorchEvent:
    """One event. `thread` is the host thread, `stream` the device's queue. `correlation` is the
    operator's own id, or the one that a runtime call and the work it launched share; `linked` the
    id of the operator that was running when it was launched, 0 for none. `nbytes` is what was
    copied, set, allocated or released (negative). `shapes` is the text of the inputs."""

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


@dataclass(frozen=True, slots=True, eq=False)
class TorchEvents:
    """n events in any order. `device`, `stream` and `nbytes` are kept for device work and memory
    events alone, by row. `shapes(row)` is the text of an operator's inputs."""

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
        )


def read_events(results: Any) -> TorchEvents:
    """The events of a session's `kineto_results`. Times are Kineto's: ns since the epoch.

    Every question to an event costs 0.4 µs, so none is asked where the answer is not used.
    """
    events = results.events()
    names = [event.name() for event in events]
    activity = np.array(_activities(events, names), dtype=np.int8)
    memory = np.flatnonzero(activity == Activity.MEMORY).tolist()
    copies = np.flatnonzero((activity == Activity.MEMCPY) | (activity == Activity.MEMSET)).tolist()
    on_device = np.flatnonzero((activity >= Activity.KERNEL) & (activity != Activity.MEMORY))
    launched = np.flatnonzero(activity == Activity.RUNTIME).tolist() + on_device.tolist()
    linked = np.zeros(len(names), dtype=np.int64)
    linked[launched] = [events[row].linked_correlation_id() for row in launched]
    nbytes = {row: events[row].nbytes() for row in memory}
    nbytes |= {row: _copied_bytes(events[row]) for row in copies}
    return TorchEvents(
        names=names,
        activity=activity,
        start_ns=np.array([event.start_ns() for event in events], dtype=np.int64),
        duration_ns=np.array([event.duration_ns() for event in events], dtype=np.int64),
        thread=_unsigned([event.start_thread_id() for event in events]),
        correlation=_unsigned([event.correlation_id() for event in events]),
        linked=linked,
        device={row: _device(events[row]) for row in (*memory, *on_device.tolist())},
        stream={row: events[row].device_resource_id() for row in on_device.tolist()},
        nbytes=nbytes,
        shapes=lambda row: _shapes(names[row], events[row]),
    )


def _unsigned(values: list[int]) -> Int64s:
    """Ids of 64 bits; torch's "no thread" has all of them set and becomes -1."""
    return np.array(values, dtype=np.uint64).view(np.int64)


def _activities(events: Sequence[Any], names: Sequence[str]) -> list[Activity]:
    """What each event is: what the first event of its name is."""
    told = bool(events) and hasattr(events[0], "activity_type")  # not in torch 2.9
    known = {_MEMORY: Activity.MEMORY}
    found = []
    for event, name in zip(events, names, strict=True):
        kind = known.get(name)
        if kind is None:
            if told:
                kind = _ACTIVITIES.get(event.activity_type(), Activity.OTHER)
            else:
                kind = guessed_activity(event, name)
            known[name] = kind
        found.append(kind)
    return found


def guessed_activity(event: Any, name: str) -> Activity:
    """What an event is, from where it ran and what it is called."""
    if name == _MEMORY:
        return Activity.MEMORY
    on_host = event.device_type().name == "CPU"
    if event.is_user_annotation():
        return Activity.ANNOTATION if on_host else Activity.OTHER
    if on_host:
        return Activity.RUNTIME if _RUNTIME.match(name) else Activity.OPERATOR
    if name.startswith("Memcpy"):
        return Activity.MEMCPY
    return Activity.MEMSET if name.startswith("Memset") else Activity.KERNEL


def _dims(event: Any) -> Any:
    """Shapes of the inputs; with those of tensors in lists where torch tells them (2.12)."""
    structured = getattr(event, "structured_input_shapes", None)
    return structured() if structured is not None else event.shapes()


def input_text(dims: Sequence[Any], dtypes: Sequence[str]) -> str:
    """Tensor inputs as "float[2,77,64] int64[1]"; tensors of a list as "tensor[2,77,64]"."""
    words = []
    for shape, dtype in zip(dims, dtypes, strict=False):
        name = _DTYPES.get(dtype)
        if name is not None:
            words.append(f"{name}[{','.join(map(str, shape))}]")
        elif dtype == "TensorList":
            words += [f"tensor[{','.join(map(str, s))}]" for s in shape if isinstance(s, Sequence)]
    return " ".join(words)


def _shapes(name: str, event: Any) -> str:
    """The inputs, and of convolutions the result: " -> float[2,64,32,32]"."""
    dims, dtypes = _dims(event), event.dtypes()
    text = input_text(dims, dtypes)
    if not is_convolution(name) or not hasattr(event, "concrete_inputs"):
        return text
    result = result_dims(name, dims, event.concrete_inputs())
    if result is None or dtypes[0] not in _DTYPES:
        return text
    return f"{text} -> {_DTYPES[dtypes[0]]}[{','.join(map(str, result))}]"


def _device(event: Any) -> str:
    kind = event.device_type().name.lower()
    index = event.device_index()
    return f"{'cpu' if kind == 'cpu' else kind}:{max(index, 0)}"


def _copied_bytes(event: Any) -> int:
    """The bytes that a copy moved, which only its metadata tells."""
    metadata = getattr(event, "metadata_json", None)
    found = _BYTES.search(metadata()) if metadata is not None else None
    return int(found[1]) if found else UNKNOWN
