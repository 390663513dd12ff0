"""Requests that a server recorded: what they wait for, and how many at once would take how long.

A call waits for those that had ended before it began in every recorded request; its model runs as
many at once as were seen to. What a request spent in neither a queue nor a model is its own: it
waits for nobody there. Each simulated request is one of the recorded ones, without its queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.prediction.codes import Assumption, Unknown
from profiler.analysis.prediction.request import RequestTime
from profiler.analysis.prediction.request_graph import RequestGraph
from profiler.analysis.prediction.result import Measured, Prediction, RecordedLatency
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.simulation import simulate_drawn
from profiler.analysis.prediction.workload import HOST
from profiler.errors import InputError
from profiler.run.intervals import Stretches, ends
from profiler.run.run import Run
from profiler.text import Note
from profiler.trace.manifest_fields import Device

__all__ = ["RecordedRequests", "predict_requests", "recorded_by_server"]

_REQUESTS = "requests"  # capability: queues and computing of a server's requests
_UNLIMITED = 1 << 30
_Flags = npt.NDArray[np.bool_]


def recorded_by_server(run: Run) -> bool:
    """Whether the run's pipeline calls are requests of a server, with their queues."""
    return _REQUESTS in run.info.capabilities


@dataclass(frozen=True, slots=True)
class _Call:
    submodule: str
    device: str
    begin: int
    end: int
    computed: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRequests:
    """Requests that called the same. `durations` are ns by request and node of `graph` [r][n];
    `latency_ns` of each, int64 [r]; `numbers` are their pipeline calls, `left_out` counts requests
    that called something else. `batched` counts calls that computed together with another."""

    graph: RequestGraph
    durations: tuple[tuple[int, ...], ...]
    latency: RecordedLatency
    numbers: tuple[int, ...]
    left_out: int
    batched: int

    @classmethod
    def of(cls, run: Run) -> RecordedRequests:
        """Raises InputError where no request of the run called anything."""
        pipelines = PipelineCalls.of(run)
        by_number = _calls(run, pipelines)
        kinds = Counter(_kind(calls) for calls in by_number.values())
        if not kinds:
            raise InputError("the run holds no request that called a model: record one")
        (kind, _), *_others = kinds.most_common(1)
        chosen = {n: _ordered(calls) for n, calls in by_number.items() if _kind(calls) == kind}
        begin, end = _extents(pipelines)
        latency = np.array([end[n] - begin[n] for n in chosen], dtype=np.int64)
        window = max(end.values()) - min(begin.values())
        in_flight = sum(end[n] - begin[n] for n in end) / max(window, 1)
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
    """What so many requests at once would take. Raises InputError for a scenario with more."""
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
        assumes=tuple(_assumed(recorded)),
        unknown=tuple(_unknown(run)),
        recorded=recorded.latency,
    )


def _assumed(recorded: RecordedRequests) -> Iterator[Note]:
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
    """The calls that computed, by pipeline call."""
    computed = (
        run.commands.filter(pl.col("category").cast(pl.String) == "compute")
        .with_columns(end=pl.Series(ends(run.commands)).filter(_compute(run.commands)))
        .group_by("call")
        .agg(pl.col("start_ns").min().alias("from"), pl.col("end").max().alias("to"))
    )
    calls = run.calls.with_columns(
        number=pl.Series(pipelines.number_of(run.calls)), end=pl.Series(ends(run.calls))
    ).join(computed, on="call", how="inner", maintain_order="left")
    found: dict[int, list[_Call]] = {}
    columns = calls.select(
        "number",
        pl.col("submodule", "device").cast(pl.String),
        *("start_ns", "end", "from", "to"),
    )
    for number, submodule, device, begin, end, first, last in columns.iter_rows():
        found.setdefault(number, []).append(_Call(submodule, device, begin, end, (first, last)))
    return found


def _compute(commands: pl.DataFrame) -> pl.Series:
    return commands["category"].cast(pl.String) == "compute"


def _kind(calls: Sequence[_Call]) -> tuple[str, ...]:
    return tuple(sorted(call.submodule for call in calls))


def _ordered(calls: Sequence[_Call]) -> tuple[_Call, ...]:
    """The same place for the same call of each request: by submodule, then time."""
    return tuple(sorted(calls, key=lambda call: (call.submodule, call.begin)))


def _extents(pipelines: PipelineCalls) -> tuple[dict[int, int], dict[int, int]]:
    numbers = pipelines.number_of(pipelines.spans).tolist()
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    for number, first, last in zip(
        numbers, pipelines.starts.tolist(), ends(pipelines.spans).tolist(), strict=True
    ):
        begin[number] = min(begin.get(number, first), first)
        end[number] = max(end.get(number, last), last)
    return begin, end


def _durations(calls: Sequence[_Call], latency: int) -> tuple[int, ...]:
    """What the request's own node takes, then each call's computing."""
    taken = Stretches.union(
        np.array([call.begin for call in calls], dtype=np.int64),
        np.array([call.end for call in calls], dtype=np.int64),
    )
    own = max(latency - taken.length, 0)
    return (own, *(call.computed[1] - call.computed[0] for call in calls))


def _graph(requests: Sequence[tuple[_Call, ...]], devices: Mapping[str, Device]) -> RequestGraph:
    """The request's own node, then its calls."""
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
    """Calls that computed when another of their model did, to the nanosecond."""
    times = Counter((c.device, *c.computed) for calls in requests.values() for c in calls)
    return sum(count for count in times.values() if count > 1)
