"""What the manifest says of an imported run: devices, submodules, how it was recorded, what is
missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from profiler.drop_reasons import DropReason
from profiler.events import Call, Drop, DropKind
from profiler.importers.components import device_by_submodule
from profiler.importers.kineto.calls import CallRange
from profiler.importers.kineto.commands import CommandWriter
from profiler.importers.kineto.gaps import host_activities
from profiler.importers.kineto.launch import Launches
from profiler.importers.kineto.stages import Staging
from profiler.kineto.events import whole
from profiler.kineto.trace_file import KinetoTrace
from profiler.notes import Note
from profiler.trace.columns import Int64s
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_clocks import ClockName, Clocks
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    Device,
    Recording,
    Submodule,
    quantity,
)
from profiler.trace.manifest_overhead import Overhead, UnknownCost, WhyUnknown

if TYPE_CHECKING:
    from profiler.importers.kineto.read import KinetoRun

__all__ = ["described"]

_VERSIONS = (
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)
_SETTINGS = ("with_stack", "record_shapes", "with_modules", "profile_memory")


def described(run: KinetoRun, calls: Sequence[Call]) -> RunInfo:
    """What the manifest says of a run whose calls were written."""
    trace, stagings, writer = run.trace, run.stagings, run.writer
    by_device = writer.by_device()
    header = trace.header
    versions = {name: getattr(header, name) for name in _VERSIONS}
    recorded = {name: getattr(header, name) for name in _SETTINGS}
    recording = Recording(
        source=run.path.name,
        calls_from=run.calls_from,
        graphs=run.graphs,
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
            trace, writer.launches, by_device, min(call.start_ns for call in calls)
        ),
        attribution=_attribution(trace, writer.launches, by_device),
        drops=tuple(_drops(run)),
        job=run.job,
    )


def _drops(run: KinetoRun) -> Iterator[Drop]:
    if run.trace.dropped:
        detail = Note(DropReason.NEVER_RAN)
        yield Drop(DropKind.DROPPED_EVENTS, run.path.name, run.trace.dropped, "events", detail)


def _devices(trace: KinetoTrace, writer: CommandWriter, calls: Sequence[Call]) -> dict[str, Device]:
    """What the trace says of each device, by the name that commands use."""
    known = {whole(entry.get("id"), 0): entry for entry in _properties(trace)}
    names = {entry.get("name") for entry in known.values()}
    alike = next(iter(known.values())) if len(names) == 1 else {}
    found = {writer.root: Device()}
    for device in sorted({*writer.devices, *(call.device for call in calls)} - {writer.root}):
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
    return {
        submodule: Submodule(
            device=device,
            activate_profiler=True,
            model=next(_model(c.range) for c in placed if c.submodule == submodule),
        )
        for submodule, device in device_by_submodule(calls).items()
    }


def _model(call: CallRange) -> str:
    return call.class_name if call.told else ""


def _attribution(
    trace: KinetoTrace, launches: Launches, by_device: Mapping[str, Int64s]
) -> dict[str, Attribution]:
    """By device: how much of its time belongs to calls, and what led there."""
    durations = trace.duration_ns[launches.row]
    found: dict[str, Attribution] = {}
    for device, here in by_device.items():
        in_calls = here[launches.call[here] >= 0]
        total, attributed = int(durations[here].sum()), int(durations[in_calls].sum())
        found[device] = Attribution(
            to=AttributedTo.CALLS,
            attributed_ns=quantity(attributed) or 0,
            total_ns=quantity(total) or 0,
            share=attributed / total if total else 1.0,
            commands=len(here),
            commands_outside_calls=len(here) - len(in_calls),
            launch_unknown=int((launches.launch[here] < 0).sum()),
        )
    return found
