"""Predictions by replay of launches, for devices that work through a queue.

Such runs are predicted by replay or not at all, because sums of call times would ignore the
host's launch time. Removed calls take their host time and launches with them. Another batch,
size or type changes only the device work. The host's pace is set so that a replay of the
recording takes the untraced time of the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.finding_text import MATERIAL, is_nothing
from profiler.analysis.replay import (
    NEVER,
    Clock,
    Fidelity,
    Recording,
    Refusal,
    fidelity,
    recording_of,
    why_not_one_host,
    why_not_replayed,
)
from profiler.analysis.result import Analysis
from profiler.analysis.timeline import PipelineCalls
from profiler.errors import InputError
from profiler.prediction.changes import (
    Changed,
    DeviceSpan,
    Estimates,
    Following,
    dropped,
    half_batch_estimates,
    multiplied,
    share_of_steps,
    unguided,
    with_steps,
    without,
    without_calls,
    work_estimates,
)
from profiler.prediction.pieces import (
    Graphs,
    Paces,
    Piece,
    PipelinePieces,
    ReplayedCall,
    host_pieces_of,
    replayed_call,
)
from profiler.prediction.requests import by_submodule
from profiler.prediction.scenario import Assumption, Reason, Scenario
from profiler.prediction.workload import Workload, with_pieces
from profiler.run.intervals import Stretches, Times
from profiler.run.launches import Flags
from profiler.run.run import Run
from profiler.text import Note, NoteCode

# --- Reasons of a replayed request's time: what waits for launches, and what would remove that.


_OF_CALLS = 0.1  # of a submodule's time: a longer wait is noted
_OF_REQUEST = 0.01


def reasons_of(
    before: Sequence[ReplayedCall], now: Sequence[ReplayedCall], one_launch: Sequence[ReplayedCall]
) -> Iterator[Note]:
    """Yield what determines the time of the request `now`: gains from less work relative to
    `before` (same steps, otherwise as recorded), submodules that wait for launches, and the time if
    each call were `one_launch`, if that was replayed and is materially shorter."""
    total = _elapsed(now)
    yield from _less_work(before, now, total)
    worked, waited = _sums(now)
    bound = False
    for name, idle in sorted(waited.items(), key=lambda item: -item[1]):
        elapsed = idle + worked[name]
        if idle > _OF_CALLS * elapsed and idle > _OF_REQUEST * total:
            values = {"idle_ns": round(idle), "elapsed_ns": round(elapsed)}
            yield Note.of(Reason.LAUNCH_BOUND, submodule=name, **values)
            bound = True
    if bound and one_launch:
        predicted = _elapsed(one_launch)
        span = _mean([call.device_span_ns for call in one_launch])
        values = {"predicted_ns": round(predicted), "device_span_ns": round(span)}
        if total - predicted >= MATERIAL * total:
            yield Note.of(Reason.WITH_GRAPHS, **values)


def _less_work(
    before: Sequence[ReplayedCall], now: Sequence[ReplayedCall], total: float
) -> Iterator[Note]:
    """Yield the gains from less device work, for submodules called as often as before; `total` is
    the time of a request."""
    least = _OF_REQUEST * total
    worked_before, waited_before = _sums(before)
    worked, waited = _sums(now)
    for name, was in worked_before.items():
        if name not in worked or _calls_of(name, before) != _calls_of(name, now):
            continue
        less = was - worked[name]
        gained = less + waited_before[name] - waited[name]
        if less > least and is_nothing(gained, total):
            yield Note.of(Reason.HIDDEN_WORK, submodule=name, less_ns=round(less))
        elif less > least:
            values = {"less_ns": round(less), "gained_ns": round(gained)}
            yield Note.of(Reason.LESS_WORK, submodule=name, **values)


def _calls_of(name: str, calls: Sequence[ReplayedCall]) -> int:
    return sum(piece.submodule == name for call in calls for piece in call.pieces.called)


def _sums(calls: Sequence[ReplayedCall]) -> tuple[dict[str, float], dict[str, float]]:
    """The busy and idle time of the tiles by submodule, averaged over pipeline calls."""
    names = dict.fromkeys(name for call in calls for name in call.busy_ns)
    busy = {name: _mean([call.busy_ns.get(name, 0.0) for call in calls]) for name in names}
    idle = {name: _mean([call.idle_ns.get(name, 0.0) for call in calls]) for name in names}
    return busy, idle


def _elapsed(calls: Sequence[ReplayedCall]) -> float:
    return _mean([call.pieces.duration_ns for call in calls])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


# --- What predictions on a device with a launch queue start from.
#
# Such a run is predicted by replaying its launches, or not at all: sums of call times would count
# savings that the host's launch time takes back.


_STILL = 1_000_000  # ns without a launch: the host does something else


class RefusedError(InputError):
    """A run's launches cannot be replayed; `why` has the code (`Refusal`) and its values."""

    def __init__(self, why: Note, sentence: str) -> None:
        """Set the note and the `sentence` that the user reads."""
        super().__init__(sentence)
        self.why = why


class ReplayBasis(Struct, frozen=True, eq=False):
    """The measured pipeline calls on the host's axis, and the launches in them.

    Of n calls `names` and `branches` are their submodules and branches, `queued`, bool [n], whether
    they launched work, `host` a factor on the host time in them, float64 [n]: below 1 if they were
    traced and the overhead is known. `fidelity` is the sum over pipeline calls. `pace` is the
    factor in `host` that removes the profiler's overhead, None if it was not applied. `stalls` are
    single long pauses of the host in calls: fewer launches do not save them.
    """

    recording: Recording
    plans: tuple[PipelinePieces, ...]
    names: npt.NDArray[np.str_]
    branches: npt.NDArray[np.str_]
    queued: Flags
    host: npt.NDArray[np.float64]
    fidelity: Fidelity
    stalls: Stretches
    pace: float | None = None

    @property
    def queued_names(self) -> tuple[str, ...]:
        """The submodules that launch work, in order of their calls."""
        return tuple(dict.fromkeys(self.names[self.queued].tolist()))

    def replayed(self, plans: Sequence[PipelinePieces], paces: Paces) -> tuple[ReplayedCall, ...]:
        """Replay each of `plans`."""
        return tuple(replayed_call(self.recording, plan, paces) for plan in plans)

    @property
    def as_recorded(self) -> Paces:
        """The paces of an unchanged run, without the profiling overhead if that is known."""
        return Paces(np.ones(len(self.host)), self.host)


def replay_basis(run: Run, workload: Workload, stalls: Stretches) -> ReplayBasis | None:
    """Make the replay basis of the `workload` of `run`, with the host's `stalls`; None if the run
    recorded no launches.

    Raises RefusedError if a replay would not reproduce the run's time.
    """
    if not run.calls["call"].is_sorted():
        run = dataclasses.replace(run, calls=run.calls.sort("call"))
    recording = recording_of(run)
    if recording is None:
        _check(None if workload.steps else why_not_one_host(run))
        return None
    pieces = host_pieces_of(run, PipelineCalls.of(run))
    plans = tuple(_on_clock(p, recording.clock) for p in pieces if p.number in workload.numbers)
    names = run.calls["submodule"].cast(pl.String).to_list()
    queued = np.zeros(len(names), dtype=np.bool_)
    queued[recording.works.call[recording.works.call >= 0]] = True
    traced = run.calls["ops_traced"].to_list()
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[[piece.call for plan in plans for piece in plan.called]] = True
    _check(why_not_replayed(run, recording, chosen))
    count = len(names)
    unchanged = [
        replayed_call(recording, plan, Paces(np.ones(count), np.ones(count))) for plan in plans
    ]
    each = [fidelity(recording, call.replayed) for call in unchanged]
    _check_believed(each)
    stalls = recording.clock.during(stalls)
    if not workload.steps:
        stalls = Stretches.of_all((stalls, _still(recording)))
    factors = workload.overhead_ratio
    host = [factors.get(name, 1.0) if was else 1.0 for name, was in zip(names, traced, strict=True)]
    return ReplayBasis(
        recording=recording,
        plans=plans,
        names=np.array(names, dtype=np.str_),
        branches=np.array(run.calls["branch"].cast(pl.String).fill_null("").to_list(), dtype=str),
        queued=queued,
        host=np.array(host),
        fidelity=Fidelity(sum(f.recorded_ns for f in each), sum(f.replayed_ns for f in each)),
        stalls=stalls,
    )


def _on_clock(plan: PipelinePieces, clock: Clock) -> PipelinePieces:
    """Return the plan with the times of its pieces on the clock."""
    if not len(clock.lost):
        return plan

    def moved(piece: Piece) -> Piece:
        both = np.array([piece.start_ns, piece.start_ns + piece.duration_ns])
        first, last = clock.at(both).tolist()
        return replace(piece, start_ns=first, duration_ns=last - first)

    return plan.mapped(lambda pieces: tuple(map(moved, pieces)))


def _check(why: Note | None) -> None:
    """Raise if there is a reason not to replay a run."""
    if why is not None:
        raise RefusedError(why, _REFUSED[why.code](why.values))


_REFUSED: Mapping[NoteCode, Callable[[Mapping[str, Any]], str]] = {
    Refusal.COLLECTIVES: lambda _: (
        "devices wait for one another in collectives, and when the others would come does not "
        "follow from what one host did, so nothing else can be replayed: give a run of one device"
    ),
    Refusal.SEVERAL_AT_ONCE: lambda of: (
        f"calls of {', '.join(of['devices'])} run at the same time, and a replay has one host, so "
        "nothing else can be replayed: give a run of one device"
    ),
    Refusal.PARTLY_TRACED: lambda of: (
        f"some calls of {of['submodule']} were recorded without their launches, so what the host "
        "and the device would do cannot be replayed: record the run with --ops all"
    ),
    Refusal.LAUNCHES_MISSING: lambda of: (
        f"the launches of {of['missing_share']:.0%} of the device's work are not in the trace, so "
        "what the host and the device would do cannot be replayed: record the whole run"
    ),
}


def _still(recording: Recording) -> Stretches:
    """The intervals in which the host launched nothing for long: loading data, say, which graphs do
    not remove."""
    moments = np.unique(recording.works.moment)
    moments = moments[moments > NEVER]
    return Stretches(moments[:-1], moments[1:]).longer_than(_STILL)


def _check_believed(each: Sequence[Fidelity]) -> None:
    """Raise if the unchanged replay of a pipeline call differs too much from the recording."""
    worst = max(each, key=lambda one: abs(one.ratio - 1.0), default=None)
    if worst is not None and not worst.believed:
        raise RefusedError(
            Note.of(
                Refusal.REPLAY_OFF,
                recorded_ns=worst.recorded_ns,
                replayed_ns=worst.replayed_ns,
                off_share=abs(worst.ratio - 1.0),
            ),
            f"replayed as it was, the run has {worst.ratio:.1%} of its device span, so its trace "
            "lacks something that its device waited for (events of other streams, another process) "
            "and a replay of anything else would be wrong by more: give a run that replays "
            "within 1%",
        )


# --- Scenarios of runs with launch queues: launches are replayed.
#
# Removed calls take their host time and launches with them; another batch, size or type changes the
# length of device work and keeps launches; additional steps repeat the launches of recorded ones.


_VARIANTS = ("value", "low", "high")
_NEARLY_ALL = 0.9  # of the launches of a call: as many can be one graph
GRAPHS_KEEP = 0.75
"""The smallest share of the predicted gain of graphs that was measured: copies of inputs, the
launch of the graph and gaps between its kernels take the rest. The graphs recorded on an H200 kept
77 % and 88 %, 96 % and 93 % without a profiler (docs/gpu-evidence.md)."""


def changed_by_replay(
    basis: ReplayBasis,
    workload: Workload,
    scenario: Scenario,
    analysis: Analysis,
    following: Following,
    *,
    explained: bool,
) -> Changed:
    """Apply `scenario` to the `workload` by replay, except for placement; `following` is the effect
    of its findings. With `explained`, two more replays find the reasons.

    Raises InputError if the run cannot answer it.
    """
    plan = _Plan.of(basis, workload, scenario, analysis, following)
    alike = basis.replayed(plan.calls, plan.paces["value"])
    unchanged, asked, scatter = basis.plans, plan.calls, None
    steps = scenario.steps
    if steps is not None and steps != workload.steps:
        unchanged, asked = (
            tuple(with_steps(call, steps) for call in calls) for calls in (basis.plans, plan.calls)
        )
        scatter = replace(_workload(workload, alike), steps=steps)
    now = alike if scatter is None else basis.replayed(asked, plan.paces["value"])
    reasons: tuple[Note, ...] = ()
    if explained:
        graphs = plan.paces["value"].graphs
        before = basis.replayed(unchanged, replace(basis.as_recorded, graphs=graphs))
        in_graphs = replace(plan.paces["value"], graphs=_graphs(basis))
        one_launch = () if scenario.cuda_graph else basis.replayed(asked, in_graphs)
        reasons = tuple(reasons_of(before, now, one_launch))
    found = _workload(workload, now)
    return Changed(
        workload=found,
        spread=_spread(found, basis, asked, plan, workload),
        assumes=(*plan.assumes, *_of_replay(basis, workload, analysis)),
        unknown=plan.unknown,
        scatter=scatter,
        device=DeviceSpan(
            recorded_ns=basis.fidelity.recorded_ns / len(basis.plans),
            replayed_ns=basis.fidelity.replayed_ns / len(basis.plans),
            ns=_mean([call.device_span_ns for call in now]),
        ),
        reasons=reasons,
        within_ns=_bounds(basis, asked, plan, now, scenario),
    )


def _bounds(
    basis: ReplayBasis,
    asked: Sequence[PipelinePieces],
    plan: _Plan,
    now: Sequence[ReplayedCall],
    scenario: Scenario,
) -> tuple[float, float] | None:
    """The bounds of a request's time: low if fused submodules take one launch per call, high if
    graphs keep only the smallest measured share of their gain. None without either.

    With another size or precision, the untraced time gives the host's pace only within bounds. If
    the device limited that time, at a lower clock than in the recording, the host may have been
    infinitely fast. If kernels in the queue followed one another sooner than in the recording, more
    of that time was the host's.
    """
    paces, found = plan.paces["value"], _elapsed(now)
    low = high = found
    other_work = scenario.size is not None or scenario.precision is not None
    if other_work and basis.pace and scenario.untraced_ns is not None:
        low = _elapsed(basis.replayed(asked, replace(paces, host=0 * paces.host)))
        slower = _slowest(basis, scenario.untraced_ns)
        high = _elapsed(basis.replayed(asked, replace(paces, host=slower * paces.host)))
    if plan.fused:
        fused = {row: extent for row, extent in _graphs(basis).items() if row in plan.fused}
        one_launch = replace(paces, graphs={**fused, **paces.graphs})
        low = min(low, _elapsed(basis.replayed(asked, one_launch)))
    if paces.graphs:
        launched = _elapsed(basis.replayed(asked, replace(paces, graphs={})))
        high = max(high, found + (1 - GRAPHS_KEEP) * max(launched - found, 0.0))
    bounded = (min(low, found), max(high, found))
    return bounded if plan.fused or paces.graphs or bounded != (found, found) else None


class _Plan(Struct, frozen=True, eq=False):
    """The pipeline calls with their recorded number of steps, the paces of their calls at the
    estimates and at their bounds, and notes on these; `fused` are the rows of calls whose launches
    a compiler takes over."""

    calls: tuple[PipelinePieces, ...]
    paces: Mapping[str, Paces]
    estimated: bool
    assumes: tuple[Note, ...]
    unknown: tuple[Note, ...]
    fused: frozenset[int]

    @classmethod
    def of(
        cls,
        basis: ReplayBasis,
        workload: Workload,
        scenario: Scenario,
        analysis: Analysis,
        following: Following,
    ) -> _Plan:
        calls, queued = basis.plans, basis.queued_names
        assumes: list[Note] = []
        some: list[Estimates] = []
        if scenario.drop:
            calls = tuple(dropped(call, scenario.drop) for call in calls)
            workload = without(workload, lambda task: task.submodule in scenario.drop)
            assumes.append(Note.of(Assumption.WITHOUT_SUBMODULES, submodules=scenario.drop))
        if not scenario.guidance:
            calls = tuple(map(unguided, calls))
            assumes.append(Note.of(Assumption.WITHOUT_GUIDANCE))
            some.append(half_batch_estimates(workload, analysis, queued))
        if following.effects:
            calls = tuple(without_calls(call, following.leaves) for call in calls)
            assumes += following.assumes
            some += following.work
        some += work_estimates(workload, scenario, analysis, queued)
        assumes += (note for estimates in some for note in estimates.assumes)
        assumes += multiplied(some)
        if scenario.steps is not None:
            assumes += share_of_steps(workload)
        graphs = _graphs(basis) if scenario.cuda_graph else {}
        assumes += _graph_notes(basis, graphs) if scenario.cuda_graph else ()
        bounds = [ratio for estimates in some for ratio in estimates.ratios.values()]
        paces = {name: _paces(basis, some, name, graphs, following.host) for name in _VARIANTS}
        fused = np.flatnonzero(np.isin(basis.names, sorted(following.fused)) & basis.queued)
        if len(fused):
            assumes.append(Note.of(Assumption.FUSED, submodules=tuple(sorted(following.fused))))
        return cls(
            calls=calls,
            paces=paces,
            estimated=any(ratio.low < ratio.high for ratio in bounds),
            assumes=tuple(assumes),
            unknown=tuple(note for estimates in some for note in estimates.unknown),
            fused=frozenset(fused.tolist()),
        )


def _paces(
    basis: ReplayBasis,
    some: Sequence[Estimates],
    variant: str,
    graphs: Graphs,
    less_host: Mapping[str, float],
) -> Paces:
    """Return the paces at the estimates' `value`, or at one of their bounds; `less_host` are
    factors on the host time of submodules."""
    work, host = np.ones(len(basis.names)), basis.host.copy()
    for name, factor in less_host.items():
        host[(basis.names == name) & basis.queued] *= factor
    for estimates in some:
        for name, ratio in estimates.ratios.items():
            rows = basis.names == name
            if estimates.branch is not None:
                rows &= basis.branches == estimates.branch
            factor = getattr(ratio, variant)
            work[rows & basis.queued] *= factor
            host[rows & ~basis.queued] *= factor
    return Paces(work, host, graphs)


def _workload(workload: Workload, calls: Sequence[ReplayedCall]) -> Workload:
    return with_pieces(workload, [call.pieces for call in calls])


def _spread(
    found: Workload,
    basis: ReplayBasis,
    asked: Sequence[PipelinePieces],
    plan: _Plan,
    workload: Workload,
) -> dict[str, tuple[float, float]]:
    """The bounds of each submodule's time relative to its predicted time, if it was estimated."""
    if not plan.estimated:
        return {}
    times = by_submodule(found)
    low, high = (
        by_submodule(_workload(workload, basis.replayed(asked, plan.paces[bound])))
        for bound in ("low", "high")
    )
    return {
        name: (min(low[name] / time, 1.0), max(high[name] / time, 1.0))
        for name, time in times.items()
        if time > 0 and name in found.submodules
    }


def _graphs(basis: ReplayBasis) -> Graphs:
    """Find the calls that can be one graph, by row, with the host intervals in which nearly all of
    their work is launched without a wait, minus stalls. Waits before (a copy of inputs) and after
    (a value that the caller reads) are kept."""
    called = {
        piece.call: (piece.start_ns, piece.start_ns + piece.duration_ns)
        for plan in basis.plans
        for piece in plan.called
        if basis.queued[piece.call]
    }
    waits = basis.recording.waits
    own = waits.back <= 1  # waits for a full queue are not in the code
    between = waits.begin[own], waits.end[own], np.sort(basis.recording.works.moment)
    found = {row: _longest_launched(*between, *extent) for row, extent in called.items()}
    return {
        row: _without(basis.stalls, *extent) for row, extent in found.items() if extent is not None
    }


def _without(stalls: Stretches, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of `start` to `end` outside of stalls."""
    left = Stretches(np.array([start]), np.array([end])).minus(stalls)
    return [*zip(left.start.tolist(), left.end.tolist(), strict=True)]


def _longest_launched(
    begins: Times, ends: Times, moments: Times, start: int, end: int
) -> tuple[int, int] | None:
    """The interval between two of the host's waits (`begins`, `ends`) that has most launches
    (`moments`) of `start` to `end`; None if these are not nearly all. All are sorted by time."""
    inside = slice(*np.searchsorted(begins, [start, end]))
    first = np.minimum(np.append(start, ends[inside]), end)
    last = np.append(begins[inside], end)
    launched = np.searchsorted(moments, last) - np.searchsorted(moments, first)
    best = int(launched.argmax())
    all_launched = np.searchsorted(moments, end) - np.searchsorted(moments, start)
    if not launched[best] or launched[best] < _NEARLY_ALL * all_launched:
        return None
    return int(first[best]), int(last[best])


def _graph_notes(basis: ReplayBasis, graphs: Graphs) -> Iterator[Note]:
    inside = tuple(dict.fromkeys(basis.names[sorted(graphs)].tolist()))
    left = tuple(name for name in basis.queued_names if name not in inside)
    if inside:
        yield Note.of(Assumption.ONE_LAUNCH, submodules=inside)
        yield Note.of(Assumption.GRAPHS_KEEP, share=GRAPHS_KEEP)
    if inside and (stalled := _stalled_ns(basis, graphs)):
        yield Note.of(Assumption.STALLS_STAY, stalls_ns=stalled)
    if left:
        yield Note.of(Assumption.NOT_CAPTURED, submodules=left)


def _stalled_ns(basis: ReplayBasis, graphs: Graphs) -> int:
    """How long the host stood still in calls that are graphs, the mean of pipeline calls."""
    pieces = [one for plan in basis.plans for one in plan.called if one.call in graphs]
    begin = np.array([piece.start_ns for piece in pieces], dtype=np.int64)
    end = begin + np.array([piece.duration_ns for piece in pieces], dtype=np.int64)
    return int(basis.stalls.within(begin, end).sum()) // len(basis.plans)


def _of_replay(basis: ReplayBasis, workload: Workload, analysis: Analysis) -> Iterator[Note]:
    yield Note.of(
        Assumption.AS_MANY_LAUNCHES,
        recorded_ns=basis.fidelity.recorded_ns,
        replayed_ns=basis.fidelity.replayed_ns,
    )
    if basis.pace is not None:
        yield Note.of(Assumption.HOST_UNTRACED, share=basis.pace)
    elif not workload.overhead_ratio:
        stacks = bool(analysis.run.recording and analysis.run.recording.with_stack)
        code = Assumption.HOST_WITH_STACKS if stacks else Assumption.HOST_AS_RECORDED
        yield Note.of(code)


# --- Find the host's pace without the profiler, from the untraced time of the run.
#
# Recording slows the host (1.7 to 2.3 us per event on an H200's host, measured by CUDA events with
# and without torch.profiler), and hardly the device. So there is one pace of the host in its calls
# at which a replay of the recorded launches takes the untraced time.


_ROUNDS = 24  # of bisection: to 1e-7 of the host's time
_NEAR = 0.005  # of the given time: close enough


def at_untraced_pace(basis: ReplayBasis, untraced_ns: int) -> ReplayBasis:
    """`basis` with the host's pace at which its pipeline calls take `untraced_ns` in the mean.

    Raises InputError if no pace does: the device's own work takes longer, or the run took less.
    """
    recorded, least = _replayed_ns(basis, 1.0), _replayed_ns(basis, 0.0)
    if untraced_ns > recorded * (1 + _NEAR):
        raise InputError(
            f"--untraced {untraced_ns / 1e6:.4g} ms is longer than the {recorded / 1e6:.4g} ms "
            "that the run took while it was recorded: give what the same request takes without the "
            "profiler, from its first call to the end of its last"
        )
    if untraced_ns < least * (1 - _NEAR):
        raise InputError(
            f"--untraced {untraced_ns / 1e6:.4g} ms is not reached: what the device did takes "
            f"{least / 1e6:.4g} ms as recorded, however fast the host is, so the device ran slower "
            "while it was recorded (clocks, power); leave --untraced out"
        )
    pace = _pace(basis, untraced_ns, 1.0)
    return replace(basis, host=basis.host * pace, pace=pace)


def _slowest(basis: ReplayBasis, untraced_ns: int) -> float:
    """Return the factor by which the host may be slower than in `basis` if kernels in the queue had
    no gaps; at most as slow as recorded."""
    works = basis.recording.works
    at_once = replace(works, behind=np.where(works.launch > NEVER, 0, works.behind))
    sooner = replace(basis, recording=replace(basis.recording, works=at_once))
    return max(_pace(sooner, untraced_ns, 1.0 / (basis.pace or 1.0)), 1.0)


def _pace(basis: ReplayBasis, taken_ns: int, most: float) -> float:
    """Find the host's slowest pace, up to `most`, at which pipeline calls take `taken_ns`."""
    low, high = 0.0, most
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if _replayed_ns(basis, middle) > taken_ns:
            high = middle
        else:
            low = middle
    return high


def _replayed_ns(basis: ReplayBasis, pace: float) -> float:
    """The mean replayed time of the recorded pipeline calls at this host pace, to the end of each
    one's last call."""
    calls = basis.replayed(basis.plans, replace(basis.as_recorded, host=basis.host * pace))
    return sum(call.pieces.duration_ns - _behind_ns(call.pieces) for call in calls) / len(calls)


def _behind_ns(pieces: PipelinePieces) -> int:
    """How long the host's work behind the last call takes."""
    *_, last = chain.from_iterable(pieces.phases)
    return 0 if last.submodule is not None else last.duration_ns
