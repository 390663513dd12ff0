"""Build the bundle of a foreign run: an importer supplies calls and commands, the builder the rest.

    run = ForeignRunBuilder("openvino", name, path, capabilities={"averages"})
    run.devices["openvino:0"] = Device(provider="OpenVINO")
    run.call("unet", 0, 1_000_000, commands, device="openvino:0")
    run.drop(DropKind.ESTIMATED_TIMES, 12, "commands", DropReason.LAID_END_TO_END)
    return run

`stage_run` is for servers that report only the time of each stage. A request is then a pipeline
call, and a stage is a call without commands. Stages overlap if the request is shorter than
their sum. Time between two stages is host work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import structs

from profiler.text import Note, NoteCode, Value
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns, Int64s
from profiler.trace.columns import Counter as TraceCounter
from profiler.trace.events import (
    NO_ITERATION,
    NO_PIPELINE,
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
    Span,
    SpanKind,
    Track,
)
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    ClockName,
    Clocks,
    Device,
    HealthNote,
    HealthRule,
    HostActivity,
    Job,
    Occupancy,
    Overhead,
    Recording,
    Setting,
    Shortened,
    Submodule,
    UnknownCost,
    Warmup,
    WhyUnknown,
    quantity,
)
from profiler.trace.redaction import settings_without_prompts

# --- Names of a pipeline's components, as diffusers gives them, and what they say of calls.


_COMPONENT = re.compile(
    r"(?:text_encoder|image_encoder|transformer|unet|vae|controlnet|prior|decoder|safety_checker"
    r"|denoiser|dit|text_model|vision_model|language_model)(?:_\d)?(?:_encoder|_decoder)?",
    re.IGNORECASE,
)
_METHOD = re.compile(r"[. ](forward|encode|decode|__call__)$")
_DENOISERS = re.compile(r"transformer|unet|denoiser|dit(?![a-z])|controlnet")


def is_denoiser(submodule: str) -> bool:
    """Whether a submodule is called like one that runs in every step."""
    return _DENOISERS.match(submodule) is not None


def component(text: str) -> str:
    """The component that a name stands for: `VAE.decode` → `vae`; "" if none."""
    plain = _METHOD.sub("", text)
    return plain.lower() if _COMPONENT.fullmatch(plain) else ""


def stages(submodules: Sequence[str], iterations: Sequence[int]) -> list[tuple[str, int, int]]:
    """The stage, step and iteration of calls in order, by the names of their submodules.

    Other calls are `encode` before the first call of a denoiser, `decode` after the last, `denoise`
    between. A denoiser's iterations, or else its calls, are the steps. Without a denoiser all calls
    are of stage `run` and keep their iterations.
    """
    denoising = [at for at, name in enumerate(submodules) if _DENOISERS.match(name)]
    if not denoising:
        return [(RUN_STAGE, NO_STEP, iteration) for iteration in iterations]
    made: Counter[str] = Counter()
    found = []
    for at, (name, iteration) in enumerate(zip(submodules, iterations, strict=True)):
        stage = "encode" if at < denoising[0] else "decode" if at > denoising[-1] else "denoise"
        step = NO_STEP
        if _DENOISERS.match(name):
            step = made[name] if iteration == NO_ITERATION else iteration
            made[name] += 1
        found.append((stage, step, NO_ITERATION))
    return found


# --- The builder: what all importers need to write a bundle.


Bools = npt.NDArray[np.bool_]
_AROUND = "inference"  # name of the host's time around the layers of a call


@dataclass(frozen=True, slots=True, eq=False)
class PlacedCall:
    """A call, its commands and the samples during it."""

    call: Call
    commands: CommandColumns
    counters: Sequence[TraceCounter] = ()


def drops_of(
    kind: DropKind, count: int, unit: str, reason: NoteCode, where: str, **values: Value
) -> tuple[Drop, ...]:
    """Return a drop for missing data; none for a count of 0."""
    return (Drop(kind, where, count, unit, Note.of(reason, **values)),) if count else ()


@dataclass(slots=True, eq=False)
class ForeignRunBuilder:
    """A `ForeignRun` that an importer fills, and that writes the bundle.

    `model` is as named in the files. `pipeline` is equal for runs that may be compared, by default
    the run's name. `host` is work outside calls. Large traces set `make_calls` and `make_host`, to
    build the commands of one call at a time while the bundle is written. If `spans` is empty, spans
    are made from the calls in order of start, the first from `begin_ns` or earlier, the last to
    `end_ns` or later. `submodules` has what is known of each except its device; `all_traced`: the
    operators of all were recorded. `others` are further runs of the file: `import` makes a bundle
    of each.
    """

    producer: str
    name: str
    source: Path
    files: int | None = 1
    model: str = ""
    pipeline: str | None = None
    clocks: Clocks = field(default_factory=Clocks)
    warmup: Warmup | None = None
    recording: Recording = field(default_factory=Recording)
    job: Job | None = None
    capabilities: set[str] = field(default_factory=set)
    devices: dict[str, Device] = field(default_factory=lambda: {ROOT_DEVICE: Device()})
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    attribution: Mapping[str, Attribution] = field(default_factory=dict)
    submodules: Mapping[str, Submodule] = field(default_factory=dict)
    all_traced: bool = False
    calls: list[PlacedCall] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    begin_ns: int | None = None
    end_ns: int = 0
    host: CommandBuilder = field(default_factory=CommandBuilder)
    counters: list[TraceCounter] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    health: Sequence[HealthNote] = ()
    shortened: Sequence[Shortened] = ()
    occupancy: Sequence[Occupancy] = ()
    workless: Sequence[int] = ()
    host_activities: Sequence[HostActivity] = ()
    make_calls: Callable[[], Iterable[PlacedCall]] | None = None
    make_host: Callable[[], CommandColumns] | None = None
    make_landmarks: Callable[[], Iterable[tuple[str, int]]] = tuple
    others: Sequence[ForeignRunBuilder] = ()

    def capability(self, **recorded: object) -> None:
        """Add the capabilities whose value is true: `shapes=True`."""
        self.capabilities |= {name for name, there in recorded.items() if there}

    def drop(
        self,
        kind: DropKind,
        count: int,
        unit: str,
        reason: NoteCode,
        where: str = "",
        **values: Value,
    ) -> None:
        """Report missing data, by default in the source file; a count of 0 is ignored."""
        self.drops += drops_of(kind, count, unit, reason, where or self.source.name, **values)

    def call(
        self,
        submodule: str,
        start_ns: int,
        duration_ns: int,
        commands: CommandColumns | None = None,
        *,
        device: str,
        traced: bool = True,
        counters: Sequence[TraceCounter] = (),
        **labels: Unpack[CallLabels],
    ) -> PlacedCall:
        """Add the next call and return it."""
        at = len(self.calls)
        made = call_at(at, submodule, start_ns, duration_ns, device, traced, **labels)
        if commands is None:
            commands = CommandBuilder().build()
        placed = PlacedCall(made, commands, counters)
        self.calls.append(placed)
        return placed

    def span(
        self,
        kind: SpanKind,
        name: str,
        start_ns: int,
        duration_ns: int,
        pipeline: int,
        step: int = NO_STEP,
    ) -> None:
        """Add a span of a pipeline call; the name of a stage span is its stage."""
        stage = {"pipeline": "", "stage": name}.get(kind, _DENOISE)
        self.spans.append(Span(kind, name, stage, step, start_ns, duration_ns, pipeline))

    def stages(
        self, works: Iterable[tuple[str, int]], begin_ns: int, end_ns: int, pipeline: int
    ) -> None:
        """Add the stages of a pipeline call, which fill it. `works` has the stage and the start of
        what ran, in order: a stage lasts from the first of successive works of it to the next's."""
        turns: list[tuple[str, int]] = []
        for stage, start in works:
            if not turns or turns[-1][0] != stage:
                turns.append((stage, start if turns else begin_ns))
        ends = [*(start for _, start in turns[1:]), end_ns]
        for (stage, start), until in zip(turns, ends, strict=True):
            self.span("stage", stage, start, until - start, pipeline)

    def timeline(self, calls: Sequence[PlacedCall], name: str = "") -> None:
        """Add calls as the next pipeline call, named `name` or like the first of them. It starts
        when the pipeline call before ends, since they have no common clock; its calls keep their
        distances."""
        number, by = 0, 0
        if self.spans:
            last = self.spans[-1]
            number = last.pipeline + 1
            by = last.start_ns + last.duration_ns - _extent(calls)[0]
        moved = []
        for index, one in enumerate(calls, len(self.calls)):
            start = one.call.start_ns + by
            call = replace(one.call, index=index, pipeline=number, start_ns=start)
            commands = replace(one.commands, start_ns=one.commands.start_ns + by)
            moved.append(PlacedCall(call, commands))
        self.calls += moved
        self.run_span(moved, number, name)

    def run_span(self, calls: Sequence[PlacedCall], pipeline: int = 0, name: str = "") -> None:
        """Add spans around calls: the pipeline, and one stage `run`."""
        begin, end = _extent(calls)
        self.span("pipeline", name or calls[0].call.submodule, begin, end - begin, pipeline)
        self.span("stage", RUN_STAGE, begin, end - begin, pipeline)

    def landmarks(self) -> Iterable[tuple[str, int]]:
        """Return the ranges that the program named, with their starts."""
        return self.make_landmarks()

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file per call, the spans and the host work; return the manifest's fields."""
        calls = []
        for one in self.make_calls() if self.make_calls else self.calls:
            bundle.write_call(one.call, one.commands, one.counters)
            calls.append(one.call)
            del one  # its commands, before those of the next call are made
        host = self.make_host() if self.make_host else self.host.build()
        around = self.spans or spans(self.name, calls, self.end_ns, self.begin_ns)
        bundle.write_host(around, host, ROOT_DEVICE, self.counters)
        return self.info(calls)

    def info(self, calls: Sequence[Call]) -> RunInfo:
        """Return the manifest's fields besides the calls."""
        used = dict.fromkeys(call.device for call in calls)
        return RunInfo(
            producer=self.producer,
            pipeline=self.name if self.pipeline is None else self.pipeline,
            model=self.model,
            command_line=("profile-sd3", "import", str(self.source)),
            versions=dict(self.versions),
            devices=self.devices | {name: Device() for name in used if name not in self.devices},
            submodules=self._submodules(calls),
            settings=settings_without_prompts(self.settings),
            recording=structs.replace(self.recording, source=self.source.name, files=self.files),
            clocks=self.clocks,
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            warmup=self.warmup,
            attribution=dict(self.attribution),
            drops=tuple(self.drops),
            health=tuple(_counted(self.health, len(self.workless))),
            workless=tuple(sorted(self.workless)),
            shortened=tuple(self.shortened),
            occupancy=tuple(self.occupancy),
            host_activities=tuple(self.host_activities),
            job=self.job,
        )

    def _submodules(self, calls: Sequence[Call]) -> dict[str, Submodule]:
        traced = {call.submodule for call in calls if self.all_traced or call.ops_traced}
        devices: dict[str, Counter[str]] = {}
        for call in calls:
            devices.setdefault(call.submodule, Counter())[call.device] += 1
        return {
            name: structs.replace(
                self.submodules.get(name, Submodule()),
                device=counts.most_common(1)[0][0],
                activate_profiler=name in traced,
            )
            for name, counts in devices.items()
        }


def without_work(launching: Int64s, working: Int64s) -> list[int]:
    """The calls in `launching`, whose launches lack work, that are not in `working`. Negative
    numbers are no calls."""
    calls: list[int] = np.setdiff1d(launching, working).tolist()
    return [call for call in calls if call >= 0]


def _counted(notes: Iterable[HealthNote], calls: int) -> Iterator[HealthNote]:
    """Yield notes; the one with most launches without work gets the number of calls without any
    work."""
    notes = list(notes)
    without = (HealthRule.LOST, HealthRule.LATE, HealthRule.CUT)
    lost = (one for one in notes if one.rule in without)
    most = max(lost, key=lambda one: one.count, default=None)
    for note in notes:
        yield structs.replace(note, calls=calls) if note is most else note


def attribution_of(
    durations: Int64s, inside: Bools, unlaunched: Bools, rows: Int64s
) -> Attribution:
    """Return how much of the commands' time in `rows` is `inside` calls, and how many have no known
    launch."""
    inside = inside[rows]
    total, attributed = int(durations[rows].sum()), int(durations[rows][inside].sum())
    return Attribution(
        to=AttributedTo.CALLS,
        attributed_ns=quantity(attributed) or 0,
        total_ns=quantity(total) or 0,
        share=attributed / total if total else 1.0,
        commands=len(rows),
        commands_outside_calls=int((~inside).sum()),
        launch_unknown=int(unlaunched[rows].sum()),
    )


class CallLabels(TypedDict, total=False):
    """The labels of a call, as far as the producer knows them."""

    stage: str
    step: int
    branch: str
    pipeline: int
    iteration: int


def call_at(
    index: int,
    submodule: str,
    start_ns: int,
    duration_ns: int,
    device: str,
    traced: bool,
    **labels: Unpack[CallLabels],
) -> Call:
    """Return the call with these labels, by default a `run` without step, branch and iteration."""
    return Call(
        index,
        submodule,
        labels.get("stage", RUN_STAGE),
        labels.get("branch", ""),
        labels.get("step", NO_STEP),
        device,
        start_ns,
        duration_ns,
        traced,
        pipeline=labels.get("pipeline", NO_PIPELINE),
        iteration=labels.get("iteration", NO_ITERATION),
    )


@dataclass(frozen=True, slots=True)
class TimedLayer:
    """A layer with a known duration but no start."""

    name: str
    duration_ns: int
    op_type: str = ""
    kernel: str = ""
    shapes: str = ""
    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN


def end_to_end(
    submodule: str, track: Track, layers: Sequence[TimedLayer], start_ns: int = 0, lasts_ns: int = 0
) -> PlacedCall:
    """A call whose commands are laid end to end, in order, from `start_ns` on. If it lasts
    `lasts_ns`, longer than its commands, a host command around them shows it."""
    builder, at = CommandBuilder(), start_ns
    if lasts_ns > sum(one.duration_ns for one in layers):
        host = Track(ROOT_DEVICE, _AROUND, "host")
        builder.add(host, _AROUND, _AROUND, start_ns, lasts_ns)
    for one in layers:
        builder.add(
            *(track, one.name, one.op_type, at, one.duration_ns),
            kernel=one.kernel,
            shapes=one.shapes,
            bytes_read=one.bytes_read,
            bytes_written=one.bytes_written,
        )
        at += one.duration_ns
    duration = max(at - start_ns, lasts_ns)
    traced = len(builder) > 0
    call = call_at(0, submodule, start_ns, duration, track.device, traced, iteration=0)
    return PlacedCall(call, builder.build())


def _extent(calls: Sequence[PlacedCall]) -> tuple[int, int]:
    """The first start and the last end of some calls and their commands."""
    begins = [time for one in calls for time in (one.call.start_ns, one.call.end_ns)]
    ends = [0, *(one.call.end_ns for one in calls)]
    for one in calls:
        begins += one.commands.start_ns.tolist()
        ends += one.commands.end_ns.tolist()
    return min(begins), max(ends)


# --- The spans of a run whose calls are known: pipeline, stages, steps.


def spans(
    name: str, calls: Sequence[Call], end_ns: int = 0, begin_ns: int | None = None
) -> list[Span]:
    """Spans of calls, which are in order of start: the pipeline from the first start, or `begin_ns`
    if earlier, to the last end, or `end_ns` if later; stages from the first of successive calls of
    a stage to the next stage; steps from each to the next."""
    if not calls:
        return []
    begin = min(call.start_ns for call in calls)
    begin = begin if begin_ns is None else min(begin, begin_ns)
    end = max(end_ns, *(call.end_ns for call in calls))
    found = [Span("pipeline", name, "", NO_STEP, begin, end - begin)]
    before = ("", *(call.stage for call in calls[:-1]))
    turns = [call for call, last in zip(calls, before, strict=True) if call.stage != last]
    ends = [*(call.start_ns for call in turns[1:]), end]
    for call, until in zip(turns, ends, strict=True):
        start = begin if call is turns[0] else call.start_ns
        found.append(Span("stage", call.stage, call.stage, NO_STEP, start, until - start))
    return [*found, *_steps(calls)]


def _steps(calls: Sequence[Call]) -> list[Span]:
    """The step spans, if steps follow each other: ranks of a job run theirs side by side."""
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
# A request is a pipeline call, a stage of it a call without commands. Stages follow each other, or,
# if a request is shorter than they are together, overlap: each then starts as early as it must for
# those behind it to end with the request. What lies between two stages (a transfer) is host work.


_DEVICE = "gpu:0"  # of an unknown kind
_LARGEST_MS = 1e9
_DENOISE = "denoise"
_BETWEEN = "between stages"
_ROUNDING = 0.01  # share of a request by which its stages together may be longer


@dataclass(frozen=True, slots=True)
class HostTime:
    """Host work between stages; `size` is the bytes it moved, -1 if not known. `waits`: it is
    waiting in the next stage's queue, not work."""

    name: str
    duration_ns: int
    size: int = UNKNOWN
    waits: bool = False


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage of a pipeline. A denoising loop has `steps_ns`, each a call of its own.
    `peak_bytes` is the peak memory up to its end, -1 if not known. `ahead` is the host work before
    it, since the stage before. `device` computes it."""

    name: str
    duration_ns: int
    stage: str = RUN_STAGE
    steps_ns: tuple[int, ...] = ()
    peak_bytes: int = -1
    ahead: tuple[HostTime, ...] = ()
    device: str = _DEVICE


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The times of one request: `total_ns` of the whole, 0 if not known; `end_ns` in
    CLOCK_REALTIME, 0 if not known."""

    name: str
    stages: tuple[StageTime, ...]
    total_ns: int = 0
    end_ns: int = 0

    @property
    def _lengths(self) -> list[int]:
        """The length of each stage with the host work ahead of it."""
        return [
            stage.duration_ns + sum(one.duration_ns for one in stage.ahead) for stage in self.stages
        ]

    @property
    def overlaps(self) -> bool:
        """Whether the request is shorter than its stages together, so that they overlap."""
        return self.total_ns > 0 and sum(self._lengths) > self.total_ns * (1 + _ROUNDING)

    @property
    def duration_ns(self) -> int:
        lengths = self._lengths
        return max(self.total_ns, *lengths) if self.overlaps else max(self.total_ns, sum(lengths))

    def begins(self) -> list[int]:
        """The start of each stage, with the host work ahead of it, within the request."""
        lengths = self._lengths
        ends = [*accumulate(lengths)]
        latest = [self.duration_ns - length for length in lengths]
        limits = [*accumulate(reversed(latest), min)][::-1]
        behind = [end - length for end, length in zip(ends, lengths, strict=True)]
        return [min(pair) for pair in zip(behind, limits, strict=True)]


def stage_run(
    producer: str, name: str, paths: Sequence[Path], requests: Sequence[RequestTimes]
) -> ForeignRunBuilder:
    """Return a run of the requests at their recorded times; without times, one after the other in
    the file's order. The pipeline is named after the producer, so that files of one server can be
    compared."""
    dated = all(one.end_ns > one.duration_ns for one in requests)
    run = ForeignRunBuilder(
        producer, name, min(paths), len(paths), pipeline=producer, capabilities={"stages"}
    )
    run.clocks = Clocks(clock=ClockName.REALTIME if dated else None)
    run.devices[_DEVICE] = Device()
    peaks: list[tuple[int, int]] = []
    at = 0
    ordered = sorted(requests, key=lambda one: one.end_ns - one.duration_ns) if dated else requests
    for number, one in enumerate(ordered):
        begin = one.end_ns - one.duration_ns if dated else at
        peaks += _add_request(run, number, one, begin)
        at = begin + one.duration_ns
    if peaks:
        times, values = np.array(sorted(peaks), dtype=np.int64).T
        run.counters.append(
            TraceCounter(_DEVICE, "peak reserved", "bytes", times.copy(), values.copy())
        )
    run.drop(DropKind.UNTRACED_CALL, len(run.calls), "calls", DropReason.WITHOUT_OPERATIONS)
    undated = 0 if dated or len(requests) == 1 else len(requests)
    overlapping = sum(one.overlaps for one in requests)
    run.drop(DropKind.ESTIMATED_TIMES, undated, "requests", DropReason.REQUESTS_IN_ORDER)
    run.drop(DropKind.ESTIMATED_TIMES, overlapping, "requests", DropReason.STAGES_OVERLAP)
    return run


def _add_request(
    run: ForeignRunBuilder, number: int, one: RequestTimes, begin: int
) -> Iterator[tuple[int, int]]:
    """Add a request, and yield the time and the value of each stage's peak memory."""
    end = begin + one.duration_ns
    run.span("pipeline", one.name, begin, one.duration_ns, number)
    works: list[tuple[str, int]] = []
    for stage, offset in zip(one.stages, one.begins(), strict=True):
        at = begin + offset
        works.append((stage.stage, at))
        for work in stage.ahead:
            lane = ("queue", "sync") if work.waits else (_BETWEEN, "host")
            track, op_type = Track(ROOT_DEVICE, *lane), "queue" if work.waits else work.name
            run.host.add(
                *(track, work.name, op_type, at, work.duration_ns),
                stage=stage.stage,
                pipeline=number,
                bytes_read=work.size,
            )
            at += work.duration_ns
        for step, start, duration in _steps_of_stage(stage, at):
            labels = CallLabels(stage=stage.stage, step=step, pipeline=number)
            run.call(stage.name, start, duration, device=stage.device, traced=False, **labels)
            if step != NO_STEP:
                run.span("step", f"step {step}", start, duration, number, step)
        if stage.peak_bytes >= 0:
            yield at + stage.duration_ns, stage.peak_bytes
    run.stages(works, begin, end, number)


def _steps_of_stage(stage: StageTime, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield step, start and duration of each call of a stage. What a loop spent outside its steps
    comes before them. Only denoising steps have numbers."""
    steps = stage.steps_ns if sum(stage.steps_ns) <= stage.duration_ns else ()
    if not steps:
        yield NO_STEP, at, stage.duration_ns
        return
    at += stage.duration_ns - sum(steps)
    for number, duration in enumerate(steps):
        yield number if stage.stage == _DENOISE else NO_STEP, at, duration
        at += duration


def nanoseconds(milliseconds: object) -> int | None:
    """A time of a foreign file in ns; None if it is invalid, negative, or above 11 days."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    if not 0 <= milliseconds < _LARGEST_MS:  # nor NaN
        return None
    return round(milliseconds * 1e6)
