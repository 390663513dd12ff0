"""What trtexec measured of TensorRT engines → a bundle.

    import_trace(Path("resnet.profile.json"), Path("traces"))
    import_trace(Path("exports"), Path("traces"))          # all that it exported, of any engines

An inference is a call: the host enqueues it, the device copies and computes. Layers were timed in
inferences of their own, of which averages are left: they are one call more, laid end to end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
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
from profiler.importers.components import component
from profiler.importers.tensorrt.files import Export, Kind, Row, exports_in, read_export
from profiler.importers.tensorrt.layers import Layer, layers_of
from profiler.notes import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    Clocks,
    Device,
    Overhead,
    Recording,
    Submodule,
    UnknownCost,
    Warmup,
    WhyUnknown,
)

__all__ = ["TensorRtRun", "read_run"]

_DEVICE = "cuda:0"
_WARMUP_MS = 200  # trtexec's default
_WARMUP = re.compile(r"\+ (\d+)\s*ms warm up")
_MEMORY = re.compile(r"(\d+) MiB")
_COPIES = {"HtoD": ("startH2dMs", "endH2dMs"), "DtoH": ("startD2hMs", "endD2hMs")}
_LATEST_MS = 1e12
_INFERENCE = "inference"  # its layer: an engine's file name would be read as a module's path


@dataclass(frozen=True, slots=True)
class _Engine:
    """The inferences that count, the layers, and what ran before them."""

    name: str
    rows: tuple[Row, ...]
    warm_up: tuple[Row, ...]
    layers: tuple[Layer, ...]
    device: Device

    @property
    def layered(self) -> str:
        """The submodule of the layers: one of its own beside inferences, whose times they are not
        part of."""
        return f"{self.name}.layers" if self.rows else self.name


@dataclass(frozen=True, slots=True)
class _Placed:
    """A call, the commands in it and the number of its timeline."""

    call: Call
    commands: CommandColumns


@dataclass(frozen=True, slots=True)
class TensorRtRun:
    """Engines in the order of their names, and the files that were read."""

    engines: tuple[_Engine, ...]
    exports: tuple[Export, ...]

    @property
    def name(self) -> str:
        """The only engine's name, else that of the files' folder."""
        if len(self.engines) == 1:
            return self.engines[0].name
        return self.exports[0].path.absolute().parent.name

    @property
    def capabilities(self) -> set[str]:
        """The timeline where inferences were timed, which averages of layers have none of; tensors
        where the layer file was there."""
        layers = [layer for engine in self.engines for layer in engine.layers]
        known = {
            "timeline": any(engine.rows for engine in self.engines),
            "averages": bool(layers),
            "shapes": any(layer.shapes for layer in layers),
            "bytes": any(layer.bytes_read >= 0 for layer in layers),
        }
        return {name for name, there in known.items() if there}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and a pipeline's span around each timeline."""
        placed = list(self._placed())
        for one in placed:
            bundle.write_call(one.call, one.commands)
        apart = groupby(placed, key=lambda one: one.call.pipeline)
        spans = [span for _, timeline in apart for span in _spans(list(timeline))]
        bundle.write_host(spans, CommandBuilder().build(), ROOT_DEVICE)
        return self._info()

    def _placed(self) -> Iterator[_Placed]:
        """The timelines one behind the other: each has a clock of its own."""
        index, pipeline, begin = 0, 0, 0
        for engine in self.engines:
            for made in (list(_inferences(engine)), list(_layered(engine))):
                if not made:
                    continue
                by = begin - min(map(_begin, made)) if pipeline else 0
                placed = [_moved(one, index + k, pipeline, by) for k, one in enumerate(made)]
                yield from placed
                index, pipeline = index + len(placed), pipeline + 1
                begin = max(map(_end, placed))

    def _info(self) -> RunInfo:
        warm = [row for engine in self.engines for row in engine.warm_up]
        lasted = sum(_ns(row.endComputeMs) - _ns(row.startComputeMs) for row in warm)
        first = self.exports[0].path
        return RunInfo(
            producer="tensorrt",
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(first)),
            devices={ROOT_DEVICE: Device(), _DEVICE: self.engines[0].device},
            submodules={
                name: Submodule(device=_DEVICE, activate_profiler=name == engine.layered)
                for engine in self.engines
                for name, there in ((engine.name, engine.rows), (engine.layered, engine.layers))
                if there
            },
            recording=Recording(source=first.name, files=len(self.exports)),
            clocks=Clocks(aligned=False) if self._timelines() > 1 else Clocks(),
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            warmup=Warmup(calls=len(warm), duration_ns=max(lasted, 0)) if warm else None,
            drops=tuple(self._drops()),
        )

    def _timelines(self) -> int:
        return sum(bool(engine.rows) + bool(engine.layers) for engine in self.engines)

    def _drops(self) -> Iterator[Drop]:
        for export in self.exports:
            if export.cut:
                note = Note.of(DropReason.ENTRIES_CUT)
                yield Drop(DropKind.TRUNCATED_FILE, export.path.name, UNKNOWN, "events", note)
            if export.unread:
                note = Note.of(DropReason.DAMAGED)
                yield Drop(DropKind.DROPPED_EVENTS, export.path.name, export.unread, "events", note)
        for engine in self.engines:
            if engine.layers:
                note = Note.of(DropReason.LAID_END_TO_END)
                count = len(engine.layers)
                yield Drop(DropKind.ESTIMATED_TIMES, engine.layered, count, "commands", note)
        if self._timelines() > 1:
            note = Note.of(DropReason.TIMELINES_APART)
            yield Drop(DropKind.ESTIMATED_TIMES, self.name, self._timelines(), "timelines", note)


def read_run(paths: Sequence[Path], warmup: int | None = None) -> TensorRtRun:
    """Read what trtexec exported, files or folders of one or several engines. Inferences that began
    within `warmup` ms of trtexec's start are left out.

    Raises InputError where a file cannot be read or none has a time.
    """
    files = [file for path in paths for file in (exports_in(path) if path.is_dir() else [path])]
    exports = sorted(map(read_export, files), key=lambda export: export.engine)
    if len({export.kind for export in exports}) == len(exports):  # one of each: of one engine
        together = [(_named(exports), exports)]
    else:
        by_name = groupby(exports, key=lambda export: export.engine)
        together = [(name, list(found)) for name, found in by_name]
    engines = [_engine(name, found, warmup) for name, found in together]
    timed = tuple(engine for engine in engines if engine.rows or engine.layers)
    if not timed:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(
            f"{named} holds no time of a layer or inference: give what `trtexec --exportProfile` "
            "or `--exportTimes` writes"
        )
    return TensorRtRun(timed, tuple(exports))


def _named(exports: Sequence[Export]) -> str:
    """The engine's name, by the file that has times."""
    timed = [export for export in exports if export.kind in (Kind.PROFILE, Kind.TIMES)]
    return (timed or exports)[0].engine


def _engine(name: str, exports: Sequence[Export], warmup: int | None) -> _Engine:
    by_kind: dict[Kind, Export] = {}
    for export in exports:
        if by_kind.setdefault(export.kind, export) is not export:
            raise InputError(
                f"{by_kind[export.kind].path} and {export.path} are both the {export.kind} of "
                f"{name}: give one, or name them after their engines"
            )
    summary = by_kind[Kind.SUMMARY].summary if Kind.SUMMARY in by_kind else {}
    rows = by_kind[Kind.TIMES].rows if Kind.TIMES in by_kind else ()
    whole = sorted(filter(_is_whole, rows), key=lambda row: row.startComputeMs)
    until = _warmup_of(summary) if warmup is None else warmup
    steady = tuple(row for row in whole if row.startComputeMs >= until)
    profile = by_kind.get(Kind.PROFILE)
    return _Engine(
        component(name) or name or "engine",
        steady or tuple(whole),
        tuple(row for row in whole if row.startComputeMs < until) if steady else (),
        tuple(layers_of(profile, by_kind.get(Kind.LAYERS))) if profile is not None else (),
        _device(summary),
    )


def _is_whole(row: Row) -> bool:
    """Whether its times can be times."""
    times = (row.startEnqMs, row.startComputeMs, row.startH2dMs, row.startD2hMs)
    ends = (row.endEnqMs, row.endComputeMs, row.endH2dMs, row.endD2hMs)
    return all(0 <= a <= b < _LATEST_MS for a, b in zip(times, ends, strict=True))


def _warmup_of(summary: dict[str, object]) -> int:
    asked = summary.get("inference_options")
    found = _WARMUP.search(str(asked.get("Duration", ""))) if isinstance(asked, dict) else None
    return int(found[1]) if found else _WARMUP_MS


def _device(summary: dict[str, object]) -> Device:
    told = summary.get("device_information")
    if not isinstance(told, dict):
        return Device()
    memory = _MEMORY.fullmatch(str(told.get("Device Global Memory", "")))
    units = told.get("SMs")
    return Device(
        hardware=str(told.get("Selected Device", ""))[:200],
        memory_bytes=int(memory[1]) << 20 if memory else None,
        compute_units=int(units) if isinstance(units, int | float) and 0 < units < 1e6 else None,
    )


def _inferences(engine: _Engine) -> Iterator[_Placed]:
    """The inferences. trtexec enqueues each while the one before computes: the first that counts
    begins when the last of the warm-up has ended, else it would wait for work that is left out."""
    free = max((_ns(row.endD2hMs) for row in engine.warm_up), default=0)
    for iteration, row in enumerate(engine.rows):
        builder = CommandBuilder()
        compute = Track(_DEVICE, "compute", "compute")
        start = _ns(row.startComputeMs)
        builder.add(compute, _INFERENCE, "Inference", start, _ns(row.endComputeMs) - start)
        for kind, (begin, end) in _COPIES.items():
            first, last = _ns(getattr(row, begin)), _ns(getattr(row, end))
            if last > first:
                copies = Track(_DEVICE, f"copies {kind}", "dma")
                builder.add(copies, _INFERENCE, f"Memcpy {kind}", first, last - first)
        begin_ns = _ns(row.startEnqMs)
        lasted = _ns(row.endEnqMs) - begin_ns
        from_ns = min(max(begin_ns, free), start) if begin_ns < start else begin_ns
        yield _Placed(_call(engine.name, from_ns, lasted, iteration), builder.build())


def _layered(engine: _Engine) -> Iterator[_Placed]:
    if not engine.layers:
        return
    builder = CommandBuilder()
    track, at = Track(_DEVICE, "layers", "compute"), 0
    for layer in engine.layers:
        builder.add(
            track,
            layer.name,
            layer.op_type,
            at,
            layer.average_ns,
            shapes=layer.shapes,
            bytes_read=layer.bytes_read,
            bytes_written=layer.bytes_written,
            kernel=layer.kernel,
        )
        at += layer.average_ns
    yield _Placed(_call(engine.layered, 0, at, 0), builder.build())


def _call(name: str, start_ns: int, duration_ns: int, iteration: int) -> Call:
    return Call(
        index=0,
        submodule=name,
        stage=RUN_STAGE,
        branch="",
        step=NO_STEP,
        device=_DEVICE,
        start_ns=start_ns,
        duration_ns=duration_ns,
        ops_traced=True,
        iteration=iteration,
    )


def _begin(placed: _Placed) -> int:
    return min(placed.call.start_ns, int(placed.commands.start_ns.min()))


def _end(placed: _Placed) -> int:
    return max(placed.call.end_ns, int(placed.commands.end_ns.max()))


def _moved(placed: _Placed, index: int, pipeline: int, by: int) -> _Placed:
    call = replace(placed.call, index=index, pipeline=pipeline, start_ns=placed.call.start_ns + by)
    return _Placed(call, replace(placed.commands, start_ns=placed.commands.start_ns + by))


def _spans(placed: Sequence[_Placed]) -> Iterator[Span]:
    """The pipeline around a timeline, and the stage that all of it is."""
    begin = min(map(_begin, placed))
    lasted = max(map(_end, placed)) - begin
    name, pipeline = placed[0].call.submodule, placed[0].call.pipeline
    yield Span("pipeline", name, "", NO_STEP, begin, lasted, pipeline)
    yield Span("stage", RUN_STAGE, RUN_STAGE, NO_STEP, begin, lasted, pipeline)


def _ns(milliseconds: float) -> int:
    return round(milliseconds * 1e6)
