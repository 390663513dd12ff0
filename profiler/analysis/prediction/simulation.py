"""Many requests at once on few devices: a discrete-event simulation of a closed loop.

`concurrency` requests are in flight all the time: as soon as one is done the next begins. A device
runs one call at a time, first come first served; so does the host's one thread (of CPython, host
work of all requests shares it) with host work. Calls take what they were measured to take,
whatever else runs: each simulated request draws one of the measured pipeline calls, and each of
its steps one of that call's.

What lies before the window of measurement is warm-up: the loop starts with all requests at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from profiler.analysis.prediction.request_graph import (
    DEFAULT_ORDER,
    Order,
    RequestGraph,
    request_graph,
)
from profiler.analysis.prediction.tasks import Task
from profiler.analysis.prediction.throughput_interval import relative_interval
from profiler.analysis.prediction.workload import Workload
from profiler.errors import InputError

__all__ = ["SEED", "Simulation", "mean_durations", "run_closed_loop", "simulate", "simulate_drawn"]

SEED = 0
_EVENTS = 30_000  # of a simulation, about
_WARMUP_ROUNDS = 2  # of `concurrency` requests
_ENOUGH_ROUNDS, _FEWEST_ROUNDS = 10, 2
_MOST_EVENTS = 2_000_000
_MOST_REQUESTS = 1000
_Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """What a closed loop of `concurrency` requests came to within its window.

    `throughput` is requests/s, between `low` and `high` with 90 % confidence as far as the scatter
    of what was measured goes, None where nothing was measured more than once. `latency_ns` has one
    entry for each of the `requests` completed in the window, int64 [requests]. By resource (`host`
    and each device): `utilization`, the share of the window in which it was busy, and
    `queue_wait_ns`, the mean time for which a request waited for it.
    """

    concurrency: int
    order: Order
    requests: int
    window_ns: int
    throughput: float
    latency_ns: _Times
    utilization: Mapping[str, float]
    queue_wait_ns: Mapping[str, float]
    low: float | None = None
    high: float | None = None

    def latency(self, percentile: float) -> int:
        """The latency in ns below which `percentile` % of the requests stay."""
        return round(float(np.percentile(self.latency_ns, percentile)))

    @property
    def bottleneck(self) -> str:
        """The busiest resource."""
        return max(self.utilization, key=lambda name: self.utilization[name])


def simulate(
    workload: Workload,
    concurrency: int = 1,
    order: Order = DEFAULT_ORDER,
    *,
    requests: int | None = None,
    seed: int = SEED,
) -> Simulation:
    """Simulate `workload` as it is placed, with `concurrency` requests in flight.

    `requests` is how many to measure at least (default: so many that it takes a fraction of a
    second). The same arguments always give the same result. Raises InputError for a concurrency
    below 1, an unknown order, and a workload in which nothing took any time.
    """
    if concurrency < 1:
        raise InputError(f"the concurrency is {concurrency}; simulate 1 request or more at once")
    graph = request_graph(workload, order)
    warmup = _WARMUP_ROUNDS * concurrency
    rounds = _rounds(requests, concurrency, len(graph.work))
    # Requests begin beyond the last one that is measured: the loop stays closed to the end.
    drawn = _draw(graph, warmup + (rounds + 1) * concurrency, np.random.default_rng(seed))
    found = run_closed_loop(graph, drawn, concurrency, warmup, order)
    bounds = relative_interval(workload, graph, concurrency, seed)
    if bounds is None:
        return found
    low, high = (found.throughput * bound for bound in bounds)
    return replace(found, low=low, high=high)


def simulate_drawn(
    graph: RequestGraph,
    measured: Sequence[Sequence[float]],
    concurrency: int,
    *,
    seed: int = SEED,
) -> Simulation:
    """Simulate requests each of which is one of those measured: durations in ns [r][n] of the nodes
    of `graph`. Raises InputError where they took no time."""
    warmup = _WARMUP_ROUNDS * concurrency
    rounds = _rounds(None, concurrency, len(graph.work))
    count = warmup + (rounds + 1) * concurrency
    drawn = np.random.default_rng(seed).integers(len(measured), size=count)
    durations = [measured[row] for row in drawn.tolist()]
    return run_closed_loop(graph, durations, concurrency, warmup, "graph")


def _rounds(requests: int | None, concurrency: int, nodes: int) -> int:
    """How many rounds of `concurrency` requests to measure."""
    wanted = requests or min(_EVENTS // nodes, _MOST_REQUESTS)
    possible = _MOST_EVENTS // (nodes * concurrency) - _WARMUP_ROUNDS - 1
    if possible < _FEWEST_ROUNDS:
        raise InputError(
            f"{concurrency:,} requests at once of {nodes:,} calls and pieces of host work each are "
            "too many to simulate; give fewer steps, or fewer requests at once"
        )
    return min(max(_ENOUGH_ROUNDS, -(-wanted // concurrency)), possible)


def mean_durations(graph: RequestGraph) -> list[float]:
    """The mean measured time of each node in ns [n]."""
    means: dict[tuple[int, bool], float] = {}
    found = []
    for work in graph.work:
        total = 0.0
        for task, step in work:
            key = (id(task), step == 0)
            if key not in means:
                values = _values(task, step)
                means[key] = float(values.mean()) if values.size else 0.0
            total += means[key]
        found.append(total)
    return found


def _values(task: Task, step: int) -> _Times:
    """What was measured of a task in this step [p, k]; later steps stand in for a first one that
    was not measured, and the other way round."""
    first, later = task.first_ns.reshape(-1, 1), task.steady_ns
    candidates = (first, later) if step == 0 else (later, first)
    return next((values for values in candidates if values.size), later)


def _draw(graph: RequestGraph, requests: int, generator: np.random.Generator) -> list[list[int]]:
    """Durations of the nodes of each request in ns [requests][n]."""
    pipeline = generator.random(requests)  # as a share of the pipeline calls there are
    drawn = np.zeros((len(graph.work), requests), dtype=np.int64)
    for node, work in enumerate(graph.work):
        for task, step in work:
            values = _values(task, step)
            if values.size:
                row = (pipeline * len(values)).astype(np.int64)
                drawn[node] += values[row, generator.integers(values.shape[1], size=requests)]
    listed: list[list[int]] = drawn.T.tolist()
    return listed


def run_closed_loop(
    graph: RequestGraph,
    durations: Sequence[Sequence[float]],
    concurrency: int,
    warmup: int,
    order: Order,
) -> Simulation:
    """Run requests of these `durations` in ns [r][n], of which the last `concurrency` need not end.

    The window begins when `warmup` requests are done and ends with request r - `concurrency`.
    Raises InputError where it lasts no time.
    """
    loop = _Loop(graph, durations)
    last = len(durations) - concurrency
    begin = loop.start(concurrency)
    if warmup:
        begin = loop.run_until(warmup)
    before = loop.snapshot()
    end = loop.run_until(last)
    window = end - begin
    if window <= 0:
        raise InputError("the parts of the workload took no time; record a run that measures them")
    count = last - warmup
    busy = {name: until - before[name] for name, until in loop.snapshot().items()}
    waits = loop.waits[warmup:last]
    return Simulation(
        concurrency=concurrency,
        order=order,
        requests=count,
        window_ns=round(window),
        throughput=count / window * 1e9,
        latency_ns=np.array(loop.latencies[warmup:last], dtype=np.float64).round().astype(np.int64),
        utilization={
            name: time / window / servers
            for (name, time), servers in zip(
                busy.items(), graph.servers or (1,) * len(busy), strict=True
            )
        },
        queue_wait_ns={
            name: sum(wait[i] for wait in waits) / count for i, name in enumerate(graph.resources)
        },
    )


class _Loop:
    """The state of the simulation: time moves from the end of one task to the next."""

    def __init__(self, graph: RequestGraph, durations: Sequence[Sequence[float]]) -> None:
        self._graph = graph
        self._durations = durations
        self._roots = [i for i, count in enumerate(graph.waits_for) if not count]
        self._begun = 0  # requests
        self._left: dict[int, int] = {}  # nodes not done, by request in flight
        self._waits_for: dict[int, list[int]] = {}
        self._arrived: dict[int, float] = {}
        self._waited: dict[int, list[float]] = {}
        self._ends: list[tuple[float, int, int, int]] = []  # time, order of begin, request, node
        self._sequence = 0
        count = len(graph.resources)
        self._queues: list[deque[tuple[float, int, int]]] = [deque() for _ in range(count)]
        self._servers = graph.servers or (1,) * count
        self._until: list[list[float]] = [[] for _ in range(count)]  # ends of what each runs
        self._busy = [0.0] * count  # to the end of what runs
        self._now = 0.0
        self.latencies: list[float] = []  # in order of completion
        self.waits: list[list[float]] = []  # by resource, of the same requests

    def start(self, concurrency: int) -> float:
        """Begin so many requests at time 0."""
        for _ in range(concurrency):
            self._begin()
        return self._now

    def run_until(self, completed: int) -> float:
        """Go on until so many requests are done; the time when it was so."""
        while len(self.latencies) < completed:
            self._now, _, request, node = heappop(self._ends)
            self._done(request, node)
        return self._now

    def snapshot(self) -> dict[str, float]:
        """By resource, how long it has been busy until now."""
        ahead = [sum(max(end - self._now, 0.0) for end in ends) for ends in self._until]
        busy = (total - rest for total, rest in zip(self._busy, ahead, strict=True))
        return dict(zip(self._graph.resources, busy, strict=True))

    def _begin(self) -> None:
        request = self._begun
        if request == len(self._durations):
            return
        self._begun += 1
        self._left[request] = len(self._graph.work)
        self._waits_for[request] = list(self._graph.waits_for)
        self._arrived[request] = self._now
        self._waited[request] = [0.0] * len(self._graph.resources)
        for node in self._roots:
            self._ready(request, node)

    def _ready(self, request: int, node: int) -> None:
        """The node's inputs are there: it runs, or joins the queue of what it needs."""
        resource = self._graph.resource[node]
        if len(self._until[resource]) < self._servers[resource]:
            self._run(request, node, resource)
        else:
            self._queues[resource].append((self._now, request, node))

    def _run(self, request: int, node: int, resource: int) -> None:
        duration = self._durations[request][node]
        end = self._now + duration
        self._until[resource].append(end)
        self._busy[resource] += duration
        self._sequence += 1
        heappush(self._ends, (end, self._sequence, request, node))

    def _done(self, request: int, node: int) -> None:
        resource = self._graph.resource[node]
        queue = self._queues[resource]
        self._until[resource].remove(self._now)
        if queue:
            since, other, waiting = queue.popleft()
            self._waited[other][resource] += self._now - since
            self._run(other, waiting, resource)
        waits_for = self._waits_for[request]
        for following in self._graph.after[node]:
            waits_for[following] -= 1
            if not waits_for[following]:
                self._ready(request, following)
        self._left[request] -= 1
        if not self._left[request]:
            self._completed(request)

    def _completed(self, request: int) -> None:
        del self._left[request], self._waits_for[request]
        self.latencies.append(self._now - self._arrived.pop(request))
        self.waits.append(self._waited.pop(request))
        self._begin()
