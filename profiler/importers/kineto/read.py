"""A torch.profiler (Kineto) trace → a bundle as capture writes it.

    import_trace(Path("sd35.json.gz"), Path("traces"))

What is a call and what it is for comes from the nn.Module ranges and Python frames that
`with_stack=True` records (`calls`, `stages`, `names`); what ran in it from correlation ids
(`launch`, `commands`). A call's time is its range on the host, as
its caller saw it: kernels that a device ran later are still the call's commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from profiler.errors import InputError
from profiler.events import GRAPH_CAPTURE, NO_CALL, NO_STEP, Call
from profiler.importers.kineto.batch_sizes import BatchSizes
from profiler.importers.kineto.calls import CallRange
from profiler.importers.kineto.commands import CommandWriter, device_kind
from profiler.importers.kineto.described import described
from profiler.importers.kineto.frames import PYTHON, Frames
from profiler.importers.kineto.graph_capture import capture_windows, only_captures_graphs
from profiler.importers.kineto.graphs import (
    Replays,
    captures_beside,
    captures_in,
    captures_of,
    graph_launches,
    joined,
)
from profiler.importers.kineto.host import add_host_work
from profiler.importers.kineto.iterations import iterations_by_step
from profiler.importers.kineto.job_info import job_of_one
from profiler.importers.kineto.launch import DEVICE_WORK, OPERATORS, find_launches
from profiler.importers.kineto.layers import ModulePaths
from profiler.importers.kineto.memory import MemoryLevels, memory_levels
from profiler.importers.kineto.names import SubmoduleNames
from profiler.importers.kineto.regions import calls_of
from profiler.importers.kineto.sections import find_sections
from profiler.importers.kineto.stages import PlacedCall, Staging, stage_section
from profiler.kineto.trace_file import KinetoTrace, read_kineto
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, Counter
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import CallsFrom, Graphs
from profiler.trace.manifest_ranks import Job

__all__ = ["KinetoRun", "read_run", "run_of"]

_ENDINGS = re.compile(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$|\.(?:zip|tar|tgz|tar\.gz)$")


class KinetoRun(Struct, frozen=True):
    """The calls of a trace, and what writes their commands."""

    path: Path
    trace: KinetoTrace
    frames: Frames
    stagings: tuple[Staging, ...]
    calls: tuple[PlacedCall, ...]
    writer: CommandWriter
    memory: tuple[MemoryLevels, ...]
    calls_from: CallsFrom | None
    graphs: Graphs | None
    job: Job | None = None  # that it is the only rank of which there is a trace

    @property
    def name(self) -> str:
        """The file's name without what says how it is packed."""
        return _ENDINGS.sub("", self.path.name)

    @property
    def capabilities(self) -> set[str]:
        """The timeline, what the profiler was asked to record, and whether it was of a capture."""
        launched = bool((self.writer.launches.launch >= 0).any())
        known = {
            "launches": launched,
            "shapes": self._has_shapes(),
            "bytes": "gpu_memcpy" in self.trace.rows,
            "memory": bool(self.memory),
            GRAPH_CAPTURE: only_captures_graphs(self.trace),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def _has_shapes(self) -> bool:
        """Whether operators have shapes; old versions do not say that they were recorded."""
        told = self.trace.header.record_shapes
        if told is not None:
            return bool(told)
        operators = self.trace.rows_of(OPERATORS).tolist()
        events = (self.trace.events[row] for row in operators)
        return any(one.args is not None and bytes(one.args.dims) for one in events)

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """The ranges that the program named, with their begins."""
        for row in self.trace.rows_of("user_annotation").tolist():
            yield self.trace.events[row].name, int(self.trace.start_ns[row])

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and what ran in no call as host work."""
        calls = [self.write_call(bundle, number, number) for number in range(len(self.calls))]
        builder = CommandBuilder()
        self.add_host(builder)
        spans = [span for staging in self.stagings for span in staging.spans()]
        bundle.write_host(spans, builder.build(), self.writer.root, self.free_counters())
        return described(self, calls)

    def write_call(self, bundle: BundleWriter, number: int, index: int) -> Call:
        """Write the file of one call, by its place in `calls`, as that `index` of the bundle."""
        placed, writer = self.calls[number], self.writer
        builder = CommandBuilder()
        writer.write(number, builder)
        commands = builder.build()
        call = Call(
            index=index,
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
        found = [one.between(call.start_ns, call.end_ns) for one in self.memory]
        bundle.write_call(call, commands, [counter for counter in found if counter is not None])
        return call

    def add_host(self, builder: CommandBuilder) -> None:
        """Add what ran in no call as host work."""

        def place_at(time_ns: int) -> tuple[str, int]:
            for staging in self.stagings:
                stage = staging.stage_at(time_ns)
                if stage:
                    return stage, staging.step_at(time_ns)
            return "", NO_STEP

        for staging in self.stagings:
            add_host_work(self.frames, staging, builder, self.writer.root)
        self.writer.write(NO_CALL, builder, place_at)

    def free_counters(self) -> list[Counter]:
        """The samples of memory in no call."""
        ranges = [(call.range.start_ns, call.range.end_ns) for call in self.calls]
        counters = [one.outside(ranges) for one in self.memory]
        return [counter for counter in counters if counter is not None]


def read_run(path: Path, captures: Sequence[Path] = ()) -> KinetoRun:
    """Read what a torch.profiler trace recorded: Chrome JSON, plain or packed. `captures` are
    traces, or folders of them, of graphs that it replays; without any, those in `capture_traces`
    beside it.

    Raises InputError where the file is no such trace or holds nothing that ran, or where `captures`
    are of another model.
    """
    trace = read_kineto(path)
    return run_of(trace, path, captures, job=job_of_one(trace, path.name))


def run_of(
    trace: KinetoTrace,
    path: Path,
    captures: Sequence[Path] = (),
    *,
    prefix: str = "",
    job: Job | None = None,
) -> KinetoRun:
    """The run of a trace that was read; `prefix` begins the names of its devices."""
    if not len(trace.rows_of(*DEVICE_WORK, OPERATORS, PYTHON)):
        raise InputError(
            f"{path} holds no operator, no kernel and no Python frame: record a whole step with "
            "torch.profiler.profile"
        )
    frames = Frames.of(trace)
    replays = _replays(trace, path, captures)
    ranges, calls_from = calls_of(trace, frames, replays)
    names = SubmoduleNames()
    sizes = BatchSizes(trace)

    def batch_of(call: CallRange) -> int:
        return call.inputs or sizes.of(call)

    stagings = tuple(stage_section(s, names, batch_of) for s in find_sections(frames, ranges))
    launches = find_launches(trace, frames, ranges)
    paths = ModulePaths(frames, (index for call in ranges for index in call.modules))
    phases = calls_from is not None and calls_from is not CallsFrom.ANNOTATIONS
    writer = CommandWriter(
        trace, launches, paths, device_kind(trace), phases, replays.entries, prefix
    )
    position = {id(call): number for number, call in enumerate(ranges)}
    placed = sorted((c for s in stagings for c in s.calls), key=lambda c: position[id(c.range)])
    placed = _numbered(trace, placed)
    memory = memory_levels(trace, writer.kind, set(writer.devices), prefix)
    calls, graphs = tuple(placed), _graphs(trace, replays)
    return KinetoRun(path, trace, frames, stagings, calls, writer, memory, calls_from, graphs, job)


def _replays(trace: KinetoTrace, path: Path, captures: Sequence[Path]) -> Replays:
    """The graphs that the trace replays, with what their captures tell."""
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


def _numbered(trace: KinetoTrace, placed: list[PlacedCall]) -> list[PlacedCall]:
    """The calls with the profiler's own numbers of its steps, where it made several."""
    numbers = iterations_by_step(trace, [call.range for call in placed])
    if numbers is None:
        return placed
    return [replace(call, iteration=number) for call, number in zip(placed, numbers, strict=True)]
