"""`predict`: the request time and throughput of a run under a changed scenario.

Results are frozen values with times in ns. Requests that a server recorded are simulated from
the recorded ones, without their queue times. A model runs at most as many at once as were
recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.end_to_end import measured_apart
from profiler.analysis.gains import Gains, gains_of
from profiler.analysis.host_activity import stall_times
from profiler.analysis.result import Analysis
from profiler.analysis.timeline import Axis, PipelineCalls
from profiler.errors import InputError
from profiler.prediction.changes import (
    Changed,
    DeviceSpan,
    Following,
    by_calls,
    by_replay,
    changed,
    followed,
    scaled,
)
from profiler.prediction.pieces import HOST, with_spans_of_calls
from profiler.prediction.placement import BestPlacement, OnDevices, placement_of
from profiler.prediction.replay import (
    RefusedError,
    ReplayBasis,
    at_untraced_pace,
    changed_by_replay,
    replay_basis,
)
from profiler.prediction.requests import (
    RequestTime,
    Simulation,
    by_stage,
    by_submodule,
    mean_time,
    moved,
    request_time,
    simulate_drawn,
)
from profiler.prediction.scenario import Assumption, Scenario, Unknown, check
from profiler.prediction.workload import (
    RequestGraph,
    Workload,
    shortened,
    with_pieces,
    workload_of,
)
from profiler.run.intervals import Stretches, ends
from profiler.run.launches import device_work, launches_of
from profiler.run.run import Run
from profiler.text import Note
from profiler.trace.bootstrap import Resampled
from profiler.trace.manifest_fields import Device

# --- The results of a prediction: small frozen values, the input of its reports. Times are in ns.


class Measured(Struct, frozen=True):
    """The measured time: the mean of the pipeline calls numbered `pipelines`, `low` to `high`, with
    `steps` steps. `recorded_ns` is as recorded; `ns` is without the profiling overhead if that is
    known (`corrected`), or from a replay of the call alone if another call overlapped it."""

    pipelines: tuple[int, ...]
    steps: int
    recorded_ns: float
    ns: float
    low_ns: float
    high_ns: float
    corrected: bool


class Part(Struct, frozen=True):
    """A stage's or submodule's time in a request, before and after; 0 if missing."""

    name: str
    before_ns: float
    after_ns: float


class RecordedLatency(Struct, frozen=True, eq=False):
    """A server's recorded requests: their mean number `in_flight`, requests per second, and
    latencies, int64 [requests]."""

    in_flight: float
    throughput: float
    latency_ns: npt.NDArray[np.int64]

    def latency(self, percentile: float) -> int:
        """The given percentile of the latency, in ns."""
        return round(float(np.percentile(self.latency_ns, percentile)))


class Prediction(Struct, frozen=True, eq=False):
    """The prediction of `scenario` for one request of the run, and for many at once.

    `stages` and `submodules` (with host time as `host`) add up to `measured.ns` before and to
    `request.ns` after. `simulation` is None if neither devices nor concurrency were asked for, or
    if the placement does not fit into memory (then `too_large` says why); `best` is None if there
    is one device and no set of devices was given. `assumes` (`Assumption`, `PlacementNote`) and
    `unknown` (`Unknown`) are notes. If launches were replayed `device` is the device's span, and
    `reasons` (`Reason`) say what determines the request's time. `recorded` are a server's requests,
    to compare the simulation with; such a prediction has no stages and submodules. `placement` is
    where the scenario has its submodules, if a better placement was searched.
    """

    run_id: str
    scenario: Scenario
    measured: Measured
    request: RequestTime
    stages: tuple[Part, ...]
    submodules: tuple[Part, ...]
    simulation: Simulation | None
    best: BestPlacement | None
    too_large: Note | None
    assumes: tuple[Note, ...]
    unknown: tuple[Note, ...]
    device: DeviceSpan | None = None
    reasons: tuple[Note, ...] = ()
    recorded: RecordedLatency | None = None
    placement: Mapping[str, str] = field(default_factory=dict)


# --- Requests that a server recorded: their dependencies, and their latency under load.
#
# A call waits for those that had ended before it started in every recorded request; its model runs
# as many at once as were recorded. Time of a request in neither a queue nor a model needs no
# resource. Each simulated request is one of the recorded ones, without its queue times.


_REQUESTS = "requests"  # capability: queues and computing of a server's requests
_UNLIMITED = 1 << 30
_Flags = npt.NDArray[np.bool_]


def recorded_by_server(run: Run) -> bool:
    """Whether the run's pipeline calls are requests of a server, with their queues."""
    return _REQUESTS in run.info.capabilities


class _Call(Struct, frozen=True):
    submodule: str
    device: str
    begin: int
    end: int
    computed: tuple[int, int]


class RecordedRequests(Struct, frozen=True, eq=False):
    """Recorded requests that make the same calls. `durations` are ns by request and node of `graph`
    [r][n]; `latency` has the latency of each; `numbers` are their pipeline calls, `left_out` counts
    requests with other calls. `batched` counts calls that computed together with another."""

    graph: RequestGraph
    durations: tuple[tuple[int, ...], ...]
    latency: RecordedLatency
    numbers: tuple[int, ...]
    left_out: int
    batched: int

    @classmethod
    def of(cls, run: Run) -> RecordedRequests:
        """Read the requests of a run. Raises InputError if none called a model."""
        pipelines = PipelineCalls.of(run)
        by_number = _calls(run, pipelines)
        kinds = Counter(_kind(calls) for calls in by_number.values())
        if not kinds:
            raise InputError("the run holds no request that called a model: record one")
        (kind, _), *_others = kinds.most_common(1)
        chosen = {n: _ordered(calls) for n, calls in by_number.items() if _kind(calls) == kind}
        begin, end = pipelines.extents
        lasted = dict(zip(pipelines.numbers.tolist(), (end - begin).tolist(), strict=True))
        latency = np.array([lasted[n] for n in chosen], dtype=np.int64)
        window = int(end.max() - begin.min())
        in_flight = sum(lasted.values()) / max(window, 1)
        graph = _graph(list(chosen.values()), run.info.devices)
        return cls(
            graph=graph,
            durations=tuple(
                _durations(calls, latency_of)
                for calls, latency_of in zip(chosen.values(), latency.tolist(), strict=True)
            ),
            latency=RecordedLatency(in_flight, len(by_number) / max(window, 1) * 1e9, latency),
            numbers=tuple(chosen),
            left_out=len(by_number) - len(chosen),
            batched=_batched(chosen),
        )


def predict_requests(run: Run, scenario: Scenario) -> Prediction:
    """Predict a server's requests at another concurrency. Raises InputError if the scenario asks
    for anything else."""
    if scenario.changes_calls or scenario.place or scenario.devices or scenario.memory:
        raise InputError(
            "of a server's trace --concurrency alone can be predicted: it tells of no steps, "
            "types, sizes or devices; leave the other options out"
        )
    recorded = RecordedRequests.of(run)
    alone = [recorded.graph.critical_path(one) for one in recorded.durations]
    concurrency = scenario.concurrency or 1
    simulation = simulate_drawn(recorded.graph, recorded.durations, concurrency)
    latency = recorded.latency.latency_ns
    mean = float(latency.mean())
    measured = Measured(
        recorded.numbers, 0, mean, mean, float(latency.min()), float(latency.max()), corrected=False
    )
    return Prediction(
        run_id=run.run_id,
        scenario=scenario,
        measured=measured,
        request=RequestTime(float(np.mean(alone)), None, None, None, 0.0),
        stages=(),
        submodules=(),
        simulation=simulation,
        best=None,
        too_large=None,
        assumes=tuple(_request_assumptions(recorded)),
        unknown=tuple(_unknown(run)),
        recorded=recorded.latency,
    )


def _request_assumptions(recorded: RecordedRequests) -> Iterator[Note]:
    graph = recorded.graph
    instances = tuple(
        Note.of(Assumption.INSTANCES_OF, submodule=name, instances=servers)
        for name, servers in zip(graph.resources[1:], graph.servers[1:], strict=True)
    )
    yield Note.of(Assumption.INSTANCES_SEEN, models=instances)
    if recorded.batched:
        yield Note.of(Assumption.NO_BATCHES, calls=recorded.batched)
    if recorded.left_out:
        yield Note.of(Assumption.OTHER_REQUESTS, requests=recorded.left_out)


def _unknown(run: Run) -> Iterator[Note]:
    yield Note.of(Unknown.SCATTER_OF_RUNS)
    for kind in dict.fromkeys(drop.kind for drop in run.drops):
        yield Note.of(Unknown.DROPPED, kind=kind)


def _calls(run: Run, pipelines: PipelineCalls) -> dict[int, list[_Call]]:
    """The calls that computed, by number of their pipeline call."""
    computed = (
        run.commands.with_columns(end=pl.Series(ends(run.commands)))
        .filter(pl.col("category").cast(pl.String) == "compute")
        .group_by("call")
        .agg(pl.col("start_ns").min().alias("from"), pl.col("end").max().alias("to"))
    )
    calls = run.calls.with_columns(
        number=pl.Series(pipelines.number_of(run.calls)), end=pl.Series(ends(run.calls))
    ).join(computed, on="call", how="inner", maintain_order="left")
    found: dict[int, list[_Call]] = {}
    columns = calls.select(
        "number", pl.col("submodule", "device").cast(pl.String), *("start_ns", "end", "from", "to")
    )
    for number, submodule, device, begin, end, first, last in columns.iter_rows():
        found.setdefault(number, []).append(_Call(submodule, device, begin, end, (first, last)))
    return found


def _kind(calls: Sequence[_Call]) -> tuple[str, ...]:
    return tuple(sorted(call.submodule for call in calls))


def _ordered(calls: Sequence[_Call]) -> tuple[_Call, ...]:
    """Sort the calls of a request by submodule, then time, so that requests can be matched."""
    return tuple(sorted(calls, key=lambda call: (call.submodule, call.begin)))


def _durations(calls: Sequence[_Call], latency: int) -> tuple[int, ...]:
    """The durations of the request's own node and of each call's computing."""
    taken = Stretches.union(
        np.array([call.begin for call in calls], dtype=np.int64),
        np.array([call.end for call in calls], dtype=np.int64),
    )
    own = max(latency - taken.length, 0)
    return (own, *(call.computed[1] - call.computed[0] for call in calls))


def _graph(requests: Sequence[tuple[_Call, ...]], devices: Mapping[str, Device]) -> RequestGraph:
    """Build the dependency graph: the request's own node, then its calls."""
    first, count = requests[0], len(requests[0])
    begin = np.array([[call.begin for call in calls] for calls in requests])
    end = np.array([[call.end for call in calls] for calls in requests])
    before: _Flags = np.all(end[:, :, None] <= begin[:, None, :], axis=0)
    through: _Flags = np.any(before[:, :, None] & before[None, :, :], axis=1)
    direct: _Flags = before & ~through
    after = [tuple((np.flatnonzero(direct[node]) + 1).tolist()) for node in range(count)]
    roots = tuple(1 + node for node in range(count) if not before[:, node].any())
    names = list(dict.fromkeys(call.device for call in first))
    known = [devices.get(name, Device()) for name in names]
    return RequestGraph(
        work=((), *(() for _ in first)),
        resources=(HOST, *(d.hardware or name for d, name in zip(known, names, strict=True))),
        resource=(0, *(1 + names.index(call.device) for call in first)),
        waits_for=(0, *(max(int(direct[:, node].sum()), 1) for node in range(count))),
        after=(roots, *after),
        servers=(_UNLIMITED, *(max(d.compute_units or 1, 1) for d in known)),
    )


def _batched(requests: Mapping[int, tuple[_Call, ...]]) -> int:
    """Count the calls that computed at exactly the same time as another call of their model."""
    times = Counter((c.device, *c.computed) for calls in requests.values() for c in calls)
    return sum(count for count in times.values() if count > 1)


# --- `predict`: a run and a scenario → the time of a request, and of many at once.


_MUCH = 0.1  # of a request: a larger part measured once is noted


def predict(
    run: Run, analysis: Analysis, scenario: Scenario, pipeline: int | None = None
) -> Prediction:
    """Predict `scenario` from `run`; `analysis` is of the whole run, without a selection.

    `pipeline` is the number of the pipeline call to start from, None for all. Raises InputError if
    the run cannot answer it.
    """
    if recorded_by_server(run):
        return predict_requests(run, scenario)
    return Predictor(run, analysis, pipeline).predict(scenario)


class Predictor:
    """Predicts scenarios of one run; its workload and replay basis are made once.

    `analysis` is of the whole run. Raises InputError if nothing of the run can be predicted.
    """

    def __init__(self, run: Run, analysis: Analysis, pipeline: int | None = None) -> None:
        if measured_apart(analysis):
            raise InputError(
                f"{run.run_id} has one measurement of each component and not how often a pipeline "
                "calls it, so nothing can be predicted of a request: for a diffusion model give "
                "--import steps=N and --import guidance=SCALE"
            )
        self.given, self.run, self.analysis = run, with_spans_of_calls(run), analysis
        self.workload = workload_of(self.run, analysis, pipeline)
        self.paced = False  # whether the host has another pace than the recorded one

    @cached_property
    def recorded(self) -> ReplayBasis | None:
        """The replay basis with the host as it was recorded; None without launches. Raises
        RefusedError if a replay would not reproduce the run's time."""
        return replay_basis(self.run, self.workload, stall_times(self.analysis))

    @cached_property
    def _beneath(self) -> bool:
        """Whether a pipeline call began while its device still worked for the one before, which hid
        host time that a replay of the call alone does not hide."""
        of = self.analysis.inputs
        pipelines, axis = of.pipelines, of.axis
        if self.run is not of.run:
            pipelines = PipelineCalls.of(self.run)
            axis = Axis.of(self.run, pipelines)
        began, _ = pipelines.extents
        chosen = np.isin(pipelines.numbers, self.workload.numbers)
        return bool((axis.first > began)[chosen].any())

    @cached_property
    def refused(self) -> RefusedError | None:
        """Why the launches of the run cannot be replayed; None if they can, or there are none."""
        try:
            _ = self.recorded
        except RefusedError as error:
            return error
        return None

    @property
    def launches(self) -> ReplayBasis | None:
        """The replay basis, or None if the run's launches cannot be replayed."""
        return self.recorded if self.refused is None else None

    @cached_property
    def never_late(self) -> Predictor | None:
        """This predictor with an infinitely fast host (it still waits in syncs); None if the run's
        launches cannot be replayed."""
        basis = self.launches
        if basis is None:
            return None
        found = copy(self)
        found.paced, found.recorded = True, replace(basis, host=0 * basis.host, pace=0.0)
        return found

    def lightly_recorded(self, untraced_ns: int | None) -> Predictor | None:
        """This predictor of calls without launches, shorter by the share of the traced time that
        recording added if the run takes `untraced_ns` without: each call by its part of the
        operators' cost, and all in proportion by what is more than the estimate of that. None if
        it is not known, or calls launch work."""
        cost = self.analysis.run.overhead
        total_ns, events, traced_ns = cost.operators_ns, cost.operator_events, cost.traced_ns
        if self.launches is not None or self.refused is not None:
            return None
        if total_ns is None or untraced_ns is None or not traced_ns or not events:
            return None
        calls = self.run.calls.select("call", "duration_ns", "ops_traced").sort("call")
        recorded = self.run.commands.group_by("call").agg(operators=pl.len())
        calls = calls.join(recorded, on="call", how="left", maintain_order="left")
        part = (
            pl.col("operators").fill_null(0) * (total_ns / events) / pl.col("duration_ns").clip(1)
        )
        parts = calls.select(pl.when("ops_traced").then(part.clip(0, 1)).otherwise(0.0)).to_series()
        before_ns = float(self.workload.measured_ns.mean())
        added_ns = before_ns * max(1 - untraced_ns / traced_ns, 0.0)
        found = copy(self)
        found.workload = shortened(self.run, self.workload, (1 - parts).to_list())
        estimated_ns = before_ns - float(found.workload.measured_ns.mean())
        if added_ns < estimated_ns:
            less = parts * (added_ns / estimated_ns)
            found.workload = shortened(self.run, self.workload, (1 - less).to_list())
        elif estimated_ns < before_ns:
            ratio = (before_ns - added_ns) / (before_ns - estimated_ns)
            names = {task.submodule or "" for task in found.workload.tasks}
            found.workload = scaled(found.workload, dict.fromkeys(names, ratio))
        return found

    @cached_property
    def _gains(self) -> Gains | None:
        return gains_of(self.analysis.inputs.run)

    def predict(self, scenario: Scenario) -> Prediction:
        """Predict `scenario`. Raises InputError if the run cannot answer it."""
        run, analysis = self.run, self.analysis
        workload, basis, changes = self._scenario(scenario)
        alone = self._is_alone(workload, basis)
        devices = OnDevices.of(run, analysis, scenario, changes.workload)
        request = _request(changes, devices.placed)
        assumes = _assumptions(analysis, workload, basis, changes, devices)
        beside = (Note.of(Assumption.ALONE),) if alone else ()
        spans = () if run is self.given else (Note.of(Assumption.SPANS_OF_CALLS),)
        unknown = (*changes.unknown, *_scatter(request), *_missing(run, analysis, scenario))
        return Prediction(
            run_id=run.run_id,
            scenario=scenario,
            measured=_measured(workload, alone=alone),
            request=request,
            stages=_parts(by_stage(workload), by_stage(devices.placed)),
            submodules=_parts(by_submodule(workload), by_submodule(devices.placed)),
            simulation=devices.simulation,
            best=devices.best,
            too_large=devices.too_large,
            assumes=_each_once((*spans, *beside, *assumes)),
            unknown=_each_once(unknown),
            device=changes.device,
            reasons=changes.reasons,
            placement={} if devices.best is None else placement_of(devices.placed),
        )

    def measured(self, scenario: Scenario) -> Measured:
        """What the prediction of a scenario starts from. Raises InputError if the run cannot answer
        it."""
        workload, basis, _ = self._scenario(scenario, explained=False)
        return _measured(workload, alone=self._is_alone(workload, basis))

    def _is_alone(self, workload: Workload, basis: ReplayBasis | None) -> bool:
        """Whether a workload is that of a pipeline call without the work of the one before."""
        return workload is not self.workload and (basis is None or basis.pace is None)

    def request_time(self, scenario: Scenario) -> RequestTime:
        """Predict the time of one request of a scenario without placement, without the replays that
        explain it. Raises InputError if the run cannot answer it."""
        _, _, changes = self._scenario(scenario, explained=False)
        return _request(changes, changes.workload)

    def _scenario(
        self, scenario: Scenario, *, explained: bool = True
    ) -> tuple[Workload, ReplayBasis | None, Changed]:
        """Return the workload (measured or replayed), its replay basis, and the changed workload;
        reasons only if `explained`."""
        check(scenario, self.workload)
        basis = self._basis(scenario) if scenario.changes_calls or self.paced else None
        paced = basis is not None and basis.pace is not None
        if self._beneath and not paced:
            replayable = basis or self.launches
        else:
            replayable = basis if paced else None
        workload = self.workload if replayable is None else self._replayed(replayable)
        following = self._following(scenario, replayed=basis is not None)
        if basis is None:
            return workload, None, changed(workload, scenario, self.analysis, following)
        changes = changed_by_replay(
            basis, workload, scenario, self.analysis, following, explained=explained
        )
        return workload, basis, changes

    def _replayed(self, basis: ReplayBasis) -> Workload:
        """Return the workload as a replay of the recording at the host's pace of `basis`."""
        if basis.pace not in self._replayed_at:
            pieces = [call.pieces for call in basis.replayed(basis.plans, basis.as_recorded)]
            self._replayed_at[basis.pace] = replace(
                with_pieces(self.workload, pieces), recorded_ns=self.workload.uncorrected_ns
            )
        return self._replayed_at[basis.pace]

    @cached_property
    def _replayed_at(self) -> dict[float | None, Workload]:
        return {}

    def _basis(self, scenario: Scenario) -> ReplayBasis | None:
        """The replay basis at the scenario's host pace; None if the run recorded no launches."""
        basis, untraced = self.recorded, scenario.untraced_ns
        if basis is not None:
            return basis if untraced is None else self._at_untraced_pace(basis, untraced)
        if scenario.cuda_graph:
            raise InputError(
                "the run recorded no launches on a device, so there are none for --cuda-graph to "
                "make one of: leave it out, or give a run of a GPU"
            )
        if untraced is not None:
            raise InputError(
                "the run recorded no launches on a device, so how fast its host is does not "
                "follow from --untraced: leave it out, or give a run of a GPU"
            )
        return None

    def _at_untraced_pace(self, basis: ReplayBasis, untraced_ns: int) -> ReplayBasis:
        if untraced_ns not in self._paced:
            self._paced[untraced_ns] = at_untraced_pace(basis, untraced_ns)
        return self._paced[untraced_ns]

    @cached_property
    def _paced(self) -> dict[int, ReplayBasis]:
        return {}

    def _following(self, scenario: Scenario, *, replayed: bool) -> Following:
        """The effect of the findings that the scenario follows."""
        some = followed(scenario.follow, self.analysis.findings)
        if not some:
            return Following()
        if not replayed:
            return by_calls(some, self.run)
        if self._gains is None:
            raise InputError(
                "the run as a whole does not replay as it was recorded, so what following a "
                "finding gains is not known: leave out --follow"
            )
        return by_replay(some, self._gains)


def _request(changes: Changed, placed: Workload) -> RequestTime:
    """The time of a request of the `placed` workload, with the scatter of the recorded steps."""
    if changes.scatter is None:
        request = request_time(placed, changes.spread)
    else:
        request = request_time(changes.scatter, changes.spread)
        request = moved(request, sum(mean_time(task, placed) for task in placed.tasks))
    if changes.within_ns is None:
        return request
    least, most = changes.within_ns
    low, high = (request.ns if bound is None else bound for bound in (request.low, request.high))
    return replace(request, low=min(low, least), high=max(high, most))


def _measured(workload: Workload, *, alone: bool) -> Measured:
    return Measured(
        pipelines=workload.numbers,
        steps=workload.steps,
        recorded_ns=float(workload.uncorrected_ns.mean()),
        ns=float(workload.measured_ns.mean()),
        low_ns=float(workload.measured_ns.min()),
        high_ns=float(workload.measured_ns.max()),
        corrected=workload.recorded_ns is not None and not alone,
    )


def _parts(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Part, ...]:
    names = dict.fromkeys((*before, *after))
    return tuple(Part(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names)


def _each_once(notes: Iterable[Note]) -> tuple[Note, ...]:
    return tuple(dict.fromkeys(notes))


def _traced(analysis: Analysis, workload: Workload, basis: ReplayBasis | None) -> Iterator[Note]:
    """Note whether the prediction includes the profiling overhead."""
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
        elif basis is None:  # else noted with the host's pace
            yield Note.of(Assumption.AS_TRACED_ELSEWHERE)


def _assumptions(
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
    """Note work outside all parts, and memory that the scenario does not change."""
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
    """The devices that still worked after calls had returned, in a run without launches."""
    if launches_of(run.commands, run.flows) is not None:
        return ()
    work = run.commands.filter(device_work(run.commands["category"].to_physical().to_numpy()))
    calls = run.calls.filter(pl.col("duration_ns") >= 0)
    returned = calls.select("call", returned=pl.col("start_ns") + pl.col("duration_ns"))
    later = pl.col("start_ns") > pl.col("returned")
    found = work.select("call", "device", "start_ns").join(returned, on="call").filter(later)
    return tuple(found["device"].cast(pl.String).unique().sort())


def _scatter(request: RequestTime) -> Iterator[Note]:
    """Note the scatter that the interval does not include."""
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
