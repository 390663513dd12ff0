"""Runs of which a server tells how long each stage of a request took, and nothing below.

    stage_run("sglang", name, paths, requests)

A request is a pipeline call, a stage of it a call without commands. Stages follow each other, or,
where a request is shorter than they are together, overlap: each then begins as early as it must for
those behind it to end with the request. What lies between two stages (a transfer) is host work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from pathlib import Path
from types import MappingProxyType

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.events import (
    NO_ITERATION,
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
from profiler.importers.placed import PlacedCall, PlacedRun
from profiler.notes import Note
from profiler.trace.columns import CommandBuilder, Counter
from profiler.trace.manifest_clocks import ClockName, Clocks
from profiler.trace.manifest_fields import Device

__all__ = ["HostTime", "RequestTimes", "StageTime", "nanoseconds", "stage_run"]

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


def _counters(placing: _Placing) -> Iterator[Counter]:
    if placing.peaks:
        times, values = np.array(sorted(placing.peaks), dtype=np.int64).T
        yield Counter(_DEVICE, "peak reserved", "bytes", times.copy(), values.copy())


def nanoseconds(milliseconds: object) -> int | None:
    """A time of a foreign file, None where it is none: below 0 or above 11 days, too."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    if not isfinite(milliseconds) or not 0 <= milliseconds < _LARGEST_MS:
        return None
    return round(milliseconds * 1e6)
