"""The time of one predicted request with its interval, and the simulation of many at once.

The interval is a prediction interval for one future request, by a seeded bootstrap over steps
or pipeline calls. It includes a factor for differences between runs. The throughput interval
covers only the measured times, not the model's assumptions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from profiler.errors import InputError
from profiler.prediction.pieces import HOST
from profiler.prediction.workload import (
    DEFAULT_ORDER,
    Order,
    RequestGraph,
    Task,
    Workload,
    request_graph,
)
from profiler.trace.bootstrap import (
    LEAST_SPREAD,
    PREDICTED_CONFIDENCE,
    RESAMPLES,
    Resampled,
    draws,
    ends,
    mean_widening,
    t_ratio,
)
from profiler.trace.bootstrap import SEED as RESAMPLING_SEED
from profiler.trace.events import device_kind

# --- The time of one request: the sum of its parts, with an interval.
#
# The interval is a prediction interval of one future request, by a seeded bootstrap over what
# repeats. A request with m steps after its first draws m of the n measured ones, with replacement.
# Draws from few values scatter too little, and their mean, on which the prediction is based, is
# uncertain itself. Deviations of the sum are widened by sqrt(n / (n - 1) (1 + m / n)) t(n - 1) / z,
# which turns their variance, m (n - 1) / n s^2, into that of a prediction interval,
# m (1 + m / n) s^2.
#
# With a single pipeline call, what was measured once (its first step, and work outside of steps) is
# assumed to scatter as its steps do, by the same relative amount in each submodule: otherwise an
# interval of few steps beside long encoders would include the scatter of the smaller part alone.
#
# With p pipeline calls, two or more, each draw takes one, with its own steps. Deviations between
# calls are widened by sqrt((p + 1) / (p - 1)), as above for one of p; those within by sqrt(k /
# (k - 1)) with k steps in each; both together by t / z with the degrees of freedom of their sum
# (Satterthwaite 1946, Biometrics Bulletin 2(6), 110-114). Few calls may be equal by chance: with
# less than six the interval is at least that of the steps of all of them.
#
# Equal runs differ by more than their pipeline calls do: clocks, caches and other work of a machine
# change within minutes, which no single run shows. Each draw therefore also multiplies the time on
# the host's processors with one factor of `_BETWEEN_RUNS`, and the time on other devices with one
# of `LEAST_SPREAD`.
#
# If the time of a submodule was estimated within bounds, each draw also multiplies it with a value
# between them, from a triangular distribution that peaks at the estimate.


_Reals = npt.NDArray[np.float64]
_FEW = 6  # pipeline calls; fewer may be equal by chance
_BETWEEN_RUNS = 0.02
"""Relative standard deviation of processor time between equal runs, beyond the scatter of pipeline
calls (docs/performance.md, "What intervals are worth")."""


class RequestTime(Struct, frozen=True):
    """A request's time in ns. `low` and `high` bound it with 90 % confidence, None if nothing was
    measured more than once and nothing was estimated within bounds. `resampled` is the unit that
    was drawn, None if nothing was; `once_ns` is the part of the time that was measured once."""

    ns: float
    low: float | None
    high: float | None
    resampled: Resampled | None
    once_ns: float


def request_time(
    workload: Workload, spread: Mapping[str, tuple[float, float]], *, resamples: int = RESAMPLES
) -> RequestTime:
    """The time of one request of `workload`; `spread` as in `changes.Changed`."""
    if not workload.tasks:  # pipeline calls without known work
        return RequestTime(0.0, None, None, None, 0.0)
    times = [mean_time(task, workload) for task in workload.tasks]
    value = sum(times)
    names = list(dict.fromkeys(task.submodule for task in workload.tasks))
    bounds = [spread.get(name or "", (1.0, 1.0)) for name in names]
    generator = np.random.default_rng(RESAMPLING_SEED)
    parts = [_Measured.of(workload, name) for name in names]
    later = max(workload.steps - 1, 0)
    drawn: dict[Resampled, _Reals] = {}
    if (of_calls := _calls_drawn(parts, later, generator, resamples)) is not None:
        drawn[Resampled.PIPELINE_CALLS] = of_calls
    few = len(workload.measured_ns) < _FEW
    if few and (of_steps := _steps_drawn(parts, later, generator, resamples)) is not None:
        drawn[Resampled.STEPS] = of_steps
    resampled = next(iter(drawn), None)
    once = _once(workload, resampled)
    if not drawn and all(low >= high for low, high in bounds):
        return RequestTime(value, None, None, None, once)
    deviations = max(drawn.values(), key=_width, default=np.zeros((len(names), resamples)))
    total = _between_runs(workload, times, generator, resamples) if drawn else np.zeros(resamples)
    for part, deviation, between in zip(parts, deviations, bounds, strict=True):
        total += (part.mean(later) + deviation) * _factors(between, generator, resamples)
    least, most = (max(end, 0.0) for end in ends(total, PREDICTED_CONFIDENCE))
    return RequestTime(value, min(least, value), max(most, value), resampled, once)


def _between_runs(
    workload: Workload, times: Sequence[float], generator: np.random.Generator, resamples: int
) -> _Reals:
    """Draw the deviation between this run and an equal future one, in ns; float64 [resamples].
    `times` are the mean times of its tasks."""
    on_host = sum(
        time
        for task, time in zip(workload.tasks, times, strict=True)
        if not task.device or device_kind(task.device) == "cpu"
    )
    elsewhere = sum(times) - on_host
    host, device = generator.standard_normal((2, resamples))
    found: _Reals = host * _BETWEEN_RUNS * on_host + device * LEAST_SPREAD * elsewhere
    return found


def moved(request: RequestTime, ns: float) -> RequestTime:
    """The same interval around another time."""
    by = ns - request.ns
    low, high = (None if end is None else max(end + by, 0.0) for end in (request.low, request.high))
    return replace(request, ns=ns, low=low, high=high)


def mean_time(task: Task, workload: Workload) -> float:
    """The mean time of a task in one request, in ns."""
    if task in workload.step:
        first = float(task.first_ns.mean()) if task.first_ns.size else 0.0
        later = float(task.steady_ns.mean()) if task.steady_ns.size else 0.0
        return first + (workload.steps - 1) * later
    return float(task.steady_ns.mean())


def by_stage(workload: Workload) -> dict[str, float]:
    """The mean time of each stage in ns, in order; "" for work outside stages."""
    return _sums(workload, [task.stage for task in workload.tasks])


def by_submodule(workload: Workload) -> dict[str, float]:
    """The mean time of each submodule's calls in ns, and of the host."""
    return _sums(workload, [task.submodule or HOST for task in workload.tasks])


def _sums(workload: Workload, names: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, task in zip(names, workload.tasks, strict=True):
        found[name] = found.get(name, 0.0) + mean_time(task, workload)
    return found


class _Measured(Struct, frozen=True, eq=False):
    """The time of a submodule in p pipeline calls: `once`, float64 [p], in the first step and
    outside steps, `steady`, float64 [p, k], in each later step."""

    once: _Reals
    steady: _Reals

    @classmethod
    def of(cls, workload: Workload, submodule: str | None) -> _Measured:
        calls = len(workload.measured_ns)
        known = max((task.steady_ns.shape[1] for task in workload.step), default=0)
        once, steady = np.zeros(calls), np.zeros((calls, known))
        for task in (*workload.encode, *workload.decode):
            if task.submodule == submodule:
                once += task.steady_ns[:, 0]
        for task in workload.step:
            if task.submodule == submodule:
                once += task.first_ns if task.first_ns.size else 0.0
                steady += task.steady_ns if task.steady_ns.size else 0.0
        return cls(once, steady)

    def mean(self, later: int) -> float:
        """The mean time with `later` steps beyond the first."""
        return float(self.by_call(later).mean())

    def by_call(self, later: int) -> _Reals:
        """The time per pipeline call with `later` steps at its mean, float64 [p]."""
        if not self.steady.size:
            return self.once
        means: _Reals = self.once + later * self.steady.mean(axis=1)
        return means


def _steps_drawn(
    parts: Sequence[_Measured], later: int, generator: np.random.Generator, resamples: int
) -> _Reals | None:
    """Draw `later` steps from those of all calls and return the widened deviation of their sum from
    the mean, float64 [parts, resamples]; None if there is nothing to draw, or one step."""
    count = parts[0].steady.size
    if not later or count < 2:
        return None
    counts = _times_drawn(later, count, generator, resamples)
    drawn = np.array([counts @ (part.steady - part.steady.mean()).ravel() for part in parts])
    widened: _Reals = drawn * math.sqrt(count / (count - 1) * (1 + later / count))
    if len(parts[0].once) == 1:
        widened = widened + _once_drawn(parts, generator, resamples)
    return widened * t_ratio(count, PREDICTED_CONFIDENCE)


def _times_drawn(later: int, count: int, generator: np.random.Generator, resamples: int) -> _Reals:
    """Draw how often each of `count` steps is among `later`, float64 [resamples, count]. The last
    draws are kept, with the generator behind them: most predictions of a run draw the same."""
    key = str(generator.bit_generator.state), later, count, resamples
    drawn = _drawn.get(key)
    if drawn is None:
        times = generator.multinomial(later, np.full(count, 1 / count), size=resamples)
        if len(_drawn) == _KEPT:
            _drawn.clear()
        drawn = _drawn[key] = times.astype(np.float64), generator.bit_generator.state
    found, generator.bit_generator.state = drawn
    return found


_KEPT = 4  # draws
_drawn: dict[tuple[str, int, int, int], tuple[_Reals, Any]] = {}


def _once_drawn(
    parts: Sequence[_Measured], generator: np.random.Generator, resamples: int
) -> _Reals:
    """Draw the deviation of parts that were measured once, assuming that they scatter like the
    steps of the single pipeline call; float64 [parts, resamples]."""
    steps = np.sum([part.steady.ravel() for part in parts], axis=0)
    mean = float(steps.mean())
    spread = float(steps.std(ddof=1)) / mean if mean > 0 else 0.0
    once = np.array([[float(part.once.sum())] for part in parts])
    normal = generator.standard_normal((len(parts), resamples))
    found: _Reals = normal * spread * once * math.sqrt(2)  # that of the measured one, and its own
    return found


def _calls_drawn(
    parts: Sequence[_Measured], later: int, generator: np.random.Generator, resamples: int
) -> _Reals | None:
    """Draw a pipeline call with its own steps and return its widened deviation from the mean,
    float64 [parts, resamples]; None if there is only one."""
    calls, known = parts[0].steady.shape
    if calls < 2:
        return None
    call = generator.integers(calls, size=resamples)
    means = np.array([part.by_call(later) for part in parts])
    between = (means - means.mean(axis=1, keepdims=True))[:, call]
    between *= math.sqrt((calls + 1) / (calls - 1))
    within = np.zeros_like(between)
    if later and known > 1:
        counts = generator.multinomial(later, np.full(known, 1 / known), size=resamples)
        for row, part in enumerate(parts):
            apart = part.steady - part.steady.mean(axis=1, keepdims=True)
            within[row] = np.einsum("rk,rk->r", counts, apart[call])
        within *= math.sqrt(known / (known - 1))
    of_each = (float(some.sum(axis=0).var()) for some in (between, within))
    free = _degrees(tuple(zip(of_each, (calls - 1, calls * (known - 1)), strict=True)))
    widened: _Reals = (between + within) * t_ratio(free + 1, PREDICTED_CONFIDENCE)
    return widened


def _degrees(variances: Sequence[tuple[float, int]]) -> int:
    """The degrees of freedom of a sum of independent variances (Satterthwaite)."""
    known = [(variance, free) for variance, free in variances if variance > 0]
    if not known:
        return max(free for _, free in variances)
    largest = max(variance for variance, _ in known)
    shares = [(variance / largest, free) for variance, free in known]
    whole = sum(share for share, _ in shares)
    return max(int(whole**2 / sum(share**2 / free for share, free in shares)), 1)


def _factors(
    between: tuple[float, float], generator: np.random.Generator, resamples: int
) -> _Reals | float:
    """Draw a factor between the bounds of an estimate for each resample."""
    low, high = between
    if low >= high:
        return 1.0
    return generator.triangular(low, min(max(1.0, low), high), high, resamples)


def _width(deviations: _Reals) -> float:
    low, high = ends(deviations.sum(axis=0), PREDICTED_CONFIDENCE)
    return high - low


def _once(workload: Workload, resampled: Resampled | None) -> float:
    """The part of the mean time that was measured once; 0 with several pipeline calls."""
    if len(workload.measured_ns) > 1:
        return 0.0
    total = sum(mean_time(task, workload) for task in workload.tasks)
    if resampled != Resampled.STEPS:
        return total
    steady = (float(task.steady_ns.mean()) for task in workload.step if task.steady_ns.size)
    return total - (workload.steps - 1) * sum(steady)


# --- The uncertainty of a simulated throughput due to few measurements.
#
# A seeded bootstrap of the mean times, over pipeline calls if there are two or more, else over
# steps, which do not show how pipeline calls differ: each draw gives the lower bound of the time
# per request (the busiest resource's, or the critical path divided by the concurrency), to which
# the throughput is inversely proportional. Deviations are widened as for means of few values, by
# sqrt(n / (n - 1)) t(n - 1) / z (Hesterberg 2015, Am. Stat. 69(4), 371-386). It does not cover what
# the model leaves out, nor bounds of estimates.


_DRAWS = 200


def relative_interval(
    workload: Workload, graph: RequestGraph, concurrency: int, seed: int
) -> tuple[float, float] | None:
    """The bounds of true / simulated throughput with 90 % confidence, None if nothing was measured
    more than once."""
    calls = len(workload.measured_ns)
    steps = max((task.steady_ns.shape[1] for task in workload.step), default=0)
    over_calls, units = calls > 1, calls if calls > 1 else steps
    if units < 2:
        return None
    picked = draws(units, _DRAWS, np.random.default_rng(seed))

    @cache
    def mean(task: Task, first: bool) -> _Reals:
        """The mean time in each draw, the measured one as the last of all [draws + 1]."""
        values = task.first_ns if first and task.first_ns.size else task.steady_ns
        by_call = values.reshape(len(values), -1)
        if not by_call.size:
            return np.zeros(_DRAWS + 1)
        flat = by_call.mean(axis=1) if over_calls else by_call.ravel().astype(np.float64)
        drawn = flat[picked].mean(axis=1) if len(flat) == units else np.full(_DRAWS, flat.mean())
        return np.append(drawn, flat.mean())

    durations = np.zeros((len(graph.work), _DRAWS + 1))
    for node, work in enumerate(graph.work):
        for task, step in work:
            durations[node] += mean(task, step == 0)
    *drawn, measured = shortest_periods(graph, durations, concurrency)
    if measured <= 0:
        return None
    off = np.log(np.maximum(np.array(drawn), 1.0) / measured)
    low, high = ends(off * mean_widening(units, PREDICTED_CONFIDENCE), PREDICTED_CONFIDENCE)
    return min(math.exp(-high), 1.0), max(math.exp(-low), 1.0)


def shortest_periods(graph: RequestGraph, durations: _Reals, concurrency: int) -> list[float]:
    """The lower bound of the time in ns between completions, for each column of `durations` [n,
    columns]."""
    busy = np.zeros((len(graph.resources), durations.shape[1]))
    np.add.at(busy, list(graph.resource), durations)
    begin = np.zeros_like(durations)
    longest = np.zeros(durations.shape[1])
    for node, following in enumerate(graph.after):
        done = begin[node] + durations[node]
        longest = np.maximum(longest, done)
        for other in following:
            begin[other] = np.maximum(begin[other], done)
    periods: list[float] = np.maximum(busy.max(axis=0), longest / concurrency).tolist()
    return periods


# --- Many requests at once on few devices: a discrete-event simulation of a closed loop.
#
# `concurrency` requests are always in flight: when one is done the next begins. A device runs one
# call at a time, first come first served; so does the host's one thread (in CPython all requests
# share it) with host work. Calls take their measured time, whatever else runs: each simulated
# request draws one of the measured pipeline calls, and each of its steps one of that call's.
#
# The time before the measurement window is warm-up, because the loop starts with all requests at
# once.


SEED = 0
_EVENTS = 30_000  # of a simulation, about
_WARMUP_ROUNDS = 2  # of `concurrency` requests
_ENOUGH_ROUNDS, _FEWEST_ROUNDS = 10, 2
_MOST_EVENTS = 2_000_000
_MOST_REQUESTS = 1000
_Times = npt.NDArray[np.int64]


class Simulation(Struct, frozen=True, eq=False):
    """The result of a closed loop of `concurrency` requests within its measurement window.

    `throughput` is requests/s, between `low` and `high` with 90 % confidence as far as the scatter
    of measured times goes, None if nothing was measured more than once. `latency_ns` has one entry
    for each of the `requests` completed in the window, int64 [requests]. By resource (`host` and
    each device): `utilization`, the share of the window in which it was busy, and `queue_wait_ns`,
    the mean time for which a request waited for it.
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
        """The given percentile of the latency, in ns."""
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
    """Simulate the placed `workload` with `concurrency` requests in flight.

    `requests` is the minimum number to measure (default: what takes a fraction of a second). The
    same arguments always give the same result. Raises InputError for a concurrency below 1, an
    unknown order, and a workload in which nothing took any time.
    """
    if concurrency < 1:
        raise InputError(f"the concurrency is {concurrency}; simulate 1 request or more at once")
    graph = request_graph(workload, order)
    warmup, count = _requests(requests, concurrency, len(graph.work))
    drawn = _draw(graph, count, np.random.default_rng(seed))
    found = run_closed_loop(graph, drawn, concurrency, warmup, order)
    bounds = relative_interval(workload, graph, concurrency, seed)
    if bounds is None:
        return found
    low, high = (found.throughput * bound for bound in bounds)
    return replace(found, low=low, high=high)


def simulate_drawn(
    graph: RequestGraph, measured: Sequence[Sequence[float]], concurrency: int
) -> Simulation:
    """Simulate requests each of which is one of those measured: durations in ns [r][n] of the nodes
    of `graph`. Raises InputError if they took no time."""
    warmup, count = _requests(None, concurrency, len(graph.work))
    drawn = np.random.default_rng(SEED).integers(len(measured), size=count)
    durations = [measured[row] for row in drawn.tolist()]
    return run_closed_loop(graph, durations, concurrency, warmup, "graph")


def _requests(measured: int | None, concurrency: int, nodes: int) -> tuple[int, int]:
    """How many requests of the warm-up, and how many in all, to measure so many at least: requests
    start beyond the last one that is measured, so that the loop stays closed to the end."""
    wanted = measured or min(_EVENTS // nodes, _MOST_REQUESTS)
    possible = _MOST_EVENTS // (nodes * concurrency) - _WARMUP_ROUNDS - 1
    if possible < _FEWEST_ROUNDS:
        raise InputError(
            f"{concurrency:,} requests at once of {nodes:,} calls and pieces of host work each are "
            "too many to simulate; give fewer steps, or fewer requests at once"
        )
    rounds = min(max(_ENOUGH_ROUNDS, -(-wanted // concurrency)), possible)
    return _WARMUP_ROUNDS * concurrency, (_WARMUP_ROUNDS + rounds + 1) * concurrency


def mean_durations(graph: RequestGraph) -> list[float]:
    """The mean measured time of each node in ns [n]."""

    @cache
    def mean(task: Task, first: bool) -> float:
        values = _values(task, first=first)
        return float(values.mean()) if values.size else 0.0

    found = [0.0] * len(graph.work)
    for node, work in enumerate(graph.work):
        for task, step in work:
            found[node] += mean(task, step == 0)
    return found


def _values(task: Task, *, first: bool) -> _Times:
    """What was measured of a task in the first step, or in later ones [p, k]; these stand in for a
    first one that was not measured, and the other way round."""
    once, later = task.first_ns.reshape(-1, 1), task.steady_ns
    candidates = (once, later) if first else (later, once)
    return next((values for values in candidates if values.size), later)


def _draw(graph: RequestGraph, requests: int, generator: np.random.Generator) -> list[list[int]]:
    """Draw the durations of each request's nodes in ns [requests][n]."""
    pipeline = generator.random(requests)  # as a share of the pipeline calls there are
    drawn = np.zeros((len(graph.work), requests), dtype=np.int64)
    for node, work in enumerate(graph.work):
        for task, step in work:
            values = _values(task, first=step == 0)
            if values.size:
                row = (pipeline * len(values)).astype(np.int64)
                drawn[node] += values[row, generator.integers(values.shape[1], size=requests)]
    return drawn.T.tolist()


def run_closed_loop(
    graph: RequestGraph,
    durations: Sequence[Sequence[float]],
    concurrency: int,
    warmup: int,
    order: Order,
) -> Simulation:
    """Run requests of these `durations` in ns [r][n]; the last `concurrency` of them need not end.

    The window starts when `warmup` requests are done and ends with request r - `concurrency`.
    Raises InputError if the window is empty.
    """
    loop, last = _Loop(graph, durations), len(durations) - concurrency
    begin = loop.start(concurrency)
    if warmup:
        begin = loop.run_until(warmup)
    before = loop.snapshot()
    window = loop.run_until(last) - begin
    if window <= 0:
        raise InputError("the parts of the workload took no time; record a run that measures them")
    count, waits = last - warmup, loop.waits[warmup:last]
    busy = zip(loop.snapshot().items(), graph.servers or (1,) * len(before), strict=True)
    return Simulation(
        concurrency=concurrency,
        order=order,
        requests=count,
        window_ns=round(window),
        throughput=count / window * 1e9,
        latency_ns=np.array(loop.latencies[warmup:last], dtype=np.float64).round().astype(np.int64),
        utilization={
            name: (until - before[name]) / window / servers for (name, until), servers in busy
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
        self._ends: list[tuple[float, int, int, int]] = []  # time, order of start, request, node
        self._sequence = 0
        count = len(graph.resources)
        self._queues: list[deque[tuple[float, int, int]]] = [deque() for _ in range(count)]
        self._servers = graph.servers or (1,) * count
        self._until: list[list[float]] = [[] for _ in range(count)]  # ends of what each runs
        self._busy = [0.0] * count  # including what is still running
        self._now = 0.0
        self.latencies: list[float] = []  # in order of completion
        self.waits: list[list[float]] = []  # by resource, of the same requests

    def start(self, concurrency: int) -> float:
        """Start `concurrency` requests at time 0."""
        for _ in range(concurrency):
            self._begin()
        return self._now

    def run_until(self, completed: int) -> float:
        """Run until `completed` requests are done and return that time."""
        while len(self.latencies) < completed:
            self._now, _, request, node = heappop(self._ends)
            self._done(request, node)
        return self._now

    def snapshot(self) -> dict[str, float]:
        """The busy time of each resource until now."""
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
        """Run a node whose inputs are there, or queue it for its resource."""
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
