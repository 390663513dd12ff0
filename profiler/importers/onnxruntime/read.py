"""Profiles of ONNX Runtime → a bundle: each `session.run` is a call, each node a command.

    import_trace(Path("unet_2026-05-01_10-11-12.json"), Path("traces"))
    import_trace(Path("profiles"), Path("traces"))          # several sessions of one run

A provider that works for the host (CUDA, TensorRT, ROCm, …) returns when it has launched: its nodes
are commands of the host, since nothing tells when its device ran them.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.events import (
    NO_ITERATION,
    ROOT_DEVICE,
    UNKNOWN,
    Call,
    Category,
    Drop,
    DropKind,
    Track,
)
from profiler.importers.components import stages
from profiler.importers.onnxruntime.sessions import Session, read_sessions
from profiler.importers.spans import spans
from profiler.notes import Note
from profiler.ort_profiles.commands import CommandTable, Placed
from profiler.ort_profiles.nodes import NodeKind
from profiler.ort_profiles.profile import ProfiledRun
from profiler.ort_profiles.providers import KNOWN, device_of_provider
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    Clocks,
    Device,
    Overhead,
    Recording,
    Submodule,
    UnknownCost,
    WhyUnknown,
)

__all__ = ["OrtRun", "read_run"]

_TRANSFERS = ("MemcpyToHost", "MemcpyFromHost")
_LAUNCHING = ("cuda", "rocm", "tensorrt", "dml", "webgpu", "js")
_UNKNOWN_DEVICE = "npu:0"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A run of a session and when it began, on the run's clock."""

    session: Session
    run: ProfiledRun
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
        nodes = [one for placed in self.placed for one in placed.run.nodes.there()]
        known = {
            "shapes": any(one.shapes.strip(" ->") for one in nodes),
            "bytes": any(one.bytes_written >= 0 for one in nodes),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and the pipeline's span."""
        names = [placed.session.name for placed in self.placed]
        labels = stages(names, [NO_ITERATION] * len(names))
        calls = []
        tables: dict[str, CommandTable] = {}
        for number, (placed, label) in enumerate(zip(self.placed, labels, strict=True)):
            call = _call(number, placed, *label)
            name = placed.session.name
            if name not in tables:
                tables[name] = CommandTable(placed.run.nodes.kinds, _command)
            origin = placed.start_ns - placed.run.start_ns
            bundle.write_call(call, tables[name].commands(placed.run.nodes, origin))
            calls.append(call)
        empty = CommandBuilder().build()
        bundle.write_host(spans(self.name, calls), empty, ROOT_DEVICE)
        return self._info(calls)

    def _info(self, calls: Sequence[Call]) -> RunInfo:
        devices: dict[str, Counted[str]] = {}
        for call in calls:
            devices.setdefault(call.submodule, Counted())[call.device] += 1
        begun = self.sessions[0].begin_ns
        return RunInfo(
            producer="onnxruntime",
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(self.sessions[0].path)),
            devices=self._devices(),
            submodules={
                name: Submodule(device=found.most_common(1)[0][0], activate_profiler=True)
                for name, found in devices.items()
            },
            recording=Recording(source=self.sessions[0].path.name, files=len(self.sessions)),
            clocks=Clocks(base_ns=begun) if begun is not None else Clocks(),
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            drops=tuple(self._drops()),
        )

    def _devices(self) -> dict[str, Device]:
        """The devices that commands ran on, with the provider that used each."""
        found: dict[str, Device] = {ROOT_DEVICE: Device()}
        for provider in sorted(_providers(self.placed)):
            device = _device_of(provider)
            if device != ROOT_DEVICE and not _launches(provider):
                found.setdefault(device, Device(provider=provider))
        return found

    def _drops(self) -> list[Drop]:
        found = []
        for session in self.sessions:
            where = session.path.name
            dropped = sum(run.dropped for run in session.runs)
            if dropped:
                note = Note.of(DropReason.PROFILE_FULL)
                found.append(Drop(DropKind.DROPPED_EVENTS, where, dropped, "events", note))
            if session.unread.lines:
                note = Note.of(DropReason.DAMAGED)
                lines = session.unread.lines
                found.append(Drop(DropKind.DROPPED_EVENTS, where, lines, "events", note))
            if False:
                note = Note.of(DropReason.KERNELS_BY_END)
                kernels = session.unread.kernels
                found.append(Drop(DropKind.DROPPED_EVENTS, where, kernels, "commands", note))
        for provider in sorted(filter(_launches, _providers(self.placed))):
            note = Note.of(DropReason.LAUNCH_TIMES, provider=provider)
            device = _device_of(provider)
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
        _Placed(session, run, (session.begin_ns or 0) + run.start_ns)
        for session in sessions
        for run in session.runs
        if run.duration_ns >= 0 or len(run.nodes)
    ]
    placed.sort(key=lambda one: one.start_ns)
    return OrtRun(tuple(sessions), tuple(placed))


def _providers(placed: Sequence[_Placed]) -> set[str]:
    return {node.provider for one in placed for node in one.run.nodes.there() if node.provider}


@lru_cache(maxsize=256)
def _device_of(provider: str) -> str:
    device = device_of_provider(provider, {})
    return device if device == ROOT_DEVICE or provider in KNOWN else _UNKNOWN_DEVICE


@lru_cache(maxsize=256)
def _launches(provider: str) -> bool:
    """Whether its nodes only launch what its device runs."""
    return _device_of(provider).partition(":")[0] in _LAUNCHING


def _call(number: int, placed: _Placed, stage: str, step: int, iteration: int) -> Call:
    nodes = placed.run.nodes
    length = placed.run.duration_ns
    if length < 0:  # the run was under way when the profile ended
        length = int((nodes.start_ns + nodes.duration_ns).max()) - placed.run.start_ns
    time = Counted[str]()
    kinds, place = np.unique(nodes.kind, return_inverse=True)
    spent = np.zeros(len(kinds), dtype=np.int64)
    np.add.at(spent, place.reshape(-1), nodes.duration_ns)
    for code, duration in zip(kinds.tolist(), spent.tolist(), strict=True):
        provider = nodes.kinds[code].provider
        if not _launches(provider):
            time[_device_of(provider) if provider else ROOT_DEVICE] += duration
    return Call(
        index=number,
        submodule=placed.session.name,
        stage=stage,
        branch="",
        step=step,
        device=time.most_common(1)[0][0] if time else ROOT_DEVICE,
        start_ns=placed.start_ns,
        duration_ns=length,
        ops_traced=len(nodes) > 0,
        iteration=iteration,
    )


def _command(node: NodeKind) -> Placed:
    """The command of a node: on the track of its provider; of the host, where it only launches."""
    provider = node.provider or "provider unknown"
    launches = _launches(node.provider)
    device = ROOT_DEVICE if launches or not node.provider else _device_of(node.provider)
    category: Category = "host" if launches else "compute"
    name = f"{provider} launches" if launches else provider
    if node.op_type in _TRANSFERS and not launches:
        category, name = "dma", "Memcpy"
    return Placed(Track(device, name, category), node.name)
