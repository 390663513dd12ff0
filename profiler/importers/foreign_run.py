"""Build a run from calls that an importer has placed: spans, stages, components.

    return PlacedRun("openvino", name, path, placed=calls, capabilities=frozenset({"averages"}))
    stage_run("sglang", name, paths, requests)

`stage_run` is for servers that report only the time of each stage. A request is then a pipeline
call, and a stage is a call without commands. Stages overlap if the request is shorter than
their sum. Time between two stages is host work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from profiler.text import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns
from profiler.trace.columns import Counter as TraceCounter
from profiler.trace.events import (
    NO_ITERATION,
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
    Span,
    Track,
)
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    ClockName,
    Clocks,
    Device,
    HostActivity,
    Overhead,
    Recording,
    Setting,
    Submodule,
    UnknownCost,
    Warmup,
    WhyUnknown,
)

# --- Names of a pipeline's components, as diffusers gives them, and what they say of calls.


_COMPONENT = re.compile(
    r"(?:text_encoder|image_encoder|transformer|unet|vae|controlnet|prior|decoder|safety_checker"
    r"|denoiser|dit|text_model|vision_model|language_model)(?:_\d)?(?:_encoder|_decoder)?",
    re.IGNORECASE,
)
_METHOD = re.compile(r"[. ](forward|encode|decode|__call__)$")
_DENOISERS = re.compile(r"transformer|unet|denoiser|dit(?![a-z])|controlnet")


def component(text: str) -> str:
    """The component that a name is of: `VAE.decode` → `vae`; "" for other names."""
    plain = _METHOD.sub("", text)
    return plain.lower() if _COMPONENT.fullmatch(plain) else ""


def device_by_submodule(calls: Iterable[Call]) -> dict[str, str]:
    """The device that most calls of each submodule ran on, by submodule in order of first calls."""
    found: dict[str, Counter[str]] = {}
    for call in calls:
        found.setdefault(call.submodule, Counter())[call.device] += 1
    return {name: devices.most_common(1)[0][0] for name, devices in found.items()}


def stages(submodules: Sequence[str], iterations: Sequence[int]) -> list[tuple[str, int, int]]:
    """Stage, step and iteration of calls in their order, by the names of their submodules.

    What is no denoiser is of stage `encode` before the first call of one, `decode` behind the last,
    `denoise` between. A denoiser's iterations, or else its calls, are its steps. Without a
    denoiser all is of stage `run`, and keeps its iterations.
    """
    denoising = [at for at, name in enumerate(submodules) if _DENOISERS.match(name)]
    if not denoising:
        return [(RUN_STAGE, NO_STEP, iteration) for iteration in iterations]
    first, last = denoising[0], denoising[-1]
    made: Counter[str] = Counter()
    found = []
    for at, (name, iteration) in enumerate(zip(submodules, iterations, strict=True)):
        if not _DENOISERS.match(name):
            stage = "encode" if at < first else "decode" if at > last else "denoise"
            found.append((stage, NO_STEP, NO_ITERATION))
            continue
        step = made[name] if iteration == NO_ITERATION else iteration
        made[name] += 1
        found.append(("denoise", step, NO_ITERATION))
    return found


# --- A run whose calls and commands an importer has placed: what is left is to write them.
#
#     return PlacedRun("openvino", name, path, placed=calls, capabilities=frozenset({"averages"}))
#
# `timelines` puts calls that were recorded one by one behind each other, a pipeline call each.


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
    counters: tuple[TraceCounter, ...] = ()
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


# --- The spans of a run whose calls are known: pipeline, stages, steps.


class Placed(Protocol):
    """What is read of a call."""

    @property
    def stage(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...


def spans(name: str, calls: Sequence[Placed], end_ns: int = 0) -> list[Span]:
    """The pipeline from the first call's begin to the later of the last end of a call and `end_ns`;
    the stages, each from the first of successive calls of it; the steps, each to the next one.

    `calls` stand in order of their begins.
    """
    if not calls:
        return []
    begin = calls[0].start_ns
    end = max(end_ns, *(call.end_ns for call in calls))
    found = [Span("pipeline", name, "", NO_STEP, begin, end - begin)]
    before = ("", *(call.stage for call in calls[:-1]))
    turns = [call for call, last in zip(calls, before, strict=True) if call.stage != last]
    ends = [*(call.start_ns for call in turns[1:]), end]
    for call, until in zip(turns, ends, strict=True):
        length = until - call.start_ns
        found.append(Span("stage", call.stage, call.stage, NO_STEP, call.start_ns, length))
    return [*found, *_steps(calls)]


def _steps(calls: Sequence[Placed]) -> list[Span]:
    """A span a step, where the steps follow each other: ranks of a job run theirs side by side."""
    denoising = [call for call in calls if call.step != NO_STEP]
    numbers = [call.step for call in denoising]
    if not numbers or numbers != sorted(numbers):
        return []
    first = {call.step: call.start_ns for call in reversed(denoising)}
    last = max(call.end_ns for call in denoising)
    steps = sorted(first)
    ends = [*(first[step] for step in steps[1:]), last]
    return [
        Span("step", f"step {step}", "denoise", step, first[step], max(until - first[step], 0))
        for step, until in zip(steps, ends, strict=True)
    ]


# --- Runs of which a server tells how long each stage of a request took, and nothing below.
#
#     stage_run("sglang", name, paths, requests)
#
# A request is a pipeline call, a stage of it a call without commands. Stages follow each other,
# or,
# where a request is shorter than they are together, overlap: each then begins as early as it must
# for
# those behind it to end with the request. What lies between two stages (a transfer) is host work.


_DEVICE = "gpu:0"  # of a kind that nobody tells
_LARGEST_MS = 1e9
_DENOISE = "denoise"
_BETWEEN = "between stages"
_ROUNDING = 0.01  # of a request by which the sum of its stages may be longer


@dataclass(frozen=True, slots=True)
class HostTime:
    """Work of the host between stages; `size` is what it moved, -1 where not told. `waits`: it is
    waiting in the queue of the stage behind it, and no work."""

    name: str
    duration_ns: int
    size: int = UNKNOWN
    waits: bool = False


@dataclass(frozen=True, slots=True)
class StageTime:
    """`stage` is a phase of the pipeline. A denoising loop has its `steps_ns`, each a call of its
    own. `peak_bytes` is the most memory up to its end, -1 where not told. `ahead` is what the host
    did between the stage before it and this one. `device` is what computes it."""

    name: str
    duration_ns: int
    stage: str = RUN_STAGE
    steps_ns: tuple[int, ...] = ()
    peak_bytes: int = -1
    ahead: tuple[HostTime, ...] = ()
    device: str = _DEVICE


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """`total_ns` is that of the whole request, 0 where not told; `end_ns` when it ended, in
    CLOCK_REALTIME, 0 where nobody tells."""

    name: str
    stages: tuple[StageTime, ...]
    total_ns: int = 0
    end_ns: int = 0

    @property
    def _lengths(self) -> list[int]:
        """Of each stage with what is ahead of it."""
        return [
            stage.duration_ns + sum(one.duration_ns for one in stage.ahead) for stage in self.stages
        ]

    @property
    def overlaps(self) -> bool:
        """Whether the request is shorter than its stages one after the other."""
        return self.total_ns > 0 and sum(self._lengths) > self.total_ns * (1 + _ROUNDING)

    @property
    def duration_ns(self) -> int:
        lengths = self._lengths
        return max(self.total_ns, *lengths) if self.overlaps else max(self.total_ns, sum(lengths))

    def begins(self) -> list[int]:
        """When each stage, with what is ahead of it, begins in the request."""
        lengths = self._lengths
        ends = [*accumulate(lengths)]
        latest = [self.duration_ns - length for length in lengths]
        limits = [*accumulate(reversed(latest), min)][::-1]
        behind = [end - length for end, length in zip(ends, lengths, strict=True)]
        return [min(pair) for pair in zip(behind, limits, strict=True)]


@dataclass(slots=True)
class _Placing:
    """What has been placed so far."""

    calls: list[PlacedCall] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    host: CommandBuilder = field(default_factory=CommandBuilder)
    peaks: list[tuple[int, int]] = field(default_factory=list)


def stage_run(
    producer: str,
    name: str,
    paths: Sequence[Path],
    requests: Sequence[RequestTimes],
    *,
    drops: Sequence[Drop] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
    devices: Mapping[str, Device] = MappingProxyType({_DEVICE: Device()}),
    model: str = "",
) -> PlacedRun:
    """The requests at the times that the file tells, or, where it tells none, one behind the other
    in its order. The pipeline is called after the producer: files of one server are compared,
    whatever they are called."""
    path = sorted(paths)[0]
    dated = all(one.end_ns > one.duration_ns for one in requests)
    placing, at = _Placing(), 0
    ordered = sorted(requests, key=lambda one: one.end_ns - one.duration_ns) if dated else requests
    for number, one in enumerate(ordered):
        begin = one.end_ns - one.duration_ns if dated else at
        _place(placing, number, one, begin)
        at = begin + one.duration_ns
    note = Note.of(DropReason.WITHOUT_OPERATIONS)
    untraced = Drop(DropKind.UNTRACED_CALL, path.name, len(placing.calls), "calls", note)
    return PlacedRun(
        producer=producer,
        name=name,
        path=path,
        placed=tuple(placing.calls),
        capabilities=frozenset({"stages"}),
        spans=tuple(placing.spans),
        devices=devices,
        files=len(paths),
        outside=placing.host.build(),
        counters=tuple(_counters(placing)),
        drops=(untraced, *_estimated(path, requests, dated), *drops),
        clocks=Clocks(clock=ClockName.REALTIME if dated else None),
        settings=settings,
        model=model,
        pipeline=producer,
    )


def _estimated(path: Path, requests: Sequence[RequestTimes], dated: bool) -> Iterator[Drop]:
    overlapping = sum(one.overlaps for one in requests)
    for reason, count in (
        (DropReason.REQUESTS_IN_ORDER, 0 if dated or len(requests) == 1 else len(requests)),
        (DropReason.STAGES_OVERLAP, overlapping),
    ):
        if count:
            yield Drop(DropKind.ESTIMATED_TIMES, path.name, count, "requests", Note.of(reason))


def _place(placing: _Placing, number: int, one: RequestTimes, begin: int) -> None:
    whole = one.duration_ns
    placing.spans.append(Span("pipeline", one.name, "", NO_STEP, begin, whole, number))
    turns: list[tuple[str, int]] = []
    for stage, offset in zip(one.stages, one.begins(), strict=True):
        at = begin + offset
        if not turns or turns[-1][0] != stage.stage:
            turns.append((stage.stage, at if turns else begin))
        for work in stage.ahead:
            _add_host(placing, work, stage.stage, number, at)
            at += work.duration_ns
        for step, start, length in _parts(stage, at):
            _add(placing, stage, number, step, start, length)
        if stage.peak_bytes >= 0:
            placing.peaks.append((at + stage.duration_ns, stage.peak_bytes))
    until = [*(start for _, start in turns[1:]), begin + whole]
    for (name, start), end in zip(turns, until, strict=True):
        placing.spans.append(Span("stage", name, name, NO_STEP, start, end - start, number))


def _add_host(placing: _Placing, work: HostTime, stage: str, pipeline: int, at: int) -> None:
    queue, between = Track(ROOT_DEVICE, "queue", "sync"), Track(ROOT_DEVICE, _BETWEEN, "host")
    placing.host.add(
        queue if work.waits else between,
        work.name,
        "queue" if work.waits else work.name,
        at,
        work.duration_ns,
        stage=stage,
        pipeline=pipeline,
        bytes_read=work.size,
    )


def _parts(stage: StageTime, at: int) -> Iterator[tuple[int, int, int]]:
    """Step, begin and length of the calls of a stage: what a loop spent outside of its steps is
    ahead of them."""
    steps = stage.steps_ns if sum(stage.steps_ns) <= stage.duration_ns else ()
    if not steps:
        yield NO_STEP, at, stage.duration_ns
        return
    at += stage.duration_ns - sum(steps)
    for number, length in enumerate(steps):
        yield number, at, length
        at += length


def _add(
    placing: _Placing, stage: StageTime, pipeline: int, step: int, start: int, length: int
) -> None:
    call = Call(
        index=len(placing.calls),
        submodule=stage.name,
        stage=stage.stage,
        branch="",
        step=step if stage.stage == _DENOISE else NO_STEP,
        device=stage.device,
        start_ns=start,
        duration_ns=length,
        ops_traced=False,
        pipeline=pipeline,
        iteration=NO_ITERATION,
    )
    placing.calls.append(PlacedCall(call, CommandBuilder().build()))
    if call.step != NO_STEP:
        name = f"step {step}"
        placing.spans.append(Span("step", name, _DENOISE, step, start, length, pipeline))


def _counters(placing: _Placing) -> Iterator[TraceCounter]:
    if placing.peaks:
        times, values = np.array(sorted(placing.peaks), dtype=np.int64).T
        yield TraceCounter(_DEVICE, "peak reserved", "bytes", times.copy(), values.copy())


def nanoseconds(milliseconds: object) -> int | None:
    """A time of a foreign file, None where it is none: below 0 or above 11 days, too."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    if not isfinite(milliseconds) or not 0 <= milliseconds < _LARGEST_MS:
        return None
    return round(milliseconds * 1e6)
