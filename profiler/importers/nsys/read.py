"""An export of Nsight Systems → a bundle.

    import_trace(Path("report.sqlite"), Path("traces"))
    import_trace(Path("report.sqlite"), Path("traces"), options={"submodules": "encoder,dit"})

Times of the file are ns from the session's begin, which the file tells in UTC; where it does not,
they are kept, moved so that none is negative. Names of processes and threads, of the whole machine,
and its environment are not read.
"""

from __future__ import annotations

from collections import Counter as Counted
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import NO_CALL, ROOT_DEVICE, Call, Drop, DropKind
from profiler.importers.nsys.activity import Api, Work, launches, read_api, read_work
from profiler.importers.nsys.calls import PlacedCall, Placing, place, spans
from profiler.importers.nsys.commands import Commands, Devices
from profiler.importers.nsys.database import NsysDatabase, open_nsys
from profiler.importers.nsys.machine import Machine, read_machine
from profiler.importers.nsys.metrics import read_metrics
from profiler.importers.nsys.nvtx import Nvtx, read_nvtx
from profiler.notes import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import Counter, Int64s
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    ClockName,
    Clocks,
    Device,
    Overhead,
    Recording,
    Submodule,
    UnknownCost,
    WhyUnknown,
)

__all__ = ["NsysRun", "read_run"]


@dataclass(frozen=True, slots=True, eq=False)
class NsysRun:
    """What an export holds; times are on the run's clock."""

    path: Path
    machine: Machine
    work: Work
    api: Api
    nvtx: Nvtx
    launch: Int64s
    placing: Placing
    devices: Devices
    metrics: tuple[Counter, ...]
    drops: tuple[Drop, ...]

    @property
    def name(self) -> str:
        """The file's name."""
        name = self.path.name.removesuffix(".gz")
        return name.removesuffix(".sqlite").removesuffix(".db")

    @property
    def capabilities(self) -> set[str]:
        """The timeline, and what else was recorded."""
        known = {
            "launches": bool((self.launch >= 0).any()),
            "shapes": len(self.nvtx.shapes) > 1,
            "bytes": bool((self.work.bytes >= 0).any()),
            "metrics": bool(self.metrics),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and what ran in none as host work."""
        call = np.concatenate((self.placing.work, self.placing.api))
        commands = Commands.of(self.work, self.api, self.nvtx, self.devices, self.launch, call)
        placed = enumerate(self.placing.calls)
        calls = [self._write_call(bundle, commands, number, one) for number, one in placed]
        last = int(self.work.end[self.placing.work >= 0].max(initial=0))
        told = spans(self.placing, self.name, last)
        bundle.write_host(told, commands.columns(NO_CALL), ROOT_DEVICE, self.metrics)
        return self._info(calls)

    def _write_call(
        self, bundle: BundleWriter, commands: Commands, number: int, placed: PlacedCall
    ) -> Call:
        columns = commands.columns(number)
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
        codes = self.devices.code[self.placing.work == number]
        if not len(codes):
            return ROOT_DEVICE
        return self.devices.names[int(np.bincount(codes).argmax())]

    def _info(self, calls: list[Call]) -> RunInfo:
        counted: dict[str, Counted[str]] = {}
        for call in calls:
            counted.setdefault(call.submodule, Counted())[call.device] += 1
        return RunInfo(
            producer="nsys",
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(self.path)),
            versions=self.machine.versions,
            devices={ROOT_DEVICE: Device(), **self.machine.devices},
            submodules={
                name: Submodule(device=found.most_common(1)[0][0], activate_profiler=True)
                for name, found in counted.items()
            },
            recording=Recording(source=self.path.name),
            clocks=Clocks(
                clock=ClockName.REALTIME if self.machine.utc else None,
                base_ns=self.machine.base_ns,
            ),
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            attribution=self._attribution(),
            drops=self.drops,
        )

    def _attribution(self) -> dict[str, Attribution]:
        """By device: how much of its time belongs to calls, and how many launches are unknown."""
        length = self.work.end - self.work.start
        inside = self.placing.work >= 0
        found = {}
        for code, device in enumerate(self.devices.names):
            here = self.devices.code == code
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


def read_run(path: Path, submodules: str = "") -> NsysRun:
    """Read an export; `submodules` are the texts of the NVTX ranges that are calls, with commas.

    Raises InputError where the file is none, is damaged, or holds no work of a device.
    """
    given = [name.strip() for name in submodules.split(",") if name.strip()]
    with open_nsys(path) as database:
        return _read(path, database, given)


def _read(path: Path, database: NsysDatabase, given: list[str]) -> NsysRun:
    recorded, asked = read_work(database), read_api(database)
    work, api = recorded.timed(), asked.timed()
    if not len(work):
        raise InputError(
            f"{path} holds no kernel and no copy of a GPU: record with "
            "`nsys profile --trace=cuda,nvtx` and export that"
        )
    nvtx = read_nvtx(database, given)
    missing = [name for name in given if name not in nvtx.texts]
    if missing:
        raise InputError(
            f"{path} has no NVTX range {missing[0]!r}: give names of ranges that are there"
        )
    machine = read_machine(database, work, api)
    base = machine.base_ns
    work, api, nvtx = work.moved(base), api.moved(base), nvtx.moved(base)
    launch = launches(work, api)
    devices = Devices(*machine.placed)
    return NsysRun(
        path=path,
        machine=machine,
        work=work,
        api=api,
        nvtx=nvtx,
        launch=launch,
        placing=place(work, api, launch, nvtx),
        devices=devices,
        metrics=read_metrics(database, base),
        drops=tuple(_drops(path, len(recorded) - len(work), len(asked) - len(api), nvtx.unclosed)),
    )


def _drops(path: Path, work: int, api: int, unclosed: int) -> list[Drop]:
    timeless = [(work, "commands"), (api, "events")]
    found = [
        Drop(DropKind.DROPPED_EVENTS, path.name, count, unit, Note.of(DropReason.NO_TIME))
        for count, unit in timeless
        if count
    ]
    if unclosed:
        note = Note.of(DropReason.NO_END)
        found.append(Drop(DropKind.UNCLOSED_SLICE, path.name, unclosed, "events", note))
    return found
