"""The workload of one request: its stages, steps and calls with their measured times."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise, product
from operator import itemgetter
from typing import TypeVar

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.devices import submodule_weights
from profiler.analysis.result import Analysis
from profiler.analysis.timeline import Axis, PipelineCalls
from profiler.errors import InputError
from profiler.run.columns import SPANS, schema
from profiler.run.intervals import Stretches, Times, ends
from profiler.run.run import Run
from profiler.trace.events import NO_CALL, NO_PIPELINE, NO_STEP, DropKind

# --- The starts of the stages and steps of one pipeline call, from the extents of its calls.
#
# A stage lasts from the end of the one before to the end of its last call, as in
# `analysis.accounting`. So does a step, except the first, which starts with its first call: host
# work between two steps belongs to the later one.


class _Call(Struct, frozen=True):
    """One call: its row, labels and extent in ns; `step` as in its run."""

    row: int
    stage: str
    submodule: str
    branch: str
    device: str
    step: int
    start: int
    end: int


def _stage_borders(
    calls: Sequence[_Call], spans: Sequence[tuple[int, str]]
) -> list[tuple[int, str]]:
    """The start of each part of a stage, in order: from calls that took time, in order of time;
    without any, from the recorded `spans` of the stages."""
    found: list[tuple[int, str]] = []
    took = [call for call in calls if call.end > call.start]
    for call, reach in zip(took, _reached(took), strict=True):
        if not found or found[-1][1] != call.stage:
            found.append((reach, call.stage))
    return found or sorted(spans)


def _reached(calls: Sequence[_Call]) -> list[int]:
    """When all calls before each call had ended; for the first call, its start."""
    ends_before = accumulate((call.end for call in calls[:-1]), max)
    return [*(call.start for call in calls[:1]), *ends_before]


def _step_borders(
    calls: Sequence[_Call], spans: Sequence[tuple[int, int, int]]
) -> tuple[list[tuple[int, int]], int | None]:
    """The numbers and starts of the steps, in order, and the end of the last one, None if there are
    none. `calls` are in order of time; a step without calls uses its recorded span: number, start
    and end."""
    recorded: dict[int, tuple[int, int]] = {}
    for step, start, end in spans:
        known = recorded.get(step, (start, end))
        recorded[step] = (min(known[0], start), max(known[1], end))
    called: dict[int, tuple[int, int]] = {}  # start of its first call, end of calls before
    ended: list[int] = []
    for call, reach in zip(calls, _reached(calls), strict=True):
        if call.step > NO_STEP and (not recorded or call.step in recorded):
            called.setdefault(call.step, (call.start, reach))
            ended.append(call.end)
    begun = recorded or called
    found: list[tuple[int, int]] = []
    follows = False  # whether the previous step has calls
    for step in sorted(begun, key=lambda step: begun[step][0]):
        if step not in called:
            begin, end = recorded[step]
            ended.append(end)
        elif follows:
            begin = called[step][1]
        else:
            begin = max(called[step][1], recorded[step][0]) if found else called[step][0]
        found.append((step, max(begin, found[-1][1]) if found else begin))
        follows = step in called
    return found, max(ended, default=None)


# --- The memory of submodules, as far as it was recorded: weights, activations, retained bytes.


def weights_of(run: Run, analysis: Analysis) -> dict[str, int]:
    """The bytes of weights by submodule, also if no memory use was recorded."""
    said = submodule_weights(run.info.submodules)
    known = {name: size for name, size in said.items() if size is not None}
    return {**known, **_known(analysis.memory, "weight_bytes")}


def activations_of(analysis: Analysis) -> dict[str, int]:
    """The peak bytes beside its weights in a call, by submodule."""
    return _known(analysis.memory, "activation_bytes")


def kept_of(analysis: Analysis) -> dict[str, int]:
    """The bytes beside its weights that a submodule retained while another ran, at the device's
    peak. ONNX Runtime's arena, one per session, keeps a call's memory for the next one."""
    running = analysis.memory_devices.select("device", running="submodule")
    held = analysis.memory.join(running, on="device", how="left")
    others = held.filter(pl.col("submodule").ne_missing(pl.col("running")))
    kept = pl.col("retained_bytes") - pl.col("weight_bytes").fill_null(0)
    found = _known(others.with_columns(kept=kept), "kept")
    return {name: size for name, size in found.items() if size > 0}


def _known(memory: pl.DataFrame, column: str) -> dict[str, int]:
    """The maximum of a column of the memory table, by submodule."""
    known = memory.drop_nulls(["submodule", column])
    return dict(known.group_by("submodule").agg(pl.col(column).max()).sort("submodule").iter_rows())


# --- Runs that were killed have no pipeline spans, which are written at the end: make them of
# calls.


def with_spans_of_calls(run: Run) -> Run:
    """Return a killed run with a span for each pipeline call, from the start of its first call to
    the return of its last one; any other run unchanged. The last pipeline call, which was cut
    short, gets none if there are others."""
    recorded = not run.spans.filter(pl.col("kind") == "pipeline").is_empty()
    if recorded or all(drop.kind != DropKind.ABORTED_RUN for drop in run.drops):
        return run
    calls = run.calls.filter(pl.col("pipeline") != NO_PIPELINE, pl.col("duration_ns") >= 0)
    begin, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
    extents = calls.group_by("pipeline").agg(begin.min(), end=end.max()).sort("pipeline")
    whole = extents[:-1] if len(extents) > 1 else extents
    name = run.info.pipeline or "pipeline"
    rows = [
        ("pipeline", number, name, None, NO_STEP, start, done - start)
        for number, start, done in whole.iter_rows()
    ]
    spans = pl.DataFrame(rows, schema=schema(SPANS), orient="row")
    return dataclasses.replace(run, spans=pl.concat([run.spans, spans]))


# --- Cut the time of one pipeline call into consecutive pieces that leave nothing out.
#
# Pieces are on the devices' axis (`analysis.axis`), like stages, steps and calls in all tables: a
# call takes as long as its tile. The rest is the host's: its work between calls, and waiting
# without a known cause, minus the profiler's own work and unrecorded time. Host time is cut at the
# start of a stage or step (`borders`), and around work that belongs to guidance or to one encoder.


HOST = "host"  # the name of the host's time
TOKENIZER = "tokenizer"  # prefix of an encoder's host work
APPLY_GUIDANCE = "apply_guidance"  # host work of guidance


class Piece(Struct, frozen=True):
    """One piece of a pipeline call: `duration_ns` of a call, or of host work `name` (`submodule`
    None).

    `step` counts the steps of its pipeline call from 0; NO_STEP before the first and after the
    last. `call` is a row of the run's calls; for host work that of the next call in its phase, -1
    if there is none. It starts at `start_ns`.
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


class PipelinePieces(Struct, frozen=True):
    """The pieces of pipeline call `number`, of the class `pipeline`, before its first step, in each
    step, after the last."""

    number: int
    pipeline: str
    duration_ns: int
    encode: tuple[Piece, ...]
    steps: tuple[tuple[Piece, ...], ...]
    decode: tuple[Piece, ...]

    @property
    def phases(self) -> tuple[tuple[Piece, ...], ...]:
        """Its pieces before its first step, in each step, after the last."""
        return (self.encode, *self.steps, self.decode)

    @property
    def called(self) -> list[Piece]:
        """The pieces that are calls, in order."""
        return _called(chain.from_iterable(self.phases))


def pieces_of(run: Run, pipelines: PipelineCalls) -> list[PipelinePieces]:
    """The pieces of every pipeline call of `run`."""
    axis = Axis.of(run, pipelines)
    windows = zip(axis.first.tolist(), axis.last.tolist(), strict=True)
    extents = _Extents(
        axis.begin, axis.end, dict(zip(pipelines.numbers.tolist(), windows, strict=True)), axis.lost
    )
    return _pieces(run, extents, pipelines)


def host_pieces_of(run: Run, pipelines: PipelineCalls) -> list[PipelinePieces]:
    """The pieces of every pipeline call on the host's axis: each call lasts until it returns."""
    windows = _host_windows(run, pipelines)
    extents = _Extents(run.calls["start_ns"].to_numpy(), ends(run.calls), windows, Stretches.none())
    return _pieces(run, extents, pipelines)


def _host_windows(run: Run, pipelines: PipelineCalls) -> dict[int, tuple[int, int]]:
    """The start and end of each pipeline call on the host's axis, by number: its span, extended to
    the return of host work after it that counts end to end, such as launching the last copy of an
    image."""
    spans = run.spans.filter(pl.col("kind") == "pipeline")
    host = run.commands.filter(
        (pl.col("call") == NO_CALL) & pl.col("category").cast(pl.String).is_in(("host", "sync"))
    )
    begin, done = host["start_ns"].to_numpy(), ends(host)
    windows: dict[int, tuple[int, int]] = {}
    times = spans["start_ns"].to_list(), ends(spans).tolist()
    for number, start, end in zip(pipelines.number_of(spans).tolist(), *times, strict=True):
        first, until = windows.get(number, (start, end))
        windows[number] = min(first, start), max(until, end)
    lasts = Axis.of(run, pipelines).last.tolist()
    for number, last in zip(pipelines.numbers.tolist(), lasts, strict=True):
        if number in windows:
            first, until = windows[number]
            behind = int(done[(begin >= until) & (begin < last)].max(initial=until))
            windows[number] = first, max(until, min(behind, last))
    return windows


class _Extents(Struct, frozen=True, eq=False):
    """Extents on one axis: start and end of n calls, int64 [n], the windows of pipeline calls by
    number if shorter than their spans, and intervals that do not count."""

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
    """The calls of each pipeline call, in order of time."""
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
    """The host work of guidance or an encoder (name, start, end), by pipeline call."""
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


class _Cut(Struct, frozen=True):
    """One pipeline call from `begin` to `end`, and where to cut it.

    `steps` are its step numbers with their starts, in order of time; `last` is the end of the last
    one. `stages` are starts and names, `own` when the profiler worked and no call did, or nothing
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
        """Prepare to cut a pipeline call; None without a pipeline span. `spans`: kind, name, step,
        start, end of each; `axis`: the window of the pipeline call, None for its span, and
        intervals that do not count."""
        whole = [(start, end, name) for kind, name, _, start, end in spans if kind == "pipeline"]
        if not whole:
            return None
        window, lost = axis
        begin, end = window or (whole[0][0], max(end for _, end, _ in whole))
        recorded = [(step, start, end) for kind, _, step, start, end in spans if kind == "step"]
        steps, last = _step_borders(calls, recorded)
        stages = [(start, name) for kind, name, _, start, _ in spans if kind == "stage"]
        return cls(
            pipeline=whole[0][2],
            begin=begin,
            end=end,
            calls=calls,
            work=work,
            stages=_stage_borders(calls, stages),
            steps=steps,
            last=begin if last is None else last,
            own=Stretches.of_all((_own(spans, calls), lost.clipped(begin, end))),
        )

    def pieces(self, number: int) -> PipelinePieces:
        """Cut the pipeline call into pieces."""
        phases: list[list[Piece]] = [[] for _ in range(len(self.steps) + 2)]
        order = {step: place for place, (step, _) in enumerate(self.steps)}
        cursor = self.begin
        phase = 0
        waiting: list[tuple[int, str, int, int]] = []  # host time: phase, name, start, end
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
        """The length of the program's own time from `start` to `end`."""
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
        """Add the host time before `call`, which is in `phase`, to its phases."""
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
        """Yield the host's time from `start` to `end`, cut into pieces: phase, name, start, end."""
        if start >= end:
            return
        first = max(bisect_left(self.work, start, key=itemgetter(1)) - 1, 0)
        near = self.work[first : bisect_left(self.work, end, key=itemgetter(1))]
        named = [(name, max(a, start), min(b, end)) for name, a, b in near if b > start]
        cuts = {start, end, *(time for _, a, b in named for time in (a, b))}
        cuts.update(time for time, _ in self.stages if start < time < end)
        borders = (
            bisect_right(self.steps, start, key=itemgetter(1)),
            bisect_left(self.steps, end, key=itemgetter(1)),
        )
        cuts.update(time for _, time in self.steps[slice(*borders)])
        if start < self.last < end:
            cuts.add(self.last)
        for a, b in pairwise(sorted(cuts)):
            name = next((n for n, begin, done in named if begin <= a < done), HOST)
            yield self._phase(a), name, a, b

    def _phase(self, time: int) -> int:
        """The phase at `time`: 0 before the first step, i in the i-th, one more after the last."""
        if self.steps and time >= self.last:
            return len(self.steps) + 1
        return bisect_right(self.steps, time, key=itemgetter(1))

    def _step(self, phase: int) -> int:
        return phase - 1 if 0 < phase <= len(self.steps) else NO_STEP

    def _stage(self, time: int, call: _Call | None) -> str:
        """The stage at `time`; the first one also before it begins."""
        if self.stages:
            return self.stages[max(bisect_right(self.stages, time, key=itemgetter(0)) - 1, 0)][1]
        near = call or (self.calls[-1] if self.calls else None)
        return near.stage if near else ""


def _own(spans: Sequence[tuple[str, str, int, int, int]], calls: Sequence[_Call]) -> Stretches:
    ours = [(start, end) for kind, _, _, start, end in spans if kind == "profiler"]
    if not ours:
        return Stretches.none()
    extents = np.array([(call.start, call.end) for call in calls], dtype=np.int64).reshape(-1, 2)
    begin, end = np.array(ours, dtype=np.int64).T
    return Stretches.union(begin, end).minus(Stretches.union(*extents.T))


# --- Remove calls from one phase of a pipeline call.


OWN_CALLS = ("uncond", "negative_prompt", "skip_layers")  # branches of guidance alone


_Some = TypeVar("_Some", Piece, "Task")  # a call, or the host's time before one


def staying(
    phase: Iterable[_Some],
    leaves: Callable[[_Some], bool],
    leads_to: Callable[[_Some, _Some], bool],
) -> tuple[_Some, ...]:
    """Return a phase without the calls that leave, and without the host time that led to them.

    At the start of a phase the host prepares more than its first call: only work that is known to
    be that call's own (its tokenizer) leaves with it.
    """
    kept: list[_Some] = []
    waiting: list[_Some] = []  # host work since the last call
    begun = False
    for part in phase:
        if part.submodule is None:
            waiting.append(part)
            continue
        if leaves(part):
            waiting = [
                host
                for host in waiting
                if not leads_to(host, part) or not (begun or host.name.startswith(TOKENIZER))
            ]
        else:
            kept += waiting
            kept.append(part)
            waiting = []
        begun = True
    return tuple(kept + waiting)


# --- The tasks of a request: pieces that all pipeline calls have in common, with their times.


class Task(Struct, frozen=True, eq=False):
    """One call of a submodule, or the host's time before the next one.

    p pipeline calls were measured. `first_ns` is the time in the first step of each, int64 [p]; of
    a task outside steps it is empty, int64 [0]. `steady_ns` are the times in later steps, int64 [p,
    k]; of a task outside steps its time in each pipeline call, int64 [p, 1]. A step without it
    counts as 0 ns.

    For host time (pipeline code, and its waits outside of calls) `submodule` is None, `device` and
    `branch` are "", and `of` is the name of the task that it leads to, "" if there is none.
    """

    name: str  # "text_encoder_3.prompt", "transformer.cond", "host", "tokenizer_2"
    submodule: str | None
    stage: str
    branch: str
    device: str
    first_ns: Times
    steady_ns: Times
    of: str = ""

    @property
    def total_ns(self) -> Times:
        """The task's time in each pipeline call, int64 [p]."""
        total: Times = self.steady_ns.sum(axis=1)
        return total + self.first_ns if len(self.first_ns) else total


_Key = tuple[str, int, str, str]  # name, number among equal names, leads to, stage
_Timed = dict[_Key, tuple[Piece, float]]


class ScaledPieces(Struct, frozen=True):
    """Pieces of p pipeline calls, whose calls are multiplied by `factors`, one per row of the run's
    calls; empty for none."""

    cut: Sequence[PipelinePieces]
    factors: Sequence[float]

    def tasks(self, phase: str) -> tuple[Task, ...]:
        """The tasks of `encode`, `step` or `decode`."""
        in_steps = phase == "step"
        table = [
            [self._timed(some) for some in (pieces.steps if in_steps else [getattr(pieces, phase)])]
            for pieces in self.cut
        ]
        longest_first = sorted((t for row in table for t in row), key=len, reverse=True)
        order = _merged(longest_first)
        pieces = {key: piece for row in table for timed in row for key, (piece, _) in timed.items()}
        return tuple(self._task(key, pieces[key], table, in_steps=in_steps) for key in order)

    def _timed(self, pieces: Sequence[Piece]) -> _Timed:
        """The pieces of one phase with their times, by key, in order."""
        found: _Timed = {}
        of_call = _numbered(pieces)
        for piece in pieces:
            name, number = of_call.get(piece.call, ("", 0))
            if piece.submodule is None:
                key, factor = (piece.name, number, name or "end", piece.stage), 1.0
            else:
                factor = self.factors[piece.call] if self.factors else 1.0
                key = (name, number, "", "")
            before = found[key][1] if key in found else 0.0
            found[key] = (piece, before + piece.duration_ns * factor)
        return found

    def _task(
        self, key: _Key, piece: Piece, table: Sequence[Sequence[_Timed]], *, in_steps: bool
    ) -> Task:
        times = np.array(
            [[round(timed[key][1]) if key in timed else 0 for timed in row] for row in table],
            dtype=np.int64,
        )
        return Task(
            name=piece.name,
            submodule=piece.submodule,
            stage=piece.stage,
            branch=piece.branch,
            device=piece.device,
            first_ns=times[:, 0] if in_steps else np.zeros(0, dtype=np.int64),
            steady_ns=times[:, 1:] if in_steps else times,
            of=key[2] if key[2] != "end" else "",
        )


def _numbered(pieces: Sequence[Piece]) -> dict[int, tuple[str, int]]:
    """The name of each call of a phase, and its number among calls of that name."""
    counts: Counter[str] = Counter()
    found = {}
    for piece in _called(pieces):
        found[piece.call] = (piece.name, counts[piece.name])
        counts[piece.name] += 1
    return found


def _merged(sequences: Iterable[Iterable[_Key]]) -> Iterator[_Key]:
    """Merge sequences of keys, each key once; a new one is placed directly after the key before it
    in its own sequence."""
    following: dict[_Key | None, _Key | None] = {None: None}  # None: the start, and the end
    for keys in sequences:
        previous: _Key | None = None
        for key in keys:
            if key not in following:
                following[key] = following[previous]
                following[previous] = key
            previous = key
    place = following[None]
    while place is not None:
        yield place
        place = following[place]


# --- Which numbers in a submodule's shapes count the tokens of an image or video.


_FRAMES = 4  # different numbers of latent frames that are looked at
_Dims = tuple[int, ...]


class Tokens(Struct, frozen=True):
    """Dims that may be numbers of tokens: `ahead` are directly before channels, `inner` neither
    first nor last, `mixed` those that attention mixes."""

    ahead: frozenset[int]
    inner: frozenset[int]
    mixed: frozenset[int]

    @classmethod
    def of(cls, shapes: Iterable[_Dims], channels: Collection[int], mixed: Iterable[int]) -> Tokens:
        """Collect the candidates from `shapes` without rows and columns."""
        shapes = list(shapes)
        rows = [tuple(dim for dim in dims if dim != 1) for dims in shapes]
        ahead = frozenset(d[-2] for d in rows if len(d) in (2, 3) and d[-1] in channels)
        inner = ahead | {dim for d in shapes for dim in d[1:-1]}
        return cls(ahead, inner, frozenset(mixed))


def token_counts(
    grids: Mapping[_Dims, _Dims],
    seen: Collection[_Dims],
    tokens: Tokens,
    shapes: Collection[_Dims],
) -> dict[int, int]:
    """Map old to new numbers of tokens, for the `grids` (new by old) that have tokens.

    Of grids that no tensor has as rows and columns (not in `seen`, as if the host packs patches),
    only the largest has tokens: the number of a smaller one is something else.
    """
    batches = _batches(shapes)
    have: list[tuple[_Dims, int]] = []
    for grid, count in product(grids, sorted(_frames(shapes, grids, batches))):
        was = grid[0] * grid[1] * count
        if was in tokens.inner and any(was * batch in tokens.ahead for batch in batches):
            have.append((grid, count))
    largest = max((grid for grid, _ in have), key=lambda grid: grid[0] * grid[1], default=None)
    found: dict[int, int] = {}
    for grid, count in have:
        if grid not in seen and grid != largest:
            continue
        was, becomes = (rows * columns * count for rows, columns in (grid, grids[grid]))
        joined = sorted({one - was for one in tokens.mixed} & tokens.ahead)
        for text, batch in product((0, *joined), sorted(batches)):
            found.setdefault((was + text) * batch, (becomes + text) * batch)
    return found


def _frames(
    shapes: Collection[_Dims], grids: Mapping[_Dims, _Dims], batches: Collection[int]
) -> set[int]:
    """The likely numbers of latent frames: 1, and those most tensors of videos have before rows and
    columns, or flattened with the batch."""
    on_grid = [dims for dims in shapes if dims[-2:] in grids]
    ahead = Counter(dims[-3] for dims in on_grid if len(dims) > 4)
    flat = Counter(dims[0] for dims in on_grid if len(dims) == 4)
    flattened = product((count for count, _ in flat.most_common(_FRAMES)), batches)
    return {
        1,
        *(count for count, _ in ahead.most_common(_FRAMES)),
        *(count // batch for count, batch in flattened if count % batch == 0),
    }


def _batches(shapes: Collection[_Dims]) -> set[int]:
    """The likely batch sizes: 1, and the most frequent first dims of tensors with 3 or more dims,
    and of videos."""
    ranks = (Counter(dims[0] for dims in shapes if len(dims) > rank) for rank in (2, 4))
    most = (max(sizes, key=lambda n: (sizes[n], -n), default=1) for sizes in ranks)
    return {1, *most}


# --- The workload of one request (one pipeline call): its tasks in order, with measured times.


class Workload(Struct, frozen=True, eq=False):
    """The tasks of one request in the order in which the pipeline calls them: those of `encode`
    (before the first step) once, those of `step` in each of `steps` steps, those of `decode` once.

    `measured_ns`, int64 [p], is the time of each pipeline call, the sum over its tasks. By
    submodule, if known: `weights` are bytes, `activations` the peak bytes beside them in a call,
    and `kept` the bytes retained while others run. `devices` are those of the run.

    Times of traced calls were multiplied with `overhead_ratio`, untraced over traced time by
    submodule, if it is known; `recorded_ns`, int64 [p], are the pipeline calls without that, None
    if nothing was corrected. `numbers` are the pipeline calls. `steps_of` is the mean number of
    steps with a call of this name, for calls that are not in all steps.
    """

    encode: tuple[Task, ...]
    step: tuple[Task, ...]
    decode: tuple[Task, ...]
    steps: int
    weights: Mapping[str, int]
    activations: Mapping[str, int]
    measured_ns: Times
    devices: tuple[str, ...]
    overhead_ratio: Mapping[str, float] = field(default_factory=dict)
    recorded_ns: Times | None = None
    numbers: tuple[int, ...] = ()
    steps_of: Mapping[str, float] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, each once."""
        return (*self.encode, *self.step, *self.decode)

    def mapped(self, change: Callable[[tuple[Task, ...]], tuple[Task, ...]]) -> Workload:
        """Return the workload with each part (`encode`, `step`, `decode`) changed by `change`;
        `measured_ns` is recomputed for the measured pipeline calls with their own steps."""
        encode, step, decode = (change(part) for part in (self.encode, self.step, self.decode))
        total = np.zeros_like(self.measured_ns)
        for task in (*encode, *step, *decode):
            total = total + task.total_ns
        return replace(self, encode=encode, step=step, decode=decode, measured_ns=total)

    @property
    def submodules(self) -> tuple[str, ...]:
        """The submodules that are called, in order of their first calls."""
        names = (task.submodule for task in self.tasks)
        return tuple(dict.fromkeys(name for name in names if name is not None))


def workload_of(run: Run, analysis: Analysis, pipeline: int | None = None) -> Workload:
    """Return the workload of the pipeline calls of `run`, or of the one numbered `pipeline`.

    Of several the last is left out if the recording ended before it did, and the first if there was
    no warm-up. Raises InputError if the run has no pipeline call that called anything, or its
    pipeline calls did different things.
    """
    calls = run.calls if run.calls["call"].is_sorted() else run.calls.sort("call")
    pipelines = PipelineCalls.of(run)
    if pipelines.spans.is_empty():
        raise InputError(
            "the run holds no pipeline span, so what a request is made of is not known: record it "
            "with profiler.profile(pipeline), or give another run"
        )
    if not pipelines.known and bool(pipelines.overlapping().any()):
        raise InputError(
            "the run's pipeline calls overlap and it does not say what belongs to which: give a "
            "run in which they run one after the other"
        )
    cut = _chosen(pieces_of(run, pipelines), pipeline, warm=bool(run.info.warmup))
    factors = _overhead_ratio(analysis)
    traced = calls["ops_traced"].to_list()
    names = calls["submodule"].cast(pl.String).to_list()
    factor_of_call = [
        factors.get(name, 1.0) if was_traced else 1.0
        for name, was_traced in zip(names, traced, strict=True)
    ]
    called = [piece.call for pieces in cut for piece in pieces.called]
    applied = {names[row]: factors[names[row]] for row in called if factor_of_call[row] != 1.0}
    workload = Workload(
        encode=(),  # replaced by `with_pieces`
        step=(),
        decode=(),
        steps=0,
        weights=weights_of(run, analysis),
        activations=activations_of(analysis),
        measured_ns=np.zeros(len(cut), dtype=np.int64),
        devices=tuple(analysis.devices["device"]),
        overhead_ratio=applied,
        recorded_ns=np.array([p.duration_ns for p in cut], dtype=np.int64) if applied else None,
        numbers=tuple(pieces.number for pieces in cut),
        kept=kept_of(analysis),
    )
    return with_pieces(workload, cut, factor_of_call)


def with_pieces(
    workload: Workload, cut: Sequence[PipelinePieces], factors: Sequence[float] = ()
) -> Workload:
    """Return `workload` with these pipeline calls, corrected by `factors` as in `ScaledPieces`."""
    scaled = ScaledPieces(cut, factors)
    found = replace(
        workload,
        encode=scaled.tasks("encode"),
        step=scaled.tasks("step"),
        decode=scaled.tasks("decode"),
        steps=len(cut[0].steps),
        steps_of=_steps_of(cut),
    )
    return found.mapped(lambda tasks: tasks)


def _chosen(
    cut: Sequence[PipelinePieces], pipeline: int | None, *, warm: bool
) -> list[PipelinePieces]:
    """Choose the pipeline calls to measure."""
    if pipeline is not None:
        found = [pieces for pieces in cut if pieces.number == pipeline]
        if not found:
            known = ", ".join(str(pieces.number) for pieces in cut[:8])
            raise InputError(f"the run has no pipeline call {pipeline}: choose one of {known}")
    else:
        found = _whole(cut)
        if not warm and len(found) > 1:
            del found[0]  # it paid for what happens once
    if not any(pieces.steps or pieces.called for pieces in found):
        raise InputError(
            "predict starts from the calls of a pipeline call, and the run holds none: give a "
            "trace in which something was called"
        )
    kinds = {_kind(pieces): pieces.number for pieces in reversed(found)}
    if len(kinds) > 1:
        some = ", ".join(str(number) for number in sorted(kinds.values())[:4])
        raise InputError(
            f"pipeline calls {some} of the run did different things (steps, guidance, "
            "submodules): choose one with --pipeline"
        )
    return found


def _whole(cut: Sequence[PipelinePieces]) -> list[PipelinePieces]:
    """The pipeline calls without a last one that the recording cut short: its calls are only the
    start of an earlier one's."""
    *before, last = cut

    def names(pieces: PipelinePieces) -> list[str]:
        return [pieces.pipeline, *(piece.name for piece in pieces.called)]

    own = names(last)
    cut_short = any(len(all_) > len(own) and all_[: len(own)] == own for all_ in map(names, before))
    return before if cut_short else [*cut]


def _kind(pieces: PipelinePieces) -> tuple[object, ...]:
    """A key that pipeline calls measured together have in common."""
    encode, decode = (
        tuple(sorted(piece.name for piece in _called(phase)))
        for phase in (pieces.encode, pieces.decode)
    )
    in_steps = {piece.name for step in pieces.steps for piece in _called(step)}
    return (pieces.pipeline, encode, tuple(sorted(in_steps)), decode, len(pieces.steps))


def _called(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces that are calls."""
    return [piece for piece in pieces if piece.submodule is not None]


def _overhead_ratio(analysis: Analysis) -> dict[str, float]:
    """Untraced over traced time by submodule: as capture measured it, else if there are enough
    calls of both kinds."""
    rows = analysis.submodules.select("submodule", "overhead_ratio").drop_nulls()
    return {name: factor for name, factor in rows.iter_rows() if 0 < factor < float("inf")}


def _steps_of(cut: Sequence[PipelinePieces]) -> dict[str, float]:
    """The mean number of steps with a call of each name, for calls that are not in every step."""
    in_steps = (step for pieces in cut for step in pieces.steps)
    counts = Counter(name for step in in_steps for name in {p.name for p in _called(step)})
    steps = len(cut[0].steps)
    return {n: count / len(cut) for n, count in counts.items() if count != steps * len(cut)}
