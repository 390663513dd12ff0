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
from profiler.ort_profiles.profile import NodeEvent, ProfiledRun
from profiler.ort_profiles.providers import KNOWN, device_of_provider
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    ClockName,
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
        nodes = [node for placed in self.placed for node in placed.run.nodes]
        known = {
            "shapes": any(node.shapes.strip(" ->") for node in nodes),
            "bytes": any(node.bytes_written >= 0 for node in nodes),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and the pipeline's span."""
        names = [placed.session.name for placed in self.placed]
        labels = stages(names, [NO_ITERATION] * len(names))
        calls = []
        for number, (placed, label) in enumerate(zip(self.placed, labels, strict=True)):
            call = _call(number, placed, *label)
            bundle.write_call(call, _commands(placed))
            calls.append(call)
        empty = CommandBuilder().build()
        bundle.write_host(spans(self.name, calls), empty, ROOT_DEVICE)
        return self._info(calls)

    def _info(self, calls: Sequence[Call]) -> RunInfo:
        devices: dict[str, Counted[str]] = {}
        for call in calls:
            devices.setdefault(call.submodule, Counted())[call.device] += 1
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
            for node in placed.run.nodes:
                if node.name:
                    yield node.name, origin + node.start_ns

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
            if session.unread.kernels:
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
        if run.duration_ns >= 0 or run.nodes
    ]
    placed.sort(key=lambda one: one.start_ns)
    return OrtRun(tuple(sessions), tuple(placed))


def _providers(placed: Sequence[_Placed]) -> set[str]:
    return {node.provider for one in placed for node in one.run.nodes if node.provider}


def _device_of(provider: str) -> str:
    device = device_of_provider(provider, {})
    return device if device == ROOT_DEVICE or provider in KNOWN else _UNKNOWN_DEVICE


def _launches(provider: str) -> bool:
    """Whether its nodes only launch what its device runs."""
    return _device_of(provider).partition(":")[0] in _LAUNCHING


def _call(number: int, placed: _Placed, stage: str, step: int, iteration: int) -> Call:
    nodes = placed.run.nodes
    length = placed.run.duration_ns
    if length < 0:  # the run was under way when the profile ended
        length = max(node.start_ns + node.duration_ns for node in nodes) - placed.run.start_ns
    time = Counted[str]()
    for node in nodes:
        if not _launches(node.provider):
            time[_device_of(node.provider) if node.provider else ROOT_DEVICE] += node.duration_ns
    return Call(
        index=number,
        submodule=placed.session.name,
        stage=stage,
        branch="",
        step=step,
        device=time.most_common(1)[0][0] if time else ROOT_DEVICE,
        start_ns=placed.start_ns,
        duration_ns=length,
        ops_traced=bool(nodes),
        iteration=iteration,
    )


def _commands(placed: _Placed) -> CommandColumns:
    builder = CommandBuilder()
    threads: dict[tuple[str, str], list[int]] = {}
    origin = placed.start_ns - placed.run.start_ns
    for position, node in enumerate(placed.run.nodes):
        builder.add(
            _track(node, threads),
            node.name or f"{node.op_type or 'node'}_{position}",
            node.op_type,
            origin + node.start_ns,
            node.duration_ns,
            shapes="" if not node.shapes.strip(" ->") else node.shapes,
            bytes_read=node.bytes_read,
            bytes_written=node.bytes_written,
        )
    return builder.build()


def _track(node: NodeEvent, threads: dict[tuple[str, str], list[int]]) -> Track:
    """The track of its provider on its thread; of the host, where it only launches."""
    provider = node.provider or "provider unknown"
    launches = _launches(node.provider)
    device = ROOT_DEVICE if launches or not node.provider else _device_of(node.provider)
    category: Category = "host" if launches else "compute"
    name = f"{provider} launches" if launches else provider
    if node.op_type in _TRANSFERS and not launches:
        category, name = "dma", "Memcpy"
    seen = threads.setdefault((device, name), [])
    if node.thread not in seen:
        seen.append(node.thread)
    number = seen.index(node.thread)
    return Track(device, f"{name} thread {number}" if number else name, category)
