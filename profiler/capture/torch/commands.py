"""Events of a torch.profiler session → the commands of each submodule invocation.

- An invocation that launched no device work has its outermost operators as commands, on the track
  of the thread that ran them. Operators that run inside an operator are part of it, so no time
  counts twice. An operator in which modules are called is not one, its parts are.
- What moves weights is one command there, of category `dma`, with their bytes. Where it launches
  copies on a device, those are commands of the module whose weights they are.
- An invocation that launched device work has that as commands, whenever it ran, linked with the
  runtime calls that launched it, and the runtime calls that waited for the device.
- What torch.compile does to compile is no command, nor what it traces then: see `compilations`.
- What torch.compile generated for the CPU runs between operators of a `CompiledFxGraph` range: the
  gaps are commands, and `generated_code` says which kernels they are. A `Torch-Compiled Region` in
  which nothing finer was seen is one.

The layer is the path of the innermost module, which is the command's `module` as well; outside
every module, the submodule's own name. Of host work, which is an invocation of no submodule, it is
the operator's name. `kernel` is the full name of what a device ran.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from profiler.capture.torch.events import Activity, TorchEvents, with_listed_type
from profiler.capture.torch.generated_code import Statement, layers_of, statements
from profiler.capture.torch.ranges import HostRanges, RangeKind, weights_moved
from profiler.events import ROOT_DEVICE, UNKNOWN, Track
from profiler.kineto.names import copy_name, kernel_name, queue
from profiler.trace.columns import CommandBuilder, CommandColumns, Int64s

__all__ = ["CallCommands", "find_commands"]

_GRAPH_KEY = re.compile(r"## Call CompiledFxGraph (\w+) ##")
_ON_PACKED = "quantized::linear"  # of weights that are no tensors
_SHORTEST_GAP_NS = 1_000  # between two operators of generated code
_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|GraphLaunch|Memcpy|Memset")
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
    """The commands of one invocation and what is known of them.

    `start_ns` and `end_ns` are the range around the invocation, `events` how many host events lie
    in it. `total_ns` is the time of its operators or device work, `attributed_ns` what of it
    belongs to a module inside the submodule. `dropped` counts launches without the work that they
    launched, `unfinished` events that never ended.
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
    """The commands of each invocation in `roots`: its number → the name of its submodule, which
    is the layer of what runs in no module, "" for each operator's own name. Invocations that have
    no range are left out. `code_of` gives the code generated for a graph by its key, "" for none.
    `packed` has, by invocation and module, the shapes of weights that events know nothing of.
    """
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
        """The commands of every invocation that was asked for."""
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
        """Add device work and the runtime calls around it; returns whose invocations have some."""
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
        """Which of its operator's kernels each kernel is, where there are several: " part 2/5"."""
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
        """Runtime calls between begin and end of the capture of a CUDA graph on their thread."""
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
        """Add a runtime call that waited for the device; count a launch without its work."""
        name = self._events.names[row]
        if _WAIT.search(name):
            self._add_runtime(place, row, " sync", "sync")
        elif _LAUNCH.search(name) and not captured:
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
        part = [False] * len(self._ranges.row)  # of a command
        inside: dict[int, list[int]] = {}  # commands in a range of torch.compile
        compiled: list[int] = [-1] * len(self._ranges.row)  # the innermost range of torch.compile
        for index, parent in enumerate(self._ranges.parent):
            kind = self._ranges.kinds[index]
            if parent >= 0:
                part[index], compiled[index] = part[parent], compiled[parent]
            part[index] |= kind == RangeKind.COMPILING  # what it traces is not executed
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
        """Add an operator, or leave it to the code that torch.compile generated around it."""
        if around >= 0:
            inside[around].append(index)
        if around < 0 or self._ranges.kinds[around] != RangeKind.GRAPH:
            self._add_operator(index)

    def _add_weights(self, index: int) -> None:
        """Add a move of weights, as one command of the module whose weights they are."""
        row = self._ranges.row[index]
        name = f"CPU thread {self._events.thread[row]} weights"
        op_type, nbytes = weights_moved(self._events.names[row])
        track = self._track((ROOT_DEVICE, name, "dma"))
        self._add(index, row, track, op_type, bytes_read=nbytes, bytes_written=nbytes)

    def _add_operator(self, index: int, below: str = "") -> None:
        """Add an operator; `below` is its layer below the module, "" where it is the module's."""
        row = self._ranges.row[index]
        name = f"CPU thread {self._events.thread[row]}"
        track = self._track((ROOT_DEVICE, name, "compute"))
        op_type, shapes = self._events.names[row], self._events.shapes(row)
        if op_type.startswith(_ON_PACKED):
            known = self._packed.get(self._ranges.call[index], {})
            shapes = f"{shapes} {known.get(self._ranges.module[index], '')}".rstrip()
        self._add(index, row, track, op_type, below, shapes=shapes)

    def _add_compiled(self, index: int, seen: list[int]) -> None:
        """Add what a range of torch.compile did between the commands that were `seen` in it."""
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
        """What the generated code of the graph whose range has that name executes."""
        if name not in self._generated:
            key = _GRAPH_KEY.match(name)
            self._generated[name] = statements(self._code_of(key[1])) if key else []
        return self._generated[name]

    def _gaps(self, index: int, seen: list[int]) -> Iterator[tuple[int, int, int]]:
        """Before which of `seen` each gap lies, its begin and end."""
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
        """Add the event in `row` to the invocation in which the range at `index` lies."""
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
