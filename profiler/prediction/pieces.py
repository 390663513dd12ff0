"""The pieces of a pipeline call: its calls and the host's time, and a replay of these."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.replay import Recording, Replayed, Script, replay
from profiler.analysis.timeline import Axis, PipelineCalls
from profiler.run.columns import SPANS, schema
from profiler.run.intervals import Stretches, Times, ends
from profiler.run.run import Run
from profiler.trace.events import NO_CALL, NO_PIPELINE, NO_STEP, DropKind

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

    def mapped(self, change: Callable[[tuple[Piece, ...]], tuple[Piece, ...]]) -> PipelinePieces:
        """Return the pipeline call with each phase changed by `change`."""
        encode, *steps, decode = map(change, self.phases)
        return replace(self, encode=encode, steps=tuple(steps), decode=decode)

    @property
    def called(self) -> list[Piece]:
        """The pieces that are calls, in order."""
        return called_in(chain.from_iterable(self.phases))


def called_in(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces that are calls."""
    return [piece for piece in pieces if piece.submodule is not None]


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


# --- Replay a plan of host work: what each piece adds to the pipeline call.
#
# As in a recorded call (`pieces`), a call lasts from its start, or the end of the one before it,
# until its last work has ended; the remaining time is the host's. The pipeline call ends with its
# last work if that ends after the host's return (`axis`).


_Reals = npt.NDArray[np.float64]
Graphs = Mapping[int, Sequence[tuple[int, int]]]


class Paces(Struct, frozen=True, eq=False):
    """Factors on calls, by row: `work`, float64 [n], new over old length of their device work, and
    `host`, the same of the host time in them. `graphs` are, by row, the host intervals, start and
    end in ns, in which all launches become one."""

    work: _Reals
    host: _Reals
    graphs: Graphs = field(default_factory=dict)


class ReplayedCall(Struct, frozen=True, eq=False):
    """One replayed pipeline call: its pieces with their times, the device's span in ns, and the
    busy and idle time of its calls' tiles by submodule, in ns."""

    pieces: PipelinePieces
    device_span_ns: int
    busy_ns: Mapping[str, float]
    idle_ns: Mapping[str, float]
    replayed: Replayed


def replayed_call(recording: Recording, plan: PipelinePieces, paces: Paces) -> ReplayedCall:
    """Replay `plan`, whose pieces start when the host begins them."""
    flat = [*chain.from_iterable(plan.phases)]
    script, owner = _script(flat, paces)
    found = replay(recording, script, _lengths(recording, paces))
    timed, ran = _timed(recording, flat, owner, found)
    borders = np.cumsum([0, *map(len, plan.phases)]).tolist()
    parts = [tuple(timed[a:b]) for a, b in pairwise(borders)]
    encode, *steps, decode = parts
    total = sum(piece.duration_ns for piece in timed)
    pieces = replace(plan, duration_ns=total, encode=encode, steps=tuple(steps), decode=decode)
    busy, idle = _of_tiles(timed, ran, found)
    return ReplayedCall(pieces, found.device_span_ns, busy, idle, found)


def _script(pieces: Sequence[Piece], paces: Paces) -> tuple[Script, Times]:
    """Make the slices of host time to replay, one per piece, several for calls with graphs; and the
    first slice of each piece, int64 [pieces + 1]."""
    slices: list[tuple[int, int, float, bool]] = []
    owner = [0]
    for piece in pieces:
        first, last = piece.start_ns, piece.start_ns + piece.duration_ns
        of_call = piece.submodule is not None
        pace = float(paces.host[piece.call]) if of_call else 1.0
        graphs = paces.graphs.get(piece.call, ()) if of_call else ()
        borders = [first, *(moment for extent in graphs for moment in extent), last]
        parts = [(*part, pace, n % 2 == 1) for n, part in enumerate(pairwise(borders))]
        slices += [part for part in parts if part[1] > part[0]] or [(first, last, pace, False)]
        owner.append(len(slices))
    first_ns, last_ns = (np.array([part[i] for part in slices], dtype=np.int64) for i in (0, 1))
    pace_of = np.array([part[2] for part in slices])
    graph = np.array([part[3] for part in slices], dtype=np.bool_)
    return Script(first_ns, last_ns, pace_of, graph), np.array(owner, dtype=np.int64)


def _lengths(recording: Recording, paces: Paces) -> Times:
    works = recording.works
    factor = np.append(paces.work, 1.0)[works.call]  # the last entry is for work outside calls
    found: Times = np.rint(works.length * factor).astype(np.int64)
    return found


def _timed(
    recording: Recording, pieces: Sequence[Piece], owner: Times, found: Replayed
) -> tuple[list[Piece], list[Times]]:
    """Return the pieces (slices start at `owner`) with their new times, and for each call the
    positions of its work in `found`."""
    cursor = int(found.begin[0]) if len(pieces) else 0
    borders = np.searchsorted(found.slice, owner)
    begin, end = found.begin[owner[:-1]].tolist(), found.end[owner[1:] - 1].tolist()
    of_call = recording.works.call[found.work]
    timed, ran = [], []
    for place, piece in enumerate(pieces):
        start, until = max(begin[place], cursor), max(end[place], cursor)
        own = np.arange(borders[place], borders[place + 1])
        if piece.submodule is not None:
            own = own[of_call[own] == piece.call]
        elif place < len(pieces) - 1:  # of the host's work only the last is waited for
            own = own[:0]
        until = int(found.done[own].max(initial=until))
        timed.append(replace(piece, start_ns=start, duration_ns=until - start))
        ran.append(own)
        cursor = until
    return timed, ran


def _of_tiles(
    pieces: Sequence[Piece], ran: Sequence[Times], found: Replayed
) -> tuple[Counter[str], Counter[str]]:
    """Sum up, by submodule, how long the tiles of its calls were busy and idle."""
    busy: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    for piece, own in zip(pieces, ran, strict=True):
        if piece.submodule is None or not len(own):
            continue
        some = own[np.argsort(found.start[own], kind="stable")]
        start = np.maximum(found.start[some], piece.start_ns)
        done = np.maximum(np.maximum.accumulate(found.done[some]), piece.start_ns)
        before = np.append(piece.start_ns, done[:-1])
        worked = int(np.maximum(done - np.maximum(start, before), 0).sum())
        busy[piece.submodule] += worked
        idle[piece.submodule] += piece.duration_ns - worked
    return busy, idle
