"""Scenarios of runs whose devices work through queues: launches are replayed.

Calls that leave take the host's time and their launches with them; another batch, size or type
makes work shorter or longer and leaves launches as they were; further steps launch what recorded
ones did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from profiler.analysis.prediction.changes import Changed, DeviceSpan, without
from profiler.analysis.prediction.codes import Assumption
from profiler.analysis.prediction.estimates import (
    Estimates,
    half_batch_estimates,
    multiplied,
    share_of_steps,
    work_estimates,
)
from profiler.analysis.prediction.host_plan import dropped, unguided, with_steps
from profiler.analysis.prediction.host_replay import Paces, ReplayedCall
from profiler.analysis.prediction.pieces import PipelinePieces
from profiler.analysis.prediction.reasons import reasons_of
from profiler.analysis.prediction.replay_basis import ReplayBasis
from profiler.analysis.prediction.request import by_submodule
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.workload import Workload, with_pieces
from profiler.analysis.result import Analysis
from profiler.analysis.roofline.call_costs import Ratio
from profiler.run.device_timeline import Times
from profiler.run.run import Run
from profiler.text import Note

__all__ = ["changed_by_replay"]

_VARIANTS = ("value", "low", "high")
_NEARLY_ALL = 0.9  # of the launches of a call: as many are one graph


def changed_by_replay(
    basis: ReplayBasis, workload: Workload, scenario: Scenario, run: Run, analysis: Analysis
) -> Changed:
    """`workload` of `run` as `scenario` has it, but for where submodules are placed.

    Raises InputError where the run cannot answer it.
    """
    plan = _Plan.of(basis, workload, scenario, run, analysis)
    alike = basis.replayed(plan.calls, plan.paces["value"])
    unchanged, asked, scatter = basis.plans, plan.calls, None
    steps = scenario.steps
    if steps is not None and steps != workload.steps:
        unchanged, asked = (
            tuple(with_steps(call, steps) for call in calls) for calls in (basis.plans, plan.calls)
        )
        scatter = replace(_workload(workload, alike), steps=steps)
    now = alike if scatter is None else basis.replayed(asked, plan.paces["value"])
    graphs = plan.paces["value"].graphs
    before = basis.replayed(unchanged, replace(basis.as_recorded, graphs=graphs))
    in_graphs = replace(plan.paces["value"], graphs=_graphs(basis))
    one_launch = () if scenario.cuda_graph else basis.replayed(asked, in_graphs)
    found = _workload(workload, now)
    return Changed(
        workload=found,
        spread=_spread(found, basis, asked, plan, workload),
        assumes=(*plan.assumes, *_of_replay(basis, workload, run)),
        unknown=plan.unknown,
        scatter=scatter,
        device=DeviceSpan(
            recorded_ns=basis.fidelity.recorded_ns / len(basis.plans),
            replayed_ns=basis.fidelity.replayed_ns / len(basis.plans),
            ns=float(np.mean([call.device_span_ns for call in now])),
        ),
        reasons=tuple(reasons_of(before, now, one_launch)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What the pipeline calls do with as many steps as they had, how long their calls' work and
    host time are at the estimates and at their bounds, and what that rests on."""

    calls: tuple[PipelinePieces, ...]
    paces: Mapping[str, Paces]
    estimated: bool
    assumes: tuple[Note, ...]
    unknown: tuple[Note, ...]

    @classmethod
    def of(
        cls,
        basis: ReplayBasis,
        workload: Workload,
        scenario: Scenario,
        run: Run,
        analysis: Analysis,
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
            some.append(half_batch_estimates(workload, run, analysis, queued))
        some += work_estimates(workload, scenario, run, analysis, queued)
        assumes += (note for estimates in some for note in estimates.assumes)
        assumes += multiplied(some)
        if scenario.steps is not None:
            assumes += share_of_steps(workload)
        graphs = _graphs(basis) if scenario.cuda_graph else {}
        assumes += _graph_notes(basis, graphs) if scenario.cuda_graph else ()
        bounds = [ratio for estimates in some for ratio in estimates.ratios.values()]
        return cls(
            calls=calls,
            paces={name: _paces(basis, some, name, graphs) for name in _VARIANTS},
            estimated=any(ratio.low < ratio.high for ratio in bounds),
            assumes=tuple(assumes),
            unknown=tuple(note for estimates in some for note in estimates.unknown),
        )


def _paces(
    basis: ReplayBasis,
    some: Sequence[Estimates],
    variant: str,
    graphs: Mapping[int, tuple[int, int]],
) -> Paces:
    """The paces at the estimates' `value`, or at a bound of theirs."""
    work, host = np.ones(len(basis.names)), basis.host.copy()
    for estimates in some:
        for name, ratio in estimates.ratios.items():
            rows = basis.names == name
            if estimates.branch is not None:
                rows &= basis.branches == estimates.branch
            factor = _at(ratio, variant)
            work[rows & basis.queued] *= factor
            host[rows & ~basis.queued] *= factor
    return Paces(work, host, graphs)


def _at(ratio: Ratio, variant: str) -> float:
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high}[variant]


def _workload(workload: Workload, calls: Sequence[ReplayedCall]) -> Workload:
    return with_pieces(workload, [call.pieces for call in calls])


def _spread(
    found: Workload,
    basis: ReplayBasis,
    asked: Sequence[PipelinePieces],
    plan: _Plan,
    workload: Workload,
) -> dict[str, tuple[float, float]]:
    """By submodule the bounds of its time relative to what was found, where it was estimated."""
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


def _graphs(basis: ReplayBasis) -> dict[int, tuple[int, int]]:
    """The rows of calls that can be one launch, and the host's time in which nearly all of their
    work is launched without a wait. What they wait for ahead of it (a copy of their inputs) or
    behind it (a value that the caller reads) stays."""
    called = {
        piece.call: (piece.start_ns, piece.start_ns + piece.duration_ns)
        for plan in basis.plans
        for phase in (plan.encode, *plan.steps, plan.decode)
        for piece in phase
        if piece.submodule is not None and basis.queued[piece.call]
    }
    waits = basis.recording.waits
    own = waits.back == 0  # launches into a full queue are no waits of the code's
    between = _Between(waits.begin[own], waits.end[own], np.sort(basis.recording.works.moment))
    found = {row: _longest_launched(between, *extent) for row, extent in called.items()}
    return {row: extent for row, extent in found.items() if extent is not None}


class _Between(NamedTuple):
    """When the host waited, begins and ends, and when it launched, each in order of time."""

    begins: Times
    ends: Times
    moments: Times


def _longest_launched(between: _Between, start: int, end: int) -> tuple[int, int] | None:
    """The time between two waits in which most is launched from `start` to `end`; None where that
    is not nearly all of it."""
    begins, ends, moments = between
    inside = slice(*np.searchsorted(begins, [start, end]))
    first = np.minimum(np.append(start, ends[inside]), end)
    last = np.append(begins[inside], end)
    launched = np.searchsorted(moments, last) - np.searchsorted(moments, first)
    best = int(launched.argmax())
    all_launched = np.searchsorted(moments, end) - np.searchsorted(moments, start)
    if not launched[best] or launched[best] < _NEARLY_ALL * all_launched:
        return None
    return int(first[best]), int(last[best])


def _graph_notes(basis: ReplayBasis, graphs: Mapping[int, tuple[int, int]]) -> list[Note]:
    inside = tuple(dict.fromkeys(basis.names[sorted(graphs)].tolist()))
    left = tuple(name for name in basis.queued_names if name not in inside)
    notes = []
    if inside:
        notes.append(Note.of(Assumption.ONE_LAUNCH, submodules=inside))
    if left:
        notes.append(Note.of(Assumption.NOT_CAPTURED, submodules=left))
    return notes


def _of_replay(basis: ReplayBasis, workload: Workload, run: Run) -> list[Note]:
    notes = [
        Note.of(
            Assumption.AS_MANY_LAUNCHES,
            recorded_ns=basis.fidelity.recorded_ns,
            replayed_ns=basis.fidelity.replayed_ns,
        )
    ]
    if basis.pace is not None:
        notes.append(Note.of(Assumption.HOST_UNTRACED, share=basis.pace))
    elif not workload.overhead_ratio:
        stacks = bool(run.info.recording and run.info.recording.with_stack)
        code = Assumption.HOST_WITH_STACKS if stacks else Assumption.HOST_AS_RECORDED
        notes.append(Note.of(code))
    return notes
