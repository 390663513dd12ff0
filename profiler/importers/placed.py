"""A run whose calls and commands an importer has placed: what is left is to write them.

    return PlacedRun("openvino", name, path, placed=calls, capabilities=frozenset({"averages"}))

`timelines` puts calls that were recorded one by one behind each other, a pipeline call each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from profiler.drop_reasons import DropReason
from profiler.events import (
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    Span,
    Track,
)
from profiler.importers.components import device_by_submodule
from profiler.notes import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns, Counter
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_clocks import Clocks
from profiler.trace.manifest_fields import (
    Device,
    HostActivity,
    Recording,
    Setting,
    Submodule,
    Warmup,
)
from profiler.trace.manifest_overhead import Overhead, UnknownCost, WhyUnknown

__all__ = [
    "PlacedCall",
    "PlacedRun",
    "Timed",
    "end_to_end",
    "one_behind_other",
    "spans_of",
    "timelines",
]

_AROUND = "inference"  # what the host calls the time around the layers of a call


@dataclass(frozen=True, slots=True, eq=False)
class PlacedCall:
    """A call and its commands."""

    call: Call
    commands: CommandColumns


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRun:
    """A `ForeignRun`. `outside` are commands of no call; `model` is what the files say was run,
    `pipeline` what runs that may be compared have in common, by default the run's name."""

    producer: str
    name: str
    path: Path
    placed: tuple[PlacedCall, ...]
    capabilities: frozenset[str]
    spans: tuple[Span, ...]
    devices: Mapping[str, Device] = field(default_factory=lambda: MappingProxyType({}))
    files: int = 1
    outside: CommandColumns | None = None
    counters: tuple[Counter, ...] = ()
    drops: tuple[Drop, ...] = ()
    clocks: Clocks = field(default_factory=Clocks)
    warmup: Warmup | None = None
    recording: Recording = field(default_factory=Recording)
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    model: str = ""
    pipeline: str = ""
    host_activities: tuple[HostActivity, ...] = ()

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, the spans, and what ran in no call."""
        for one in self.placed:
            bundle.write_call(one.call, one.commands)
        outside = self.outside if self.outside is not None else CommandBuilder().build()
        bundle.write_host(self.spans, outside, ROOT_DEVICE, self.counters)
        return self._info()

    def _info(self) -> RunInfo:
        recording = self.recording
        return RunInfo(
            producer=self.producer,
            pipeline=self.pipeline or self.name,
            model=self.model,
            command_line=("profile-sd3", "import", str(self.path)),
            versions=dict(self.versions),
            devices={ROOT_DEVICE: Device(), **self.devices},
            submodules=self._submodules(),
            settings=dict(self.settings),
            recording=Recording(
                source=self.path.name,
                files=self.files,
                calls_from=recording.calls_from,
                described_as=recording.described_as,
            ),
            clocks=self.clocks,
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            warmup=self.warmup,
            drops=self.drops,
            host_activities=self.host_activities,
        )

    def _submodules(self) -> dict[str, Submodule]:
        calls = [one.call for one in self.placed]
        traced = {call.submodule for call in calls if call.ops_traced}
        return {
            name: Submodule(device=device, activate_profiler=name in traced)
            for name, device in device_by_submodule(calls).items()
        }


@dataclass(frozen=True, slots=True)
class Timed:
    """A layer of which a file tells how long it takes, and not when."""

    name: str
    duration_ns: int
    op_type: str = ""
    kernel: str = ""
    shapes: str = ""
    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN


def end_to_end(
    submodule: str,
    track: Track,
    layers: Sequence[Timed],
    start_ns: int = 0,
    iteration: int = 0,
    lasts_ns: int = 0,
) -> PlacedCall:
    """One call whose commands are laid end to end, in their order, from `start_ns` on. Where it is
    known that it `lasts_ns`, longer than these, a command of the host around them says so."""
    builder, at = CommandBuilder(), start_ns
    if lasts_ns > sum(one.duration_ns for one in layers):
        host = Track(ROOT_DEVICE, _AROUND, "host")
        builder.add(host, _AROUND, _AROUND, start_ns, lasts_ns)
    for one in layers:
        builder.add(
            track,
            one.name,
            one.op_type,
            at,
            one.duration_ns,
            kernel=one.kernel,
            shapes=one.shapes,
            bytes_read=one.bytes_read,
            bytes_written=one.bytes_written,
        )
        at += one.duration_ns
    call = Call(
        index=0,
        submodule=submodule,
        stage=RUN_STAGE,
        branch="",
        step=NO_STEP,
        device=track.device,
        start_ns=start_ns,
        duration_ns=max(at - start_ns, lasts_ns),
        ops_traced=len(builder) > 0,
        iteration=iteration,
    )
    return PlacedCall(call, builder.build())


def timelines(
    name: str, apart: Sequence[Sequence[PlacedCall]]
) -> tuple[tuple[PlacedCall, ...], tuple[Span, ...], tuple[Drop, ...]]:
    """Calls that have a clock together, these groups one behind the other: the calls, the spans of
    each group and what is to be said of it, where there are several."""
    groups = [group for group in apart if group]
    placed: list[PlacedCall] = []
    spans: list[Span] = []
    begin = 0
    for number, group in enumerate(groups):
        by = begin - min(map(_begin, group)) if number else 0
        moved = [_moved(one, len(placed) + k, number, by) for k, one in enumerate(group)]
        spans += spans_of(moved, number)
        begin = max(map(_end, moved))
        placed += moved
    drops = []
    if len(groups) > 1:
        note = Note.of(DropReason.TIMELINES_APART)
        drops.append(Drop(DropKind.ESTIMATED_TIMES, name, len(groups), "timelines", note))
    return tuple(placed), tuple(spans), tuple(drops)


def one_behind_other(calls: Sequence[PlacedCall]) -> tuple[PlacedCall, ...]:
    """Calls of one pipeline call with their numbers, at the times that they have."""
    return tuple(_moved(one, number, 0, 0) for number, one in enumerate(calls))


def spans_of(placed: Sequence[PlacedCall], pipeline: int, name: str = "") -> list[Span]:
    """The pipeline around calls, called `name` or as the first of them, and the stage that all of
    it is."""
    begin = min(map(_begin, placed))
    lasted = max(map(_end, placed)) - begin
    called = name or placed[0].call.submodule
    return [
        Span("pipeline", called, "", NO_STEP, begin, lasted, pipeline),
        Span("stage", RUN_STAGE, RUN_STAGE, NO_STEP, begin, lasted, pipeline),
    ]


def _begin(placed: PlacedCall) -> int:
    begins: list[int] = placed.commands.start_ns.tolist()
    return min(placed.call.start_ns, *begins, placed.call.end_ns)


def _end(placed: PlacedCall) -> int:
    ends: list[int] = placed.commands.end_ns.tolist()
    return max(placed.call.end_ns, *ends, 0)


def _moved(placed: PlacedCall, index: int, pipeline: int, by: int) -> PlacedCall:
    call = replace(placed.call, index=index, pipeline=pipeline, start_ns=placed.call.start_ns + by)
    return PlacedCall(call, replace(placed.commands, start_ns=placed.commands.start_ns + by))
