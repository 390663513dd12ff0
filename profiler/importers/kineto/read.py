"""A torch.profiler (Kineto) trace → a bundle as capture writes it.

    import_trace(Path("sd35.json.gz"), Path("traces"))

What is a call and what it is for comes from the nn.Module ranges and Python frames that
`with_stack=True` records (`calls`, `stages`, `names`); what ran in it from correlation ids
(`launch`, `commands`). A call's time is its range on the host, as
its caller saw it: kernels that a device ran later are still the call's commands.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from profiler.errors import InputError
from profiler.events import NO_CALL, NO_STEP, ROOT_DEVICE, Call
from profiler.importers.kineto.calls import CallRange, find_sections
from profiler.importers.kineto.commands import CommandWriter, device_kind, whole
from profiler.importers.kineto.frames import PYTHON, Frames
from profiler.importers.kineto.gaps import host_activities
from profiler.importers.kineto.host import add_host_work
from profiler.importers.kineto.iterations import iterations_by_step
from profiler.importers.kineto.launch import (
    DEVICE_WORK,
    OPERATORS,
    Launches,
    batch_size,
    find_launches,
)
from profiler.importers.kineto.layers import ModulePaths
from profiler.importers.kineto.memory import MemoryLevels, memory_levels
from profiler.importers.kineto.names import SubmoduleNames
from profiler.importers.kineto.regions import calls_of
from profiler.importers.kineto.stages import PlacedCall, Staging, stage_section
from profiler.kineto.trace_file import KinetoTrace, read_kineto
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, Counter
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    CallsFrom,
    ClockName,
    Clocks,
    Device,
    Overhead,
    Recording,
    Submodule,
    UnknownCost,
    WhyUnknown,
    quantity,
)

__all__ = ["KinetoRun", "read_run"]

_VERSIONS = (
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)
_SETTINGS = ("with_stack", "record_shapes", "with_modules", "profile_memory")


@dataclass(frozen=True, slots=True)
class KinetoRun:
    """The calls of a trace, and what writes their commands."""

    path: Path
    trace: KinetoTrace
    frames: Frames
    stagings: tuple[Staging, ...]
    calls: tuple[PlacedCall, ...]
    writer: CommandWriter
    memory: tuple[MemoryLevels, ...]
    calls_from: CallsFrom | None = None

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name.removesuffix(".gz").removesuffix(".json")

    @property
    def capabilities(self) -> set[str]:
        """The timeline, and what the profiler was asked to record."""
        launched = bool((self.writer.launches.launch >= 0).any())
        known = {
            "launches": launched,
            "shapes": bool(self.trace.header.record_shapes),
            "memory": bool(self.memory),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and what ran in no call as host work."""
        calls = [
            _write_call(bundle, self.writer, number, call, self.memory)
            for number, call in enumerate(self.calls)
        ]
        ranges = [(call.range.start_ns, call.range.end_ns) for call in self.calls]
        counters = [one.outside(ranges) for one in self.memory]
        free = [counter for counter in counters if counter is not None]
        _write_host(bundle, self.writer, self.frames, self.stagings, free)
        return _info(self, calls)


def read_run(path: Path) -> KinetoRun:
    """Read what a torch.profiler trace recorded: Chrome JSON, plain or gzip.

    Raises InputError where the file is no such trace or holds nothing that ran.
    """
    trace = read_kineto(path)
    if not len(trace.rows_of(*DEVICE_WORK, OPERATORS, PYTHON)):
        raise InputError(
            f"{path} holds no operator, no kernel and no Python frame: record a whole step with "
            "torch.profiler.profile"
        )
    frames = Frames.of(trace)
    ranges, calls_from = calls_of(trace, frames)
    names = SubmoduleNames()

    def batch_of(call: CallRange) -> int:
        return batch_size(trace, call)

    stagings = tuple(stage_section(s, names, batch_of) for s in find_sections(frames, ranges))
    launches = find_launches(trace, frames, ranges)
    paths = ModulePaths(frames, (index for call in ranges for index in call.modules))
    writer = CommandWriter(trace, launches, paths, device_kind(trace))
    position = {id(call): number for number, call in enumerate(ranges)}
    placed = sorted((c for s in stagings for c in s.calls), key=lambda c: position[id(c.range)])
    placed = _numbered(trace, placed)
    memory = memory_levels(trace, writer.kind, set(writer.devices))
    return KinetoRun(path, trace, frames, stagings, tuple(placed), writer, memory, calls_from)


def _numbered(trace: KinetoTrace, placed: list[PlacedCall]) -> list[PlacedCall]:
    """The calls with the profiler's own numbers of its steps, where it made several."""
    numbers = iterations_by_step(trace, [call.range for call in placed])
    if numbers is None:
        return placed
    return [replace(call, iteration=number) for call, number in zip(placed, numbers, strict=True)]


def _write_call(
    bundle: BundleWriter,
    writer: CommandWriter,
    number: int,
    placed: PlacedCall,
    memory: Sequence[MemoryLevels],
) -> Call:
    builder = CommandBuilder()
    writer.write(number, builder)
    commands = builder.build()
    call = Call(
        index=number,
        submodule=placed.submodule,
        stage=placed.stage,
        branch=placed.branch,
        step=placed.step,
        device=writer.device_of(number),
        start_ns=placed.range.start_ns,
        duration_ns=placed.range.end_ns - placed.range.start_ns,
        ops_traced=len(commands) > 0,
        iteration=placed.iteration,
    )
    found = [one.between(call.start_ns, call.end_ns) for one in memory]
    bundle.write_call(call, commands, [counter for counter in found if counter is not None])
    return call


def _write_host(
    bundle: BundleWriter,
    writer: CommandWriter,
    frames: Frames,
    stagings: Sequence[Staging],
    counters: Sequence[Counter],
) -> None:
    def place_at(time_ns: int) -> tuple[str, int]:
        for staging in stagings:
            stage = staging.stage_at(time_ns)
            if stage:
                return stage, staging.step_at(time_ns)
        return "", NO_STEP

    builder = CommandBuilder()
    for staging in stagings:
        add_host_work(frames, staging, builder)
    writer.write(NO_CALL, builder, place_at)
    spans = [span for staging in stagings for span in staging.spans()]
    bundle.write_host(spans, builder.build(), ROOT_DEVICE, counters)


def _info(run: KinetoRun, calls: Sequence[Call]) -> RunInfo:
    trace, stagings, writer = run.trace, run.stagings, run.writer
    header = trace.header
    versions = {name: getattr(header, name) for name in _VERSIONS}
    recorded = {name: getattr(header, name) for name in _SETTINGS}
    recording = Recording(
        source=run.path.name,
        calls_from=run.calls_from,
        steps_from=tuple(sorted({s.steps_from for s in stagings if s.steps_from})),
    )
    told = {name: bool(value) for name, value in recorded.items() if value is not None}
    return RunInfo(
        producer="kineto",
        pipeline=stagings[0].section.name,
        command_line=("profile-sd3", "import", str(run.path)),
        versions={name: str(value) for name, value in versions.items() if value is not None},
        devices=_devices(trace, writer, calls),
        submodules=_submodules(calls, stagings),
        recording=structs.replace(recording, **told),
        clocks=Clocks(clock=ClockName.REALTIME, base_ns=whole(header.base_ns, 0)),
        overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
        host_activities=host_activities(
            trace, writer.launches, writer.devices, min(call.start_ns for call in calls)
        ),
        attribution=_attribution(trace, writer.launches, writer.devices),
    )


def _devices(trace: KinetoTrace, writer: CommandWriter, calls: Sequence[Call]) -> dict[str, Device]:
    """What the trace says of each device, by the name that commands use."""
    known = {whole(entry.get("id"), 0): entry for entry in _properties(trace)}
    names = {entry.get("name") for entry in known.values()}
    alike = next(iter(known.values())) if len(names) == 1 else {}
    found = {ROOT_DEVICE: Device()}
    for device in sorted({*writer.devices, *(call.device for call in calls)} - {ROOT_DEVICE}):
        entry = known.get(int(device.rpartition(":")[2]), alike)
        found[device] = Device(
            hardware=str(entry.get("name", "")),
            memory_bytes=quantity(entry.get("totalGlobalMem")),
            compute_units=quantity(entry.get("numSms")),
        )
    return found


def _properties(trace: KinetoTrace) -> Iterator[dict[str, Any]]:
    raw = bytes(trace.header.deviceProperties)
    try:
        entries = msgspec.json.decode(raw) if raw else []
    except msgspec.DecodeError:
        return
    if isinstance(entries, list):
        yield from (entry for entry in entries if isinstance(entry, dict))


def _submodules(calls: Sequence[Call], stagings: Sequence[Staging]) -> dict[str, Submodule]:
    placed = [call for staging in stagings for call in staging.calls]
    devices: dict[str, Counted[str]] = {}
    for call in calls:
        devices.setdefault(call.submodule, Counted())[call.device] += 1
    return {
        submodule: Submodule(
            device=found.most_common(1)[0][0],
            activate_profiler=True,
            model=next(_model(c.range) for c in placed if c.submodule == submodule),
        )
        for submodule, found in devices.items()
    }


def _model(call: CallRange) -> str:
    return call.class_name if call.told else ""


def _attribution(
    trace: KinetoTrace, launches: Launches, devices: Sequence[str]
) -> dict[str, Attribution]:
    """By device: how much of its time belongs to calls, and what led there."""
    durations = trace.duration_ns[launches.row]
    found: dict[str, Attribution] = {}
    for device in sorted(set(devices)):
        here = np.array([name == device for name in devices], dtype=np.bool_)
        in_calls = here & (launches.call >= 0)
        total, attributed = int(durations[here].sum()), int(durations[in_calls].sum())
        found[device] = Attribution(
            to=AttributedTo.CALLS,
            attributed_ns=quantity(attributed) or 0,
            total_ns=quantity(total) or 0,
            share=attributed / total if total else 1.0,
            commands=int(here.sum()),
            commands_outside_calls=int((here & ~in_calls).sum()),
            launch_unknown=int((here & (launches.launch < 0)).sum()),
        )
    return found
