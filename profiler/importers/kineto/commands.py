"""Commands of an imported run: device work, and the host calls that launched it.

Tracks follow the trace: `stream 7` for kernels, `stream 7 memcpy` for copies from and to the
host, `stream 7 copy` for those on a device or between devices and for memset, `stream 7
collectives` for NCCL and RCCL kernels. Host threads are tracks of `cpu:0`, what they wait for
devices on ` sync`.

- `layer`: the module path or operator (`kineto_layers`); of a launch, the runtime function.
- `op_type`: the launching operator (`aten::mm`); the kernel's short name where that is unknown,
  where one graph launch ran many kernels of which no capture tells, and for Triton kernels;
  `Memcpy HtoD` and the like.
- `module`: the path of the module that launched it, "" directly in the submodule; where calls are
  steps of a training without modules, its phase: `forward`, `backward`, `optimizer`.
- `kernel`: the full name of the kernel; of copies and memset as the trace has it.
- `shapes`: the launching operator's tensors (`shape_texts`); with ` part 2/5` where the operator
  launched five kernels and this is its second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from profiler.events import NO_STEP, ROOT_DEVICE, UNKNOWN, Track
from profiler.importers.kineto.graphs import Entry
from profiler.importers.kineto.launch import DEVICE_WORK, Launches
from profiler.importers.kineto.layers import ModulePaths
from profiler.importers.kineto.shape_texts import ShapeTexts
from profiler.kineto.events import Event, whole
from profiler.kineto.names import copy_name, kernel_name, queue
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import CommandBuilder, Int64s

__all__ = ["CommandWriter", "PlaceAt", "device_kind", "device_name", "thread_name"]

_HOST_TRACKS = {"operators": "compute", "host": "host", "waits": "sync"}
PlaceAt = Callable[[int], tuple[str, int]]  # time in ns → stage and step


def device_kind(trace: KinetoTrace) -> str:
    """`rocm`, `xpu` or `cuda`: whose runtime the trace recorded."""
    header = trace.header
    if header.hip_runtime_version is not None or header.roctracer_version is not None:
        return "rocm"
    names = {trace.events.name_of(row)[:3] for row in trace.rows_of("cuda_runtime")[:1000].tolist()}
    if "hip" in names:
        return "rocm"
    return "xpu" if {"xpu_runtime", "xpu_driver"} & trace.rows.keys() else "cuda"


def device_name(kind: str, event: Event) -> str:
    """`cuda:1`: the device that an event says it ran on."""
    device = event.args.device if event.args else None
    return f"{kind}:{whole(device if device is not None else event.pid, 0)}"


def thread_name(trace: KinetoTrace, row: int) -> str:
    """The name of the thread of an event, `thread <tid>` where the trace gives none."""
    key = trace.threads[int(trace.thread[row])]
    return trace.thread_names.get(key) or f"thread {key[1]}"


@dataclass(slots=True)
class CommandWriter:
    """Turns launches into commands, one builder a call and one for work of no call."""

    trace: KinetoTrace
    launches: Launches
    paths: ModulePaths
    kind: str
    phases: bool = False  # whether layers begin with the phase of training
    replayed: Mapping[int, Entry] = field(default_factory=dict)  # by place among the launches
    prefix: str = ""  # of devices' names: that of a rank
    _names: dict[str, str] = field(default_factory=dict)  # of devices
    _kernels: dict[str, str] = field(default_factory=dict)
    _shapes: ShapeTexts = field(default_factory=ShapeTexts)
    _tracks: dict[tuple[object, ...], Track] = field(default_factory=dict)
    _shared: frozenset[int] = field(init=False)  # launches of several pieces of work
    _parts: dict[int, str] = field(init=False)  # of launches of operators that have several
    _by_call: Int64s = field(init=False)
    _waits: dict[int, list[int]] = field(init=False)  # by call
    devices: tuple[str, ...] = field(init=False)  # of each launch

    def __post_init__(self) -> None:
        self.devices = tuple(map(self._device_at, self.launches.row.tolist()))
        counts = Counter(self.launches.launch.tolist())
        counts.pop(-1, None)
        self._shared = frozenset(launch for launch, count in counts.items() if count > 1)
        self._parts = self._parts_of_operators()
        self._by_call = np.argsort(self.launches.call, kind="stable")
        self._waits = {}
        for row, call in zip(*(c.tolist() for c in self.launches.waits), strict=True):
            self._waits.setdefault(call, []).append(row)

    def by_device(self) -> dict[str, Int64s]:
        """The places among the launches of the work of each device, ascending."""
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self.devices):
            found.setdefault(name, []).append(place)
        return {name: np.array(found[name], dtype=np.int64) for name in sorted(found)}

    @property
    def root(self) -> str:
        """The device of the host."""
        return f"{self.prefix}{ROOT_DEVICE}"

    def _device_at(self, row: int) -> str:
        """The device of the event in a row; those of one device share its name."""
        event = self.trace.events[row]
        name = self._device(event) if event.cat in DEVICE_WORK else self.root
        return self._names.setdefault(name, name)

    def _device(self, event: Event) -> str:
        return f"{self.prefix}{device_name(self.kind, event)}"

    def _parts_of_operators(self) -> dict[int, str]:
        """Which of its operator's kernels each kernel is, where there are several."""
        kernels = self.trace.events.of_category(self.launches.row, "kernel")
        of_operator: dict[int, list[int]] = {}
        for member in np.flatnonzero(kernels & (self.launches.operator >= 0)).tolist():
            of_operator.setdefault(self.launches.operator.item(member), []).append(member)
        several = (members for members in of_operator.values() if len(members) > 1)
        return {
            member: f" part {number}/{len(members)}"
            for members in several
            for number, member in enumerate(members, 1)
        }

    def write(self, call: int, builder: CommandBuilder, place_at: PlaceAt | None = None) -> None:
        """Add the commands of a call; of none (-1) with stage and step by the time of launch."""
        commands: dict[int, int] = {}
        stage, step = "", NO_STEP
        for member in self._members(call):
            if place_at is not None:
                stage, step = place_at(int(self.launches.time_ns[member]))
            target = self._work(member, builder, stage, step)
            launch = self.launches.launch.item(member)
            if launch < 0:
                continue
            if launch not in commands:
                commands[launch] = self._launch(launch, builder, stage, step)
            builder.link(commands[launch], target)

        for row in self._waits.get(call, ()):
            if place_at is not None:
                stage, step = place_at(int(self.trace.start_ns[row]))
            track = self._track(("waits", int(self.trace.thread[row])), row)
            name = self.trace.events.name_of(row)
            builder.add(track, name, "", *self._times(row), stage=stage, step=step)

    def device_of(self, call: int) -> str:
        """The device on which most of a call's work ran, the root device where none did."""
        counts = Counter(self.devices[member] for member in self._members(call))
        return counts.most_common(1)[0][0] if counts else self.root

    def _members(self, call: int) -> list[int]:
        first, last = np.searchsorted(
            self.launches.call, (call, call + 1), sorter=self._by_call
        ).tolist()
        members: list[int] = self._by_call[first:last].tolist()
        return members

    def _times(self, row: int) -> tuple[int, int]:
        return self.trace.start_ns.item(row), self.trace.duration_ns.item(row)

    def _launch(self, row: int, builder: CommandBuilder, stage: str, step: int) -> int:
        track = self._track(("host", self.trace.thread.item(row)), row)
        name = self.trace.events.name_of(row)
        return builder.add(track, name, "", *self._times(row), stage=stage, step=step)

    def _work(self, member: int, builder: CommandBuilder, stage: str, step: int) -> int:
        row = self.launches.row.item(member)
        event = self.trace.events[row]
        source = self.launches.operator.item(member)
        operator = self.trace.events[source] if source >= 0 else None
        told = self.replayed.get(member)
        launch = self.launches.launch.item(member)
        if told is not None:
            operator, launch = told.operator, -1
        op_type = self._op_type(event, operator, launch)
        label = op_type
        if operator is not None and event.cat != "kernel":
            label = operator.name
        moved = event.args.bytes if event.args and event.cat.startswith("gpu_") else None
        size = whole(moved, UNKNOWN)
        module = self.launches.module.item(member)
        paths = self.paths
        if told is not None:
            module, paths = told.module, told.paths
        path, layer = paths.path(module), paths.layer(module, label)
        phase = self._phase(member) if module < 0 else ""
        if phase:
            path, layer = phase, f"{phase}/{layer}"
        return builder.add(
            self._work_track(event, row),
            layer,
            op_type,
            *self._times(row),
            shapes=self._shapes_of(
                operator, event, told.part if told else self._parts.get(member, "")
            ),
            kernel=event.name if event.cat in DEVICE_WORK else "",
            module=path,
            stage=stage,
            step=step,
            bytes_read=size if event.cat == "gpu_memcpy" else UNKNOWN,
            bytes_written=size,
        )

    def _phase(self, member: int) -> str:
        """The phase of training in which it was launched; "" where calls are phases themselves."""
        training = self.launches.training
        return training.phases[member] if training is not None and self.phases else ""

    def _op_type(self, event: Event, operator: Event | None, launch: int) -> str:
        if event.cat.startswith("gpu_"):
            is_memset = event.cat == "gpu_memset"
            return event.name.split("(")[0].strip() if is_memset else copy_name(event.name)
        if event.cat != "kernel":  # an operator of a run on the CPU
            return event.name
        kernel = self._kernels.get(event.name)
        if kernel is None:
            kernel = self._kernels[event.name] = kernel_name(event.name)
        if operator is None or launch in self._shared:
            return kernel
        return kernel if kernel.startswith("triton_") else operator.name

    def _shapes_of(self, operator: Event | None, event: Event, part: str) -> str:
        args = operator.args if operator is not None else None
        if operator is None or args is None:
            return ""
        text = self._shapes.of(operator.name, args, event.name)
        return text + part if text else ""

    def _track(self, key: tuple[str, int], row: int) -> Track:
        track = self._tracks.get(key)
        if track is None:
            category = _HOST_TRACKS[key[0]]
            suffix = " sync" if category == "sync" else ""
            track = Track(self.root, thread_name(self.trace, row) + suffix, category)
            self._tracks[key] = track
        return track

    def _work_track(self, event: Event, row: int) -> Track:
        args = event.args
        stream = args.stream if args and args.stream is not None else event.tid
        if event.cat not in DEVICE_WORK:
            return self._track(("operators", int(self.trace.thread[row])), row)
        suffix, category = queue(event.cat, event.name)
        key = (args.device if args else None, event.pid, stream, suffix)
        track = self._tracks.get(key)
        if track is None:
            device = self._device(event)
            track = self._tracks[key] = Track(device, f"stream {stream}{suffix}", category)
        return track
