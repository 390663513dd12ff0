"""`predict`: a run and a scenario → what a request would take, and many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import polars as pl

from profiler.analysis.prediction.by_replay import changed_by_replay
from profiler.analysis.prediction.changes import Changed, changed
from profiler.analysis.prediction.codes import Assumption, Unknown
from profiler.analysis.prediction.killed import with_spans_of_calls
from profiler.analysis.prediction.on_devices import OnDevices
from profiler.analysis.prediction.recorded_requests import (
    predict_requests,
    recorded_by_server,
)
from profiler.analysis.prediction.replay_basis import ReplayBasis, replay_basis
from profiler.analysis.prediction.request import (
    RequestTime,
    by_stage,
    by_submodule,
    mean_time,
    moved,
    request_time,
)
from profiler.analysis.prediction.result import Measured, Part, Prediction
from profiler.analysis.prediction.scenario import Scenario, check
from profiler.analysis.prediction.untraced_host import at_untraced_pace
from profiler.analysis.prediction.workload import Workload, with_pieces, workload_of
from profiler.analysis.result import Analysis
from profiler.bootstrap import Resampled
from profiler.errors import InputError
from profiler.run.device_timeline import device_work, launches_of
from profiler.run.run import Run
from profiler.text import Note

__all__ = ["READS", "predict"]

READS = ("calls", "devices", "memory", "memory_devices", "roofline", "submodules")
"""The tables of the analysis that predictions are made from."""

_MUCH = 0.1  # of a request: what was measured once is said


def predict(
    run: Run, analysis: Analysis, scenario: Scenario, pipeline: int | None = None
) -> Prediction:
    """Predict `scenario` from `run`; `analysis` is of the whole run, without a selection.

    Of several pipeline calls `pipeline` is the number of the one to start from. Raises InputError
    where the run cannot answer it.
    """
    if recorded_by_server(run):
        return predict_requests(run, scenario)
    given, run = run, with_spans_of_calls(run)
    workload = workload_of(run, analysis, pipeline)
    check(scenario, workload)
    basis = _basis(workload, scenario, run) if scenario.changes_calls else None
    workload = _untraced(workload, basis)
    changes = _changed(workload, basis, scenario, run, analysis)
    devices = OnDevices.of(run, analysis, scenario, changes.workload)
    request = _request(changes, devices.placed)
    assumes = _assumed(analysis, workload, basis, changes, devices)
    spans = () if run is given else (Note.of(Assumption.SPANS_OF_CALLS),)
    unknown = (*changes.unknown, *_scatter(request), *_missing(run, analysis, scenario))
    return Prediction(
        run_id=run.run_id,
        scenario=scenario,
        measured=_measured(workload),
        request=request,
        stages=_parts(by_stage(workload), by_stage(devices.placed)),
        submodules=_parts(by_submodule(workload), by_submodule(devices.placed)),
        simulation=devices.simulation,
        best=devices.best,
        too_large=devices.too_large,
        assumes=_each_once((*spans, *assumes)),
        unknown=_each_once(unknown),
        device=changes.device,
        reasons=changes.reasons,
    )


def _basis(workload: Workload, scenario: Scenario, run: Run) -> ReplayBasis | None:
    """What a replay starts from; None where the run recorded no launches."""
    basis = replay_basis(run, workload)
    if basis is not None:
        untraced = scenario.untraced_ns
        return basis if untraced is None else at_untraced_pace(basis, untraced)
    if scenario.cuda_graph:
        raise InputError(
            "the run recorded no launches on a device, so there are none for --cuda-graph to make "
            "one of: leave it out, or give a run of a GPU"
        )
    if scenario.untraced_ns is not None:
        raise InputError(
            "the run recorded no launches on a device, so how fast its host is does not follow "
            "from --untraced: leave it out, or give a run of a GPU"
        )
    return None


def _untraced(workload: Workload, basis: ReplayBasis | None) -> Workload:
    """`workload` as it would have been measured without the profiler, where that is known."""
    if basis is None or basis.pace is None:
        return workload
    pieces = [call.pieces for call in basis.replayed(basis.plans, basis.as_recorded)]
    recorded = workload.measured_ns if workload.recorded_ns is None else workload.recorded_ns
    return replace(with_pieces(workload, pieces), recorded_ns=recorded)


def _changed(
    workload: Workload,
    basis: ReplayBasis | None,
    scenario: Scenario,
    run: Run,
    analysis: Analysis,
) -> Changed:
    """The workload of the scenario: by a replay where the run recorded launches."""
    if basis is None:
        return changed(workload, scenario, run, analysis)
    return changed_by_replay(basis, workload, scenario, run, analysis)


def _request(changes: Changed, placed: Workload) -> RequestTime:
    """The time of a request as `placed`, with the scatter of the recorded steps."""
    if changes.scatter is None:
        return request_time(placed, changes.spread)
    request = request_time(changes.scatter, changes.spread)
    return moved(request, sum(mean_time(task, placed) for task in placed.tasks))


def _measured(workload: Workload) -> Measured:
    recorded = workload.measured_ns if workload.recorded_ns is None else workload.recorded_ns
    return Measured(
        pipelines=workload.numbers,
        steps=workload.steps,
        recorded_ns=float(recorded.mean()),
        ns=float(workload.measured_ns.mean()),
        low_ns=float(workload.measured_ns.min()),
        high_ns=float(workload.measured_ns.max()),
        corrected=workload.recorded_ns is not None,
    )


def _parts(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Part, ...]:
    names = dict.fromkeys((*before, *after))
    return tuple(Part(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names)


def _each_once(notes: Iterable[Note]) -> tuple[Note, ...]:
    return tuple(dict.fromkeys(notes))


def _traced(analysis: Analysis, workload: Workload, basis: ReplayBasis | None) -> Iterator[Note]:
    """Whether the prediction has the cost of tracing in it."""
    if workload.overhead_ratio:
        factors = tuple(
            Note.of(Assumption.OVERHEAD_RATIO, submodule=name, ratio=factor)
            for name, factor in sorted(workload.overhead_ratio.items())
        )
        yield Note.of(Assumption.OVERHEAD_CORRECTED, factors=factors)
    elif analysis.run.traced_calls:
        share = analysis.run.overhead.share
        if share is not None:
            yield Note.of(Assumption.AS_TRACED_AT, share=share)
        elif analysis.run.producer == "capture":
            yield Note.of(Assumption.AS_TRACED)
        elif basis is None:  # else said of the host, whose pace it is
            yield Note.of(Assumption.AS_TRACED_ELSEWHERE)


def _assumed(
    analysis: Analysis,
    workload: Workload,
    basis: ReplayBasis | None,
    changes: Changed,
    devices: OnDevices,
) -> Iterator[Note]:
    if basis is None or basis.pace is None:
        yield from _traced(analysis, workload, basis)
    if analysis.accounting.overlapping:
        yield Note.of(Assumption.OVERLAPPING_CALLS)
    yield from changes.assumes
    yield from devices.notes


def _missing(run: Run, analysis: Analysis, scenario: Scenario) -> Iterator[Note]:
    """What ran but is in no part, and what memory was not asked for."""
    if scenario.memory and (scenario.batch is not None or scenario.size is not None):
        yield Note.of(Unknown.ACTIVATIONS_AS_RECORDED)
    outside = analysis.accounting.calls_outside
    if outside:
        yield Note.of(Unknown.CALLS_OUTSIDE, calls=outside)
    behind = _behind(run)
    if behind:
        yield Note.of(Unknown.NO_LAUNCHES, devices=behind)
    for kind in dict.fromkeys(drop.kind for drop in run.drops):
        yield Note.of(Unknown.DROPPED, kind=kind)


def _behind(run: Run) -> tuple[str, ...]:
    """Devices that worked on for calls that had returned, in a run without launches."""
    if launches_of(run.commands, run.flows) is not None:
        return ()
    work = run.commands.filter(device_work(run.commands["category"].to_physical().to_numpy()))
    calls = run.calls.filter(pl.col("duration_ns") >= 0)
    returned = calls.select("call", returned=pl.col("start_ns") + pl.col("duration_ns"))
    later = pl.col("start_ns") > pl.col("returned")
    found = work.select("call", "device", "start_ns").join(returned, on="call").filter(later)
    return tuple(found["device"].cast(pl.String).unique().sort())


def _scatter(request: RequestTime) -> Iterator[Note]:
    """What of the scatter the interval does not have."""
    if request.low is None:
        yield Note.of(Unknown.SCATTER)
        return
    if request.resampled == Resampled.PIPELINE_CALLS:
        yield Note.of(Unknown.SCATTER_OF_RUNS)
        return
    if not request.resampled:
        yield Note.of(Unknown.SCATTER_BEYOND_ESTIMATES)
        return
    yield Note.of(Unknown.SCATTER_OF_CALLS)
    if request.once_ns > _MUCH * request.ns:
        yield Note.of(Unknown.SCATTER_OF_SINGLE, share=request.once_ns / request.ns)
