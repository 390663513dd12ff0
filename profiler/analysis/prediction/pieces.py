"""The time of one pipeline call, cut into pieces that follow one another and leave nothing out.

Pieces are on the devices' axis (`analysis.axis`), as stages, steps and calls are in all tables: a
call takes as long as its tile. What is left is the host's: its work between calls, and waiting
that no call is known to cause, without waiting for the profiler's own work and what was not
recorded. Host time is cut where a stage or step begins (`borders`), and around work that belongs
to guidance or to one encoder.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from profiler.analysis.axis import Axis
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.prediction.borders import stage_borders, step_borders
from profiler.run.intervals import Stretches, Times, ends
from profiler.run.run import Run
from profiler.trace.events import NO_CALL, NO_STEP

__all__ = [
    "APPLY_GUIDANCE",
    "HOST_TIME",
    "TOKENIZER",
    "Piece",
    "PipelinePieces",
    "host_pieces_of",
    "pieces_of",
]

HOST_TIME = "host"  # the name of the host's time
TOKENIZER = "tokenizer"  # host work of one encoder: its name begins with this
APPLY_GUIDANCE = "apply_guidance"  # host work of guidance


@dataclass(frozen=True, slots=True)
class Piece:
    """`duration_ns` of a call, or of the host (`submodule` None) with the `name` of its work.

    `step` counts the steps of its pipeline call from 0; NO_STEP before the first and after the
    last. `call` is a row of the run's calls, of the host's time that of the call which comes next
    in its phase, -1 where none does. It begins at `start_ns`.
    """

    name: str
    submodule: str | None
    stage: str
    branch: str
    device: str
    step: int
    call: int
    duration_ns: int
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class PipelinePieces:
    """The pieces of pipeline call `number`, of the class `pipeline`, before its first step, in each
    step, after the last."""

    number: int
    pipeline: str
    duration_ns: int
    encode: tuple[Piece, ...]
    steps: tuple[tuple[Piece, ...], ...]
    decode: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call's row, labels and extent in ns; `step` as in its run."""

    row: int
    stage: str
    submodule: str
    branch: str
    device: str
    step: int
    start: int
    end: int


def pieces_of(run: Run, pipelines: PipelineCalls) -> list[PipelinePieces]:
    """The pieces of every pipeline call of `run`."""
    axis = Axis.of(run, pipelines)
    windows = zip(axis.first.tolist(), axis.last.tolist(), strict=True)
    extents = _Extents(
        axis.begin, axis.end, dict(zip(pipelines.numbers.tolist(), windows, strict=True)), axis.lost
    )
    return _pieces(run, extents, pipelines)


def host_pieces_of(run: Run, pipelines: PipelineCalls) -> list[PipelinePieces]:
    """The same of the host's time: each call until it returned."""
    extents = _Extents(run.calls["start_ns"].to_numpy(), ends(run.calls), {}, Stretches.none())
    return _pieces(run, extents, pipelines)


@dataclass(frozen=True, slots=True, eq=False)
class _Extents:
    """On one axis: when n calls were under way, int64 [n], when pipeline calls were, by number,
    where that is not as long as their spans, and what counts nowhere."""

    begin: Times
    end: Times
    windows: Mapping[int, tuple[int, int]]
    lost: Stretches


def _pieces(run: Run, extents: _Extents, pipelines: PipelineCalls) -> list[PipelinePieces]:
    calls = _calls(run, extents, pipelines)
    spans: dict[int, list[tuple[str, str, int, int, int]]] = {}
    ordered = run.spans.sort("start_ns")
    rows = ordered.select(pl.col("kind", "name").cast(pl.String), "step", "start_ns").iter_rows()
    numbers = pipelines.number_of(ordered).tolist()
    for number, row, end in zip(numbers, rows, ends(ordered).tolist(), strict=True):
        spans.setdefault(number, []).append((*row, end))
    work = _named_work(run, pipelines)
    cuts = {
        number: _Cut.of(
            spans.get(number, []),
            calls.get(number, []),
            work.get(number, []),
            (extents.windows.get(number), extents.lost),
        )
        for number in pipelines.numbers.tolist()
    }
    return [cut.pieces(number) for number, cut in cuts.items() if cut is not None]


def _calls(run: Run, extents: _Extents, pipelines: PipelineCalls) -> dict[int, list[_Call]]:
    """By pipeline call, in order of time."""
    labels = run.calls.select(
        pl.col("stage", "submodule").cast(pl.String),
        pl.col("branch").cast(pl.String).fill_null(""),
        pl.col("device").cast(pl.String),
        "step",
    )
    found: dict[int, list[_Call]] = {}
    rows = zip(
        pipelines.number_of(run.calls).tolist(),
        labels.iter_rows(),
        extents.begin.tolist(),
        extents.end.tolist(),
        strict=True,
    )
    for row, (number, labels_of, start, end) in enumerate(rows):
        stage, submodule, branch, device, step = labels_of
        call = _Call(row, stage, submodule, branch, device, step, start, end)
        found.setdefault(number, []).append(call)
    return {number: sorted(own, key=lambda c: (c.start, c.row)) for number, own in found.items()}


def _named_work(run: Run, pipelines: PipelineCalls) -> dict[int, list[tuple[str, int, int]]]:
    """By pipeline call: name, begin and end of host work that belongs to guidance or an encoder."""
    layer = pl.col("layer").cast(pl.String)
    kept = (
        run.commands.lazy()
        .filter(pl.col("call") == NO_CALL)
        .filter((layer == APPLY_GUIDANCE) | layer.str.starts_with(TOKENIZER))
        .filter(pl.col("category") == "host")
        .sort("start_ns")
        .collect()
    )
    found: dict[int, list[tuple[str, int, int]]] = {}
    rows = zip(
        pipelines.number_of(kept).tolist(),
        kept["layer"].cast(pl.String),
        kept["start_ns"],
        ends(kept).tolist(),
        strict=True,
    )
    for number, name, start, end in rows:
        found.setdefault(number, []).append((name, start, end))
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """One pipeline call from `begin` to `end`, and where to cut it.

    `steps` are its step numbers with their begins, in order of time; `last` is the end of the last
    one. `stages` are begins and names, `own` when the profiler worked and no call did, or nothing
    was recorded.
    """

    pipeline: str
    begin: int
    end: int
    calls: Sequence[_Call]
    work: Sequence[tuple[str, int, int]]
    stages: Sequence[tuple[int, str]]
    steps: Sequence[tuple[int, int]]
    last: int
    own: Stretches

    @classmethod
    def of(
        cls,
        spans: Sequence[tuple[str, str, int, int, int]],
        calls: Sequence[_Call],
        work: Sequence[tuple[str, int, int]],
        axis: tuple[tuple[int, int] | None, Stretches],
    ) -> _Cut | None:
        """None without a pipeline span. `spans`: kind, name, step, begin, end of each; `axis`: when
        the pipeline call was under way, None for its span, and what counts nowhere."""
        whole = [(start, end, name) for kind, name, _, start, end in spans if kind == "pipeline"]
        if not whole:
            return None
        window, lost = axis
        begin, end = window or (whole[0][0], max(end for _, end, _ in whole))
        recorded = [(step, start, end) for kind, _, step, start, end in spans if kind == "step"]
        steps, last = step_borders(calls, recorded)
        stages = [(start, name) for kind, name, _, start, _ in spans if kind == "stage"]
        return cls(
            pipeline=whole[0][2],
            begin=begin,
            end=end,
            calls=calls,
            work=work,
            stages=stage_borders(calls, stages),
            steps=steps,
            last=begin if last is None else last,
            own=Stretches.of_all((_own(spans, calls), lost.clipped(begin, end))),
        )

    def pieces(self, number: int) -> PipelinePieces:
        """Cut it."""
        phases: list[list[Piece]] = [[] for _ in range(len(self.steps) + 2)]
        order = {step: place for place, (step, _) in enumerate(self.steps)}
        cursor = self.begin
        phase = 0
        waiting: list[tuple[int, str, int, int]] = []  # the host's: phase, name, begin, end
        for call in self.calls:
            start = min(max(call.start, cursor), self.end)
            waiting += self._host(cursor, start)
            phase = max(phase, order[call.step] + 1 if call.step in order else self._phase(start))
            self._put(phases, waiting, phase, call)
            end = min(max(call.end, start), self.end)
            phases[phase].append(
                Piece(
                    name=f"{call.submodule}.{call.branch}" if call.branch else call.submodule,
                    submodule=call.submodule,
                    stage=call.stage,
                    branch=call.branch,
                    device=call.device,
                    step=self._step(phase),
                    call=call.row,
                    duration_ns=self._length(start, end),
                    start_ns=start,
                )
            )
            waiting, cursor = [], end
        self._put(phases, [*waiting, *self._host(cursor, self.end)], len(phases), None)
        encode, *steps, decode = (tuple(pieces) for pieces in phases)
        duration_ns = self._length(self.begin, self.end)
        return PipelinePieces(number, self.pipeline, duration_ns, encode, tuple(steps), decode)

    def _length(self, start: int, end: int) -> int:
        """How long the program's own time from `start` to `end` is."""
        if not len(self.own):
            return end - start
        return end - start - int(self.own.within(np.array([start]), np.array([end]))[0])

    def _put(
        self,
        phases: list[list[Piece]],
        waiting: Sequence[tuple[int, str, int, int]],
        phase: int,
        call: _Call | None,
    ) -> None:
        """Put the host's time before `call`, which is in `phase`, in its phases."""
        for place, name, start, end in waiting:
            at = min(place, phase, len(phases) - 1)
            next_here = call is not None and at == phase
            phases[at].append(
                Piece(
                    name=name,
                    submodule=None,
                    stage=self._stage(start, call),
                    branch="",
                    device="",
                    step=self._step(at),
                    call=call.row if call is not None and next_here else -1,
                    duration_ns=self._length(start, end),
                    start_ns=start,
                )
            )

    def _host(self, start: int, end: int) -> Iterator[tuple[int, str, int, int]]:
        """The host's time from `start` to `end`, cut: phase, name, begin, end of each piece."""
        if start >= end:
            return
        first = max(bisect_left(self.work, start, key=_begin) - 1, 0)
        near = self.work[first : bisect_left(self.work, end, key=_begin)]
        named = [(name, max(a, start), min(b, end)) for name, a, b in near if b > start]
        cuts = {start, end, *(time for _, a, b in named for time in (a, b))}
        cuts.update(time for time, _ in self.stages if start < time < end)
        borders = (
            bisect_right(self.steps, start, key=_begin),
            bisect_left(self.steps, end, key=_begin),
        )
        cuts.update(time for _, time in self.steps[slice(*borders)])
        if start < self.last < end:
            cuts.add(self.last)
        for a, b in pairwise(sorted(cuts)):
            name = next((n for n, begin, done in named if begin <= a < done), HOST_TIME)
            yield self._phase(a), name, a, b

    def _phase(self, time: int) -> int:
        """0 before the first step, i in the i-th, behind the last beyond all."""
        if self.steps and time >= self.last:
            return len(self.steps) + 1
        return bisect_right(self.steps, time, key=_begin)

    def _step(self, phase: int) -> int:
        return phase - 1 if 0 < phase <= len(self.steps) else NO_STEP

    def _stage(self, time: int, call: _Call | None) -> str:
        """The stage at `time`; the first one also before it begins."""
        if self.stages:
            return self.stages[max(bisect_right(self.stages, time, key=_first) - 1, 0)][1]
        near = call or (self.calls[-1] if self.calls else None)
        return near.stage if near else ""


def _own(spans: Sequence[tuple[str, str, int, int, int]], calls: Sequence[_Call]) -> Stretches:
    ours = [(start, end) for kind, _, _, start, end in spans if kind == "profiler"]
    if not ours:
        return Stretches.none()
    extents = np.array([(call.start, call.end) for call in calls], dtype=np.int64).reshape(-1, 2)
    begin, end = np.array(ours, dtype=np.int64).T
    return Stretches.union(begin, end).minus(Stretches.union(*extents.T))


def _first(timed: tuple[int, str]) -> int:
    return timed[0]


def _begin(timed: tuple[Any, ...]) -> int:
    """When it begins: what follows the name of a step or of the host's work."""
    begin: int = timed[1]
    return begin
