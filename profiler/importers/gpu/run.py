"""What a recorder of GPUs saw → a bundle. An importer reads its files into two values:

    return GpuRun.of(source, recorded, machine)

Launches, calls, devices, spans and what is dropped for want of a time follow from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.events import NO_CALL, ROOT_DEVICE, Call, Drop, DropKind
from profiler.importers.components import device_by_submodule
from profiler.importers.gpu.activity import Api, Work, launches
from profiler.importers.gpu.calls import PlacedCall, Placing, place
from profiler.importers.gpu.commands import Commands, Devices
from profiler.importers.gpu.marks import Marks
from profiler.importers.spans import spans
from profiler.notes import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import Counter, Int32s, Int64s
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_clocks import ClockName, Clocks
from profiler.trace.manifest_fields import AttributedTo, Attribution, Device, Recording, Submodule
from profiler.trace.manifest_overhead import Overhead, UnknownCost, WhyUnknown

__all__ = ["GpuRun", "Machine", "Recorded", "Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run is from: the importer's name, the path that was given, how many files it is, and
    what to call the run."""

    producer: str
    path: Path
    name: str
    files: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What the files hold, in their times. `drops` are what of them is left out already."""

    work: Work
    api: Api
    marks: Marks
    drops: tuple[Drop, ...] = ()

    def timed(self, where: str) -> Recorded:
        """What has a begin, and an end that is not before it; the rest is a drop."""
        work, api = self.work.timed(), self.api.timed()
        timeless = [
            (len(self.work) - len(work), "commands"),
            (len(self.api) - len(api), "events"),
        ]
        found = [
            Drop(DropKind.DROPPED_EVENTS, where, count, unit, Note.of(DropReason.NO_TIME))
            for count, unit in timeless
            if count
        ]
        if self.marks.unclosed:
            note = Note.of(DropReason.NO_END)
            unclosed = self.marks.unclosed
            found.append(Drop(DropKind.UNCLOSED_SLICE, where, unclosed, "events", note))
        return Recorded(work, api, self.marks, (*self.drops, *found))

    def move(self, base_ns: int) -> None:
        """Put the times `base_ns` later, in place: a second copy of a large file's is too much."""
        for part in (self.work, self.api, self.marks):
            np.add(part.start, base_ns, out=part.start)
            np.add(part.end, base_ns, out=part.end)


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """`base_ns` is to be added to the files' times, which are those of `clock` then; `placed` has
    the device of each piece of work. `counters` are on the run's clock already."""

    base_ns: int
    clock: ClockName | None
    placed: Devices
    devices: Mapping[str, Device]
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class GpuRun:
    """A run of an importer; times are on the run's clock."""

    source: Source
    machine: Machine
    work: Work
    shapes: bool  # whether ranges tell any
    launch: Int64s
    placing: Placing
    commands: Commands
    ranges: tuple[tuple[str, ...], Int32s, Int64s]  # their texts, the code and begin of each
    domains: tuple[str, ...]  # named ones that ranges which say what ran are of
    drops: tuple[Drop, ...]

    @classmethod
    def of(cls, source: Source, recorded: Recorded, machine: Machine) -> GpuRun:
        """`recorded` is timed, and the run's from now on; it holds work."""
        recorded.move(machine.base_ns)
        work, api, marks = recorded.work, recorded.api, recorded.marks
        launch = launches(work, api)
        placing = place(work, api, launch, marks)
        call = np.concatenate((placing.work, placing.api))
        commands = Commands.of(work, api, marks, machine.placed, launch, call)
        shapes, ranges = len(marks.shapes) > 1, (marks.texts, marks.text, marks.start)
        drops = recorded.drops
        domains = marks.speaking
        return cls(source, machine, work, shapes, launch, placing, commands, ranges, domains, drops)

    @property
    def name(self) -> str:
        """What to call the run."""
        return self.source.name

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """The ranges that the program named, with their begins."""
        texts, text, start = self.ranges
        for code, begin in zip(text.tolist(), start.tolist(), strict=True):
            yield texts[code], begin

    @property
    def capabilities(self) -> set[str]:
        """The timeline, and what else was recorded."""
        known = {
            "launches": bool((self.launch >= 0).any()),
            "shapes": self.shapes,
            "bytes": bool((self.work.bytes >= 0).any()),
            "metrics": any(one.unit != "bytes" for one in self.machine.counters),
            "memory": any(one.unit == "bytes" for one in self.machine.counters),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and what ran in none as host work."""
        placed = enumerate(self.placing.calls)
        calls = [self._write_call(bundle, number, one) for number, one in placed]
        last = int(self.work.end[self.placing.work >= 0].max(initial=0))
        told = spans(self.name, self.placing.calls, last)
        outside = self.commands.columns(NO_CALL)
        bundle.write_host(told, outside, ROOT_DEVICE, self.machine.counters)
        return self._info(calls)

    def _write_call(self, bundle: BundleWriter, number: int, placed: PlacedCall) -> Call:
        columns = self.commands.columns(number)
        call = Call(
            index=number,
            submodule=placed.submodule,
            stage=placed.stage,
            branch="",
            step=placed.step,
            device=self._device_of(number),
            start_ns=placed.start_ns,
            duration_ns=placed.end_ns - placed.start_ns,
            ops_traced=len(columns) > 0,
            iteration=placed.iteration,
        )
        bundle.write_call(call, columns)
        return call

    def _device_of(self, number: int) -> str:
        """The device that most of a call's work ran on, the root device where none did."""
        devices = self.machine.placed
        codes = self.commands.device_codes(number, devices)
        return devices.names[int(np.bincount(codes).argmax())] if len(codes) else ROOT_DEVICE

    def _info(self, calls: list[Call]) -> RunInfo:
        source, machine = self.source, self.machine
        return RunInfo(
            producer=source.producer,
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(source.path)),
            versions=dict(machine.versions),
            devices={ROOT_DEVICE: Device(), **machine.devices},
            submodules={
                name: Submodule(device=device, activate_profiler=True)
                for name, device in device_by_submodule(calls).items()
            },
            recording=Recording(
                source=source.path.name, files=source.files, nvtx_domains=self.domains
            ),
            clocks=Clocks(clock=machine.clock, base_ns=machine.base_ns),
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            attribution=self._attribution(),
            drops=self.drops,
        )

    def _attribution(self) -> dict[str, Attribution]:
        """By device: how much of its time belongs to calls, and how many launches are unknown."""
        length = self.work.end - self.work.start
        inside = self.placing.work >= 0
        found = {}
        for code, device in enumerate(self.machine.placed.names):
            here = self.machine.placed.code == code
            total, attributed = int(length[here].sum()), int(length[here & inside].sum())
            found[device] = Attribution(
                to=AttributedTo.CALLS,
                attributed_ns=attributed,
                total_ns=total,
                share=attributed / total if total else 1.0,
                commands=int(here.sum()),
                commands_outside_calls=int((here & ~inside).sum()),
                launch_unknown=int((here & (self.launch < 0)).sum()),
            )
        return found
