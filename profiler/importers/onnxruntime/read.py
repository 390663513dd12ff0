"""Profiles of ONNX Runtime → a bundle: each `session.run` is a call, each node a command.

    import_trace(Path("unet_2026-05-01_10-11-12.json"), Path("traces"))
    import_trace(Path("profiles"), Path("traces"))          # several sessions of one run

A provider that works for the host (CUDA, TensorRT, ROCm, …) returns when it has launched: its nodes
are commands of the host, since nothing tells when its device ran them.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.events import (
    NO_ITERATION,
    ROOT_DEVICE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    Track,
)
from profiler.importers.components import device_by_submodule, stages
from profiler.importers.onnxruntime.devices import device_of, launches
from profiler.importers.onnxruntime.kernels import KernelKind
from profiler.importers.onnxruntime.sessions import Session, read_sessions
from profiler.importers.spans import spans
from profiler.notes import Note
from profiler.ort_profiles.commands import CommandTable, Placed
from profiler.ort_profiles.nodes import NodeKind
from profiler.ort_profiles.profile import ProfiledRun
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns, Int64s
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_clocks import ClockName, Clocks
from profiler.trace.manifest_fields import Device, Recording, Submodule
from profiler.trace.manifest_overhead import Overhead, UnknownCost, WhyUnknown

__all__ = ["OrtRun", "read_run"]

_TRANSFERS = ("MemcpyToHost", "MemcpyFromHost")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A run of a session and when it began, on the run's clock."""

    session: Session
    run: ProfiledRun
    flows: Int64s
    start_ns: int


@dataclass(frozen=True, slots=True)
class OrtRun:
    """The sessions and their runs, in order of their begins."""

    sessions: tuple[Session, ...]
    placed: tuple[_Placed, ...]

    @property
    def name(self) -> str:
        """The only file's name, else that of the files' folder."""
        path = self.sessions[0].path
        if len(self.sessions) > 1:
            return path.absolute().parent.name
        return path.name.removesuffix(".gz").removesuffix(".json")

    @property
    def capabilities(self) -> set[str]:
        """The timeline, and what the version that wrote the files tells of nodes."""
        nodes = [kind for session in self.sessions for kind in session.kinds]
        known = {
            "shapes": any(one.shapes.strip(" ->") for one in nodes),
            "bytes": any(one.bytes_written >= 0 for one in nodes),
        }
        if any(len(placed.flows) for placed in self.placed):
            known["launches"] = True
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and the pipeline's span."""
        names = [placed.session.name for placed in self.placed]
        labels = stages(names, [NO_ITERATION] * len(names))
        calls = []
        tables = {one.name: CommandTable(one.kinds, _command) for one in self.sessions}
        for number, (placed, label) in enumerate(zip(self.placed, labels, strict=True)):
            origin = placed.start_ns - placed.run.start_ns
            commands = tables[placed.session.name].commands(placed.run.nodes, origin, placed.flows)
            call = _call(number, placed, commands, *label)
            bundle.write_call(call, commands)
            calls.append(call)
        empty = CommandBuilder().build()
        bundle.write_host(spans(self.name, calls), empty, ROOT_DEVICE)
        return self._info(calls)

    def _info(self, calls: Sequence[Call]) -> RunInfo:
        return RunInfo(
            producer="onnxruntime",
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(self.sessions[0].path)),
            devices=self._devices(),
            submodules={
                name: Submodule(device=device, activate_profiler=True)
                for name, device in device_by_submodule(calls).items()
            },
            recording=Recording(source=self.sessions[0].path.name, files=len(self.sessions)),
            clocks=self._clocks(),
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            drops=tuple(self._drops()),
        )

    def _clocks(self) -> Clocks:
        """That of the files' names, which tell no zone."""
        begun = self.sessions[0].begin_ns
        if begun is None:
            return Clocks()
        within = max(session.within_ns for session in self.sessions)
        return Clocks(clock=ClockName.LOCAL_TIME, base_ns=begun, within_ns=within)

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """Nodes with their begins: a build of ONNX Runtime with NVTX marks them so."""
        for placed in self.placed:
            origin = placed.start_ns - placed.run.start_ns
            nodes = placed.run.nodes
            for kind, start in zip(nodes.each(), nodes.start_ns.tolist(), strict=True):
                if kind.name:
                    yield kind.name, origin + start

    def _devices(self) -> dict[str, Device]:
        """The devices that commands ran on, with the provider that used each."""
        found: dict[str, Device] = {ROOT_DEVICE: Device()}
        for provider in sorted(_providers(self.sessions)):
            device = device_of(provider)
            if device != ROOT_DEVICE and not launches(provider):
                found.setdefault(device, Device(provider=provider))
        for device in sorted(_worked(self.sessions)):
            by = [one for one in _providers(self.sessions) if device_of(one) == device]
            found.setdefault(device, Device(provider=min(by, default="")))
        return found

    def _drops(self) -> list[Drop]:
        found = []
        for session in self.sessions:
            where = session.path.name
            dropped = sum(run.dropped for run in session.runs)
            if dropped or session.full:
                note = Note.of(DropReason.PROFILE_FULL)
                found.append(
                    Drop(DropKind.DROPPED_EVENTS, where, dropped or UNKNOWN, "events", note)
                )
            found += [
                Drop(kind, where, count, unit, Note.of(reason))
                for kind, count, unit, reason in (
                    (DropKind.DROPPED_EVENTS, session.damaged, "events", DropReason.DAMAGED),
                    (
                        DropKind.DROPPED_EVENTS,
                        session.launched.lost,
                        "commands",
                        DropReason.KERNELS_OF_NO_RUN,
                    ),
                    (
                        DropKind.ESTIMATED_TIMES,
                        session.launched.by_end,
                        "commands",
                        DropReason.KERNELS_BY_END,
                    ),
                )
                if count
            ]
        told = self._devices()
        for provider in sorted(filter(launches, _providers(self.sessions))):
            device = device_of(provider)
            if device not in told:
                note = Note.of(DropReason.LAUNCH_TIMES, provider=provider)
                found.append(Drop(DropKind.DROPPED_EVENTS, device, UNKNOWN, "commands", note))
        if len(self.sessions) > 1:
            within = max(session.within_ns for session in self.sessions)
            note = Note.of(DropReason.BEGIN_BY_NAME, within_ns=within)
            count = len(self.sessions)
            found.append(Drop(DropKind.UNALIGNED_CLOCK, self.name, count, "files", note))
        return found


def read_run(paths: Sequence[Path]) -> OrtRun:
    """Read the profiles of one run: files, or folders of them.

    Raises InputError where a file cannot be read or none has a run.
    """
    sessions = read_sessions(paths)
    placed = [
        _Placed(session, run, flows, (session.begin_ns or 0) + run.start_ns)
        for session in sessions
        for run, flows in zip(session.runs, session.launched.flows, strict=True)
        if run.duration_ns >= 0 or len(run.nodes)
    ]
    placed.sort(key=lambda one: one.start_ns)
    return OrtRun(tuple(sessions), tuple(placed))


def _providers(sessions: Sequence[Session]) -> set[str]:
    return {kind.provider for session in sessions for kind in session.kinds if kind.provider}


def _worked(sessions: Sequence[Session]) -> set[str]:
    """The devices whose work is told kernel by kernel."""
    kinds = [kind for session in sessions for kind in session.kinds]
    return {kind.track.device for kind in kinds if isinstance(kind, KernelKind)}


def _call(  # its labels, one by one
    number: int, placed: _Placed, commands: CommandColumns, stage: str, step: int, iteration: int
) -> Call:
    length = placed.run.duration_ns
    if length < 0:  # the run was under way when the profile ended
        length = int(commands.end_ns.max()) - placed.start_ns
    return Call(
        index=number,
        submodule=placed.session.name,
        stage=stage,
        branch="",
        step=step,
        device=_busiest(commands),
        start_ns=placed.start_ns,
        duration_ns=length,
        ops_traced=len(commands) > 0,
        iteration=iteration,
    )


def _busiest(commands: CommandColumns) -> str:
    """The device that worked longest, but for what the host launched."""
    time = Counted[str]()
    spent = np.bincount(commands.track, commands.duration_ns, len(commands.tracks))  # to 2^53
    for track, length in zip(commands.tracks, spent.tolist(), strict=True):
        if track.category != "host":
            time[track.device] += length
    return time.most_common(1)[0][0] if time else ROOT_DEVICE


def _command(node: NodeKind) -> Placed:
    """The command of a node: on the track of its provider; of the host, where it only launches."""
    if isinstance(node, KernelKind):
        return Placed(node.track, node.name, kernel=node.kernel)
    provider = node.provider or "provider unknown"
    if launches(node.provider):
        return Placed(Track(ROOT_DEVICE, f"{provider} launches", "host"), node.name)
    device = device_of(node.provider) if node.provider else ROOT_DEVICE
    moves = node.op_type in _TRANSFERS
    track = Track(device, "Memcpy", "dma") if moves else Track(device, provider, "compute")
    return Placed(track, node.name)
