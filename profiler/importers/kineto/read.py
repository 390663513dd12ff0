"""Import torch.profiler (Kineto) traces: one process, or all ranks of a job.

    import_trace(Path("sd35.json.gz"), Path("traces"))

Calls come from the nn.Module ranges and Python frames of `with_stack=True`, commands from
correlation ids. A call's time is its range on the host, and later kernels are still its
commands. Memory comes from `profile_memory=True`. Files are ranks of one job if
`distributedInfo` agrees.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, structs

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    PlacedCall,
    attribution_of,
    call_at,
    without_work,
)
from profiler.importers.importer import only_path
from profiler.importers.job_run import (
    InJob,
    JobRun,
    aligned_ranks,
    check_one_job,
    job_of_ranks,
    name_of,
    placed_ranks,
)
from profiler.importers.kineto import IMPORTER, traces_in
from profiler.importers.kineto.calls import (
    CallRange,
    SubmoduleNames,
    find_sections,
    iterations_by_step,
)
from profiler.importers.kineto.commands import (
    CommandWriter,
    collectives_of,
    host_activities,
    in_job,
    job_of_one,
)
from profiler.importers.kineto.cuda_graphs import (
    Replays,
    calls_of,
    captures_beside,
    captures_in,
    captures_of,
    graph_launches,
    joined,
)
from profiler.importers.kineto.health import (
    checked_trace,
    launches_work,
    operators_alone,
    processes_of,
    without_front_ends,
    without_gaps,
)
from profiler.importers.kineto.launches import (
    DEVICE_WORK,
    OPERATORS,
    BatchSizes,
    capture_windows,
    find_launches,
    only_captures_graphs,
)
from profiler.importers.kineto.modules import PYTHON, Frames, ModulePaths
from profiler.importers.kineto.stages import StagedCall, Staging, add_host_work, stage_section
from profiler.kineto.arguments import Args, whole
from profiler.kineto.operators import Scalar
from profiler.kineto.trace_file import KinetoTrace, device_kind, read_kineto
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns, Counter, Int64s
from profiler.trace.events import (
    GRAPH_CAPTURE,
    NO_CALL,
    NO_STEP,
    ROOT_DEVICE,
    Call,
    DropKind,
    DropReason,
    Span,
    device_of_rank,
)
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    CallsFrom,
    ClockName,
    Clocks,
    Device,
    Graphs,
    Job,
    Recording,
    Submodule,
    quantity,
)

# --- What the manifest says of an imported run: devices, submodules, how it was recorded, what is
# missing.


_VERSIONS = (
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)
_SETTINGS = ("with_stack", "record_shapes", "with_modules", "profile_memory")


def _devices(trace: KinetoTrace, writer: CommandWriter) -> dict[str, Device]:
    """Return the properties that the trace has of each device, by the device names of commands."""
    known = {whole(entry.get("id"), 0): entry for entry in _properties(trace)}
    names = {_text(entry.get("name")) for entry in known.values()}
    alike = next(iter(known.values())) if len(names) == 1 else {}
    found = {writer.root: Device()}
    for device in sorted({*writer.devices} - {writer.root}):
        entry = known.get(int(device.rpartition(":")[2]), alike)
        found[device] = Device(
            hardware=_text(entry.get("name")),
            memory_bytes=quantity(entry.get("totalGlobalMem")),
            compute_units=quantity(entry.get("numSms")),
        )
    return found


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""


def _properties(trace: KinetoTrace) -> Iterator[dict[str, Any]]:
    raw = trace.header.devices
    try:
        entries = msgspec.json.decode(raw) if raw else []
    except msgspec.DecodeError:
        return
    if isinstance(entries, list):
        yield from (entry for entry in entries if isinstance(entry, dict))


# --- Memory of torch's allocators, from the `[memory]` instants of `profile_memory=True`.
#
# Each has the bytes that were allocated or freed (`Bytes`), and since torch 1.12 the bytes that the
# device's allocator then had allocated (`Total Allocated`) and reserved (`Total Reserved`). Without
# these, and on the host, whose allocator counts only while it is recorded, only the sum of changes
# is known. It lacks what was allocated before, and the counter's name says so.


_HOST = 0  # c10::DeviceType::CPU
_ALLOCATED, _RESERVED = "torch allocated", "torch reserved"
_RELATIVE = "torch allocated since the pipeline began"
_LARGEST = 1 << 42  # bytes; a million of them still add up in an int64


class MemoryLevels(Struct, frozen=True, eq=False):
    """An allocator's memory: `values[i]` bytes from `times_ns[i]` on, both int64 [n], n > 0."""

    device: str
    name: str
    times_ns: Int64s
    values: Int64s

    def between(self, start_ns: int, end_ns: int) -> Counter | None:
        """The counter of one call: the level at its start, then every change in it; None if no
        level is known by its end."""
        first, last = np.searchsorted(self.times_ns, (start_ns, end_ns)).tolist()
        times, values = self.times_ns[first:last], self.values[first:last]
        if first:
            times = np.append(start_ns, times)
            values = np.append(self.values[first - 1], values)
        return Counter(self.device, self.name, "bytes", times, values) if len(times) else None

    def outside(self, ranges: Iterable[tuple[int, int]]) -> Counter | None:
        """The changes outside of all `ranges`; None if there are none."""
        kept = np.ones(len(self.times_ns), dtype=np.bool_)
        for start_ns, end_ns in ranges:
            first, last = np.searchsorted(self.times_ns, (start_ns, end_ns)).tolist()
            kept[first:last] = False
        if not kept.any():
            return None
        return Counter(self.device, self.name, "bytes", self.times_ns[kept], self.values[kept])


def memory_levels(
    trace: KinetoTrace, kind: str, worked: Collection[str], prefix: str = ""
) -> tuple[MemoryLevels, ...]:
    """The memory of the allocators in a trace, by device and name. `kind` is the kind of its
    devices, `worked` are the devices that did any work, `prefix` starts all device names. Instants
    without a size or a device are left out.

    Allocators number the devices that the process sees, kernels on ROCm those of the machine: if
    one device worked and one allocated, they are the same.
    """
    by_device: dict[str, list[tuple[int, Args]]] = {}
    for event, time_ns in zip(trace.memory, trace.memory_ns.tolist(), strict=True):
        args = event.args
        device = _device(args, kind, prefix) if args is not None else None
        if args is not None and device is not None and _bytes(args.changed) is not None:
            by_device.setdefault(device, []).append((time_ns, args))
    root = f"{prefix}{ROOT_DEVICE}"
    held = by_device.keys() - {root}
    working = {*worked} - {root}
    if len(held) == len(working) == 1:
        by_device[working.pop()] = by_device.pop(held.pop())
    found: list[MemoryLevels] = []
    for device, samples in sorted(by_device.items()):
        times = np.array([time for time, _ in samples], dtype=np.int64)
        order = np.argsort(times, kind="stable")
        values = [samples[i][1] for i in order.tolist()]
        found += _levels(device, device == root, times[order], values)
    return tuple(found)


def _levels(device: str, on_host: bool, times: Int64s, args: Sequence[Args]) -> list[MemoryLevels]:
    allocated = [_bytes(one.allocated) for one in args]
    if on_host or not any(allocated) or None in allocated:
        changes = np.array([_bytes(one.changed) for one in args], dtype=np.int64)
        return [MemoryLevels(device, _RELATIVE, times, np.cumsum(changes))]
    found = [MemoryLevels(device, _ALLOCATED, times, np.array(allocated, dtype=np.int64))]
    reserved = [_bytes(one.reserved) for one in args]
    if any(reserved) and None not in reserved:
        found.append(MemoryLevels(device, _RESERVED, times, np.array(reserved, dtype=np.int64)))
    return found


def _device(args: Args, kind: str, prefix: str) -> str | None:
    """The device of an instant's memory; None if the instant does not name one."""
    of_type, number = _bytes(args.device_type), _bytes(args.device_id)
    if of_type == _HOST:
        return f"{prefix}{ROOT_DEVICE}"
    known = of_type is not None and number is not None and number >= 0
    return f"{prefix}{kind}:{number}" if known else None


def _bytes(given: Scalar) -> int | None:
    """A size in bytes; None if it is no whole number or impossibly large."""
    try:
        size = int(given) if given is not None else None
    except (ValueError, OverflowError):
        return None
    return size if size is not None and abs(size) < _LARGEST else None


# --- Other counters: power, clocks, temperature, how busy units were; any name.


_OF_DEVICE = re.compile(r"GPU (\d{1,4})\b")  # the process of a device's counters in torch ≥ 2.14


def other_counters(trace: KinetoTrace, writer: CommandWriter) -> tuple[Counter, ...]:
    """The counters of a trace other than memory, on the device that their process stands for, else
    on the host."""
    samples = trace.samples
    if not samples.names:
        return ()
    order = np.lexsort((samples.time_ns, samples.series))
    sizes = np.bincount(samples.series, minlength=len(samples.names))
    parts = np.split(order, np.cumsum(sizes)[:-1])
    known = {*writer.devices}
    return tuple(
        Counter(
            _sampled(pid, writer, known), name, "count", samples.time_ns[rows], samples.value[rows]
        )
        for (pid, name), rows in zip(samples.names, parts, strict=True)
    )


def _sampled(pid: Scalar, writer: CommandWriter, known: Collection[str]) -> str:
    """The device of the counters of a process."""
    found = _OF_DEVICE.match(str(pid))
    number = whole(found[1], 0) if found else whole(pid, NO_CALL)
    device = f"{writer.prefix}{writer.kind}:{number}"
    return device if found or device in known else writer.root


# --- A torch.profiler (Kineto) trace → a bundle as capture writes it: calls by `calls` and
# `stages`, what ran in them by `launches` and `commands`.


_TRACE_ENDINGS = re.compile(
    r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$|\.(?:zip|tar|tgz|tar\.gz|pftrace|db)$"
)


class KinetoRun(Struct, frozen=True):
    """The run of one trace: its calls, and the writer of their commands."""

    path: Path
    trace: KinetoTrace
    frames: Frames
    stagings: tuple[Staging, ...]
    calls: tuple[StagedCall, ...]
    writer: CommandWriter
    memory: tuple[MemoryLevels, ...]
    counters: tuple[Counter, ...]
    calls_from: CallsFrom | None
    graphs: Graphs | None
    job: Job | None = None  # that it is the only rank of which there is a trace
    importer: str = "kineto"

    @property
    def name(self) -> str:
        """The file's name without endings for packing."""
        return _TRACE_ENDINGS.sub("", self.path.name)

    @property
    def capabilities(self) -> set[str]:
        """The timeline, what the profiler was asked to record, and whether the run was a graph
        capture."""
        launched = bool((self.writer.launches.launch >= 0).any())
        known = {
            "launches": launched,
            "shapes": self._has_shapes(),
            "bytes": "gpu_memcpy" in self.trace.rows,
            "memory": bool(self.memory),
            "metrics": bool(self.counters),
            GRAPH_CAPTURE: only_captures_graphs(self.trace),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    @property
    def launches_work(self) -> bool:
        """Whether the trace has launches and device work."""
        return launches_work(self.trace)

    @property
    def operators_alone(self) -> int:
        """The number of operators, if the trace has neither launches nor device work; else 0."""
        return operators_alone(self.trace)

    def _has_shapes(self) -> bool:
        """Whether operators have shapes; old versions do not say that they were recorded."""
        stated = self.trace.header.record_shapes
        operators = self.trace.rows_of(OPERATORS)
        if stated is not None:
            return bool(stated and len(operators))
        return any(bytes(one.dims) for one in self.trace.events.args.alike(operators)[0])

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """Yield the ranges that the program named, with their starts."""
        for row in self.trace.rows_of("user_annotation").tolist():
            yield self.trace.events[row].name, int(self.trace.start_ns[row])

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file per call, and what ran outside calls as host work."""
        return self.builder().write(bundle)

    def builder(self) -> ForeignRunBuilder:
        """Return the run as a builder; commands are made one call at a time."""
        trace, writer, header, stagings = self.trace, self.writer, self.trace.header, self.stagings
        launches = writer.launches
        run = ForeignRunBuilder(
            self.importer, self.name, self.path, None, job=self.job, all_traced=True
        )
        run.pipeline = stagings[0].section.name
        versions = {name: getattr(header, name) for name in _VERSIONS}
        run.versions = {name: str(value) for name, value in versions.items() if value is not None}
        run.devices = _devices(trace, writer)
        staged = [call for staging in stagings for call in staging.calls]
        run.submodules = {  # the first call of each is the last that is kept
            call.submodule: Submodule(model=call.range.class_name if call.range.class_known else "")
            for call in reversed(staged)
        }
        recorded = {name: getattr(header, name) for name in _SETTINGS}
        if not len(trace.rows_of(OPERATORS, PYTHON)):  # asked for, but nothing of the host is there
            recorded = {"profile_memory": header.profile_memory}
        run.recording = structs.replace(
            Recording(calls_from=self.calls_from, graphs=self.graphs),
            steps_from=tuple(sorted({s.steps_from for s in stagings if s.steps_from})),
            **{name: bool(value) for name, value in recorded.items() if value is not None},
        )
        run.clocks = Clocks(clock=ClockName.REALTIME, base_ns=whole(header.base_ns, 0))
        by_device, begin = writer.by_device(), min(call.range.start_ns for call in self.calls)
        run.host_activities = host_activities(trace, launches, by_device, begin)
        columns = trace.duration_ns[launches.row], launches.call >= 0, launches.launch < 0
        run.attribution = {name: attribution_of(*columns, rows) for name, rows in by_device.items()}
        run.health, run.shortened = trace.health, tuple(writer.shortened())
        run.occupancy = tuple(writer.occupancy())
        run.workless = without_work(launches.unserved[1], launches.call)
        run.drop(DropKind.DROPPED_EVENTS, trace.dropped, "events", DropReason.NEVER_RAN)
        run.spans += (span for staging in stagings for span in staging.spans())
        run.counters += self.free_counters()
        run.make_calls = lambda: (self.call(at, at) for at in range(len(self.calls)))
        run.make_host = self.host
        return run

    def call(self, number: int, index: int) -> PlacedCall:
        """Return a call by its position in `calls`, as that `index` of the bundle."""
        staged, builder = self.calls[number], CommandBuilder()
        self.writer.write(number, builder)
        start, end = staged.range.start_ns, staged.range.end_ns
        made = call_at(
            *(index, staged.submodule, start, end - start),
            *(self.writer.device_of(number), len(builder) > 0),
            stage=staged.stage,
            step=staged.step,
            branch=staged.branch,
            iteration=staged.iteration,
        )
        levels = [one.between(start, made.end_ns) for one in self.memory]
        return PlacedCall(made, builder.build(), [one for one in levels if one is not None])

    def call_ends(self) -> list[int]:
        """When each of its calls returned."""
        return [call.range.end_ns for call in self.calls]

    def spans(self) -> Iterator[tuple[int, Span]]:
        """Yield the spans of the pipeline calls, with the numbers of these."""
        for number, staging in enumerate(self.stagings):
            for span in staging.spans():
                yield number, span

    def info(self, calls: Sequence[Call]) -> RunInfo:
        """The manifest of the run; `calls` are its own, in order, with their indices in the
        bundle."""
        info = self.builder().info(sorted(calls, key=lambda call: call.index))
        workless = sorted(calls[number].index for number in info.workless)
        return structs.replace(info, workless=tuple(workless))

    def host(self) -> CommandColumns:
        """What ran outside calls, as host work."""
        builder = CommandBuilder()

        def place_at(time_ns: int) -> tuple[str, int]:
            for staging in self.stagings:
                stage = staging.stage_at(time_ns)
                if stage:
                    return stage, staging.step_at(time_ns)
            return "", NO_STEP

        for staging in self.stagings:
            add_host_work(self.frames, staging, builder, self.writer.root)
        self.writer.write(NO_CALL, builder, place_at)
        return builder.build()

    def free_counters(self) -> list[Counter]:
        """The memory samples outside calls, and all samples of other counters."""
        ranges = [(call.range.start_ns, call.range.end_ns) for call in self.calls]
        counters = [one.outside(ranges) for one in self.memory]
        return [*(one for one in counters if one is not None), *self.counters]


def read_run(paths: Sequence[Path], capture: Path | None = None) -> KinetoRun | JobRun:
    """Read what torch.profiler recorded: one trace, plain or packed, or those of a job, or folders
    of these. `capture` is a trace, or a folder of traces, with captures of the graphs that the
    trace replays; by default the folder `capture_traces` beside it.

    Raises InputError if a file is not such a trace or contains nothing that ran, or if `capture` is
    of another model.
    """
    files = [one for path in paths for one in (traces_in(path) if path.is_dir() else (path,))]
    if len(files) > 1:
        if capture:
            raise InputError(
                f"--capture {capture} is for one trace, and {len(files)} are given: leave it "
                "out, or put captures into capture_traces/ beside the traces"
            )
        return run_of_job(files, [read_kineto(path) for path in files])
    path = only_path(files, IMPORTER.accepts)
    trace = checked_trace(without_front_ends(read_kineto(path)))
    (trace,) = without_gaps([trace])
    captures = (capture,) if capture else ()
    return run_of(trace, path, captures, job=job_of_one(trace, path.name))


def run_of(
    trace: KinetoTrace,
    path: Path,
    captures: Sequence[Path] = (),
    *,
    prefix: str = "",
    job: Job | None = None,
    importer: str = "kineto",
) -> KinetoRun:
    """The run of a trace that was read by the importer `importer`; `prefix` starts the names of its
    devices."""
    if not len(trace.rows_of(*DEVICE_WORK, OPERATORS, PYTHON)):
        raise InputError(
            f"{path} holds no operator, no kernel and no Python frame: record a whole step with "
            "torch.profiler.profile; if it is of another program, say which of its processes or "
            "threads are devices, --import device=REGEX"
        )
    frames = Frames.of(trace)
    replays = _replays(trace, path, captures)
    ranges, calls_from = calls_of(trace, frames, replays)
    names = SubmoduleNames()
    sizes = BatchSizes(trace)

    def batch_of(call: CallRange) -> int:
        return call.inputs or sizes.of(call)

    process = dict(enumerate(processes_of(trace)))
    sections = find_sections(frames, ranges)
    stagings = tuple(stage_section(one, names, batch_of, process) for one in sections)
    launches = find_launches(trace, frames, ranges)
    paths = ModulePaths(frames, (index for call in ranges for index in call.modules))
    phases = calls_from is not None and calls_from is not CallsFrom.ANNOTATIONS
    writer = CommandWriter(
        trace, launches, paths, device_kind(trace), phases, replays.entries, prefix
    )
    position = {id(call): number for number, call in enumerate(ranges)}
    placed = sorted((c for s in stagings for c in s.calls), key=lambda c: position[id(c.range)])
    # the profiler's own numbers of its steps, if it made several
    numbers = iterations_by_step(trace, [call.range for call in placed])
    if numbers is not None:
        both = zip(placed, numbers, strict=True)
        placed = [replace(call, iteration=number) for call, number in both]
    memory = memory_levels(trace, writer.kind, set(writer.devices), prefix)
    calls, graphs = tuple(placed), _graphs(trace, replays)
    counters = other_counters(trace, writer)
    of_calls = frames, stagings, calls, writer, memory, counters, calls_from
    return KinetoRun(path, trace, *of_calls, graphs, job, importer)


def _replays(trace: KinetoTrace, path: Path, captures: Sequence[Path]) -> Replays:
    """The graphs that the trace replays, matched with their captures."""
    launches = graph_launches(trace)
    if not len(launches) and not captures:
        return Replays()
    elsewhere = captures_of(captures or captures_beside(path))
    replays = joined(trace, launches, elsewhere or captures_in(trace, path))
    if captures and not replays.entries and not replays.uncompared:
        named = ", ".join(map(str, captures[:3]))
        raise InputError(
            f"{named} is the capture of another graph: at most {replays.best:.0%} of a replay's "
            f"kernels in {path} are its own, in order, where 98 % must be: give the capture of "
            "this model and batch size"
        )
    return replays


def _graphs(trace: KinetoTrace, replays: Replays) -> Graphs | None:
    captured = sum(len(window.launches) for window in capture_windows(trace))
    if not replays.replays and not captured:
        return None
    return Graphs(
        replays=replays.replays,
        kernels=replays.kernels,
        joined=len(replays.entries),
        captures=replays.captures,
        best=replays.best or None,
        uncompared=replays.uncompared,
        captured=captured,
    )


# --- The traces of several processes of one job → one run.
#
# They belong together by what `distributedInfo` says: the same number of processes and the same
# backend, each rank once. Their times are laid onto the clock of the lowest rank by collectives
# (`job_run`); a rank that too few relate to the others keeps its own, and a drop says so.


def run_of_job(
    paths: Sequence[Path], traces: Sequence[KinetoTrace], importer: str = "kineto"
) -> KinetoRun | JobRun:
    """The run of the traces of a job's ranks, which were read by the importer `importer`. Raises
    InputError if they are not of one job."""
    traces = [checked_trace(without_front_ends(trace)) for trace in traces]
    jobs = _jobs_of(paths, traces)
    order = sorted(range(len(paths)), key=lambda number: jobs[number].rank)
    paths, traces = [paths[i] for i in order], [traces[i] for i in order]
    jobs = [jobs[i] for i in order]
    times = [(int(trace.start_ns.min()), int(trace.end_ns.max())) for trace in traces]
    aligned = placed_ranks(times, aligned_ranks([collectives_of(trace) for trace in traces]))
    traces = without_gaps(
        [
            trace.moved(clock.moved) if clock.offset_ns or clock.drift else trace
            for trace, clock in zip(traces, aligned, strict=True)
        ]
    )
    runs = [
        run_of(trace, path, prefix=device_of_rank(one.rank, ""), importer=importer)
        for trace, path, one in zip(traces, paths, jobs, strict=True)
    ]
    times = [(int(trace.start_ns.min()), int(trace.end_ns.max())) for trace in traces]
    job = job_of_ranks(jobs, [path.name for path in paths], aligned, times)
    return JobRun(name_of(paths, runs), tuple(runs), job)


def _jobs_of(paths: Sequence[Path], traces: Sequence[KinetoTrace]) -> list[InJob]:
    """The rank and job that each trace names. Raises InputError if the jobs differ."""
    found: list[InJob] = []
    for path, trace in zip(paths, traces, strict=True):
        job = in_job(trace)
        if job is None:
            raise InputError(
                f"{path} does not say of which rank it is (distributedInfo), and {len(paths)} "
                "traces are one run where they are of one job: give one"
            )
        found.append(job)
    check_one_job(paths, found)
    return found
