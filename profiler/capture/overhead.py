"""Profiling overhead of a run: measured from traced and untraced calls, else estimated.

Measured: the median duration of a submodule's traced calls minus that of its untraced calls,
with a bootstrap interval. Only calls of the same input shapes are compared, at least three of
each kind, without the first call of each kind.

Estimated: the cost per event on a chain of operators, times the events of the run. If the
estimate exceeds the time of all that ran, no total is reported.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from profiler.capture.backend import backend_named
from profiler.capture.operator_source import Gaps, NewSessions, SourceSummary, TimedCall
from profiler.capture.recorder import Recorder
from profiler.trace.bootstrap import Bootstrap
from profiler.trace.manifest_fields import (
    CallCounts,
    CostMethod,
    MeasuredCost,
    Overhead,
    OverheadRatio,
    ShareOf,
    UnknownCost,
    WhyUnknown,
)

# --- The profiling overhead of a call, from traced and untraced calls of one run.


_MOST_FACTOR = 1e3  # untraced over traced time, or the inverse: a larger one is no measurement
_FEWEST = 3  # calls of each kind for a measurement


@dataclass(frozen=True, slots=True)
class CallCost:
    """The profiling overhead of a call of one submodule, from `traced` and `untraced` calls.

    `call_ns` is the difference of their median durations. `factor`, the untraced median over the
    traced one, corrects traced operator times. If noise exceeds the cost, they are below 0 and
    above 1. The intervals are of 95 %.
    """

    traced: int
    untraced: int
    traced_median_ns: float
    untraced_median_ns: float
    call_interval_ns: tuple[float, float]
    factor_interval: tuple[float, float]

    @property
    def call_ns(self) -> float:
        return self.traced_median_ns - self.untraced_median_ns

    @property
    def factor(self) -> float:
        return self.untraced_median_ns / self.traced_median_ns

    def overhead_ratio(self) -> OverheadRatio | None:
        """The submodule's ratio for the manifest; None for an impossible factor."""
        low, high = self.factor_interval
        if not 1 / _MOST_FACTOR <= self.factor <= _MOST_FACTOR:
            return None
        return OverheadRatio(factor=round(self.factor, 6), low=round(low, 6), high=round(high, 6))

    def measured(self, events: float) -> MeasuredCost:
        """The cost for the manifest's `overhead`; `events` are the operator events per call."""
        low, high = self.call_interval_ns
        return MeasuredCost(
            traced_calls=self.traced,
            untraced_calls=self.untraced,
            traced_median_ns=round(self.traced_median_ns, 1),
            untraced_median_ns=round(self.untraced_median_ns, 1),
            call_ns=round(self.call_ns, 1),
            call_low_ns=round(low, 1),
            call_high_ns=round(high, 1),
            event_ns=round(self.call_ns / events, 1) if events else None,
        )


def call_cost(calls: Sequence[TimedCall]) -> CallCost | None:
    """Compare the traced and the untraced calls in `calls`, which are in order of time.

    Only calls of the same input shapes are compared: of several shapes, those for which the rarer
    kind has the most calls. None for fewer than three of either kind.
    """
    untraced, traced = _comparable(calls)
    if min(len(untraced), len(traced)) < _FEWEST or np.median(traced) <= 0:
        return None
    found = Bootstrap().compare(untraced, traced)
    low, high = found.low or 0.0, found.high or 0.0  # None only for fewer than two calls of a kind
    return CallCost(
        len(traced),
        len(untraced),
        found.new,
        found.base,
        (low, high),
        (found.base / max(found.base + high, 1), found.base / max(found.base + low, 1)),
    )


def _comparable(calls: Iterable[TimedCall]) -> tuple[list[int], list[int]]:
    """Durations in ns of the comparable untraced and traced calls. A second call on a new session
    takes longer, too, and `NewSessions` has that: it is left out if enough others are there."""
    steady = _without_first(calls)
    settled = _of_equal_shapes(call for call in steady if not call.on_new_session)
    return settled if min(map(len, settled)) >= _FEWEST else _of_equal_shapes(steady)


def _of_equal_shapes(calls: Iterable[TimedCall]) -> tuple[list[int], list[int]]:
    """Durations of the untraced and traced calls with the shapes that have most of both."""
    by_shapes: dict[tuple[tuple[str, str], ...], tuple[list[int], list[int]]] = {}
    for call in calls:
        shapes = tuple(sorted(call.input_shapes.items()))
        by_shapes.setdefault(shapes, ([], []))[call.traced].append(call.duration_ns)
    return max(by_shapes.values(), key=lambda kinds: min(map(len, kinds)), default=([], []))


def _without_first(calls: Iterable[TimedCall]) -> list[TimedCall]:
    """All but the first traced and the first untraced call, which include initialization."""
    seen: set[bool] = set()
    steady = []
    for call in calls:
        if call.traced in seen:
            steady.append(call)
        seen.add(call.traced)
    return steady


def measured_costs(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, CallCost]:
    """The profiling overhead by submodule, for submodules with enough comparable calls."""
    costs = {submodule: call_cost(timed) for submodule, timed in _timed(sources).items()}
    return {submodule: cost for submodule, cost in costs.items() if cost is not None}


def too_few(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, CallCounts]:
    """The number of comparable calls by submodule, for submodules with calls of both kinds but too
    few to compare."""
    found = {}
    for submodule, timed in _timed(sources).items():
        kinds = {call.traced for call in timed}
        untraced, traced = map(len, _comparable(timed))
        if len(kinds) == 2 and min(untraced, traced) < _FEWEST:
            found[submodule] = CallCounts(traced_calls=traced, untraced_calls=untraced)
    return found


def _timed(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, list[TimedCall]]:
    calls: dict[str, list[TimedCall]] = {}
    for submodule, summary in sources:
        calls.setdefault(submodule, []).extend(summary.timed)
    return calls


# --- The cost of recording one event, from runs with and without recording in turn.


_BEYOND = 1.5  # factor of `bounds`: events of runs cost 0.8 to 1.3 times as much


@dataclass(frozen=True, slots=True)
class EventCost:
    """The median cost of an event in ns, and its quartiles over the pairs, None if unknown."""

    ns: float
    low_ns: float | None = None
    high_ns: float | None = None

    @classmethod
    def of_pairs(cls, pairs_s: Sequence[float], events: int) -> EventCost | None:
        """The cost from at least two differences in s, each of a run that recorded `events` events
        and one that recorded none. None if noise exceeds the cost."""
        low, median, high = (
            quartile * 1e9 / events
            for quartile in statistics.quantiles(pairs_s, n=4, method="inclusive")
        )
        return cls(median, max(low, 0.0), high) if median > 0 else None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that each event of a run may have cost. A run differs from the
        measured chain, so the bounds are wider than the quartiles by the factor `_BEYOND`. Without
        quartiles, since a busy machine left time for one pair only: from nothing to four times as
        much."""
        if self.low_ns is None or self.high_ns is None:
            return 0.0, 4 * self.ns
        return self.low_ns / _BEYOND, self.high_ns * _BEYOND

    @property
    def noisy(self) -> bool:
        """Whether the quartiles are further apart than the cost itself."""
        return (
            self.low_ns is not None
            and self.high_ns is not None
            and (self.high_ns - self.low_ns > self.ns)
        )


# --- The profiling overhead of a run: measured if it has calls of both kinds, else estimated.
#
# The estimate: a runtime's profiler builds a record of each executed operator. Its cost is measured
# on a chain of operators, run with and without profiling in turn. The median difference per record
# times the events of a run estimates the overhead, scaled by the gaps between the run's events if a
# backend knows them.
#
# From the run's own calls: the extra time of the first call on a session opened for profiling, if
# the program's own session had run before.


_NOISE = 0.075  # of a program's time: the least difference between two processes
_STUDENTS_T = (4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27)  # for 2 degrees of freedom, 3, …


def tracing_cost(
    sources: Sequence[tuple[str, SourceSummary]],
    costs: Mapping[str, CallCost],
    hooks_ns: int,
    traced_ns: int,
    share_of: ShareOf = ShareOf.END_TO_END,
    noise_ns: float = 0.0,
) -> Overhead:
    """Compute the manifest's `overhead`, except the cost of writing: from `costs` if measured, and
    from estimates for all other events, including those of host work. Without `untraced_ns` and
    `share` if some backend's cost is unknown, or nothing ran.

    `traced_ns` is the time that the callers saw for what `share_of` names: the program's own time,
    `hooks_ns` of our own work, and the cost of recording operators. Without profiling it might have
    been `noise_ns` longer or shorter anyway.
    """
    measured = _of_the_run(sources, costs)
    estimate = _estimate(_not_measured(sources, costs), max(traced_ns - hooks_ns, 0))
    found = Overhead(
        traced_ns=traced_ns,
        hooks_ns=hooks_ns,
        operator_events=sum(summary.events + summary.host_events for _, summary in sources),
        too_few=too_few(sources),
        measured=measured.by_submodule,
    )
    if estimate.unknown:
        return structs.replace(found, unknown=estimate.unknown)
    opened = sum((summary.new_sessions for _, summary in sources), start=NewSessions())
    cost_ns = round(measured.cost_ns + estimate.cost_ns)
    found = structs.replace(found, operators_ns=cost_ns, new_sessions_ns=round(opened.ns) or None)
    if estimate.events or not costs:
        found = structs.replace(found, **_estimated(estimate))
    if measured.interval_ns is not None and not estimate.events:
        low, high = map(round, measured.interval_ns)
        found = structs.replace(found, operators_low_ns=low, operators_high_ns=high)
    if not traced_ns:
        return found
    without = traced_ns - hooks_ns
    least, most = _bounds(measured, estimate)
    least, most = least + opened.least_ns, most + opened.most_ns
    cost_ns += round(opened.ns)
    untraced_ns = without - cost_ns
    if untraced_ns <= 0:
        event_ns = round(cost_ns / max(found.operator_events or 0, 1), 1)
        implausible = UnknownCost(why=WhyUnknown.IMPLAUSIBLE, event_ns=event_ns)
        return structs.replace(found, unknown=(implausible,))
    low_ns, high_ns = _untraced_bounds(untraced_ns, cost_ns, (least, most), noise_ns / traced_ns)
    return structs.replace(
        found,
        untraced_ns=untraced_ns,
        untraced_low_ns=round(low_ns),
        untraced_high_ns=round(high_ns),
        method=_method(estimate, costs),
        share=(hooks_ns + cost_ns) / traced_ns,  # 1 - untraced / traced
        share_of=share_of,
    )


def _untraced_bounds(
    untraced_ns: float, cost_ns: float, bounds: tuple[float, float], noise: float
) -> tuple[float, float]:
    """The least and the most that a run may have taken without profiling, if recording operators
    cost `cost_ns` within `bounds` and the run varies by the share `noise`.

    The upper bound of the cost is known relative to the program's own work: if an event costs twice
    as much, that work is slower, too. So it is taken as a proportion of the untraced time, which
    keeps the result positive. Cost and noise are independent: the square root of the sum of the
    squares of both deviations is the deviation of both together.
    """
    least, most = min(bounds[0], cost_ns), max(bounds[1], cost_ns)
    shorter = (most - cost_ns) / (untraced_ns + cost_ns)
    longer = (cost_ns - least) / untraced_ns
    low_ns = untraced_ns / (1 + math.hypot(shorter, noise))
    return low_ns, untraced_ns * (1 + math.hypot(longer, noise))


def noise_ns(recorder: Recorder, crowding: float = 1.0) -> float:
    """The 95 % bound of the difference between the totals of two repetitions of the run: from the
    spread of its pipeline calls without the first. At least a fixed share, since processes differ
    by more than their calls show; more if the machine has more to do than it has cores
    (`crowding`)."""
    ordered = sorted(recorder.pipelines, key=lambda pipeline: pipeline.start_ns)
    steady = [pipeline.end_ns - pipeline.start_ns for pipeline in ordered[1:]]
    least = _NOISE * max(crowding, 1.0) * recorder.traced_ns
    if len(steady) < _FEWEST:
        return least
    times = _students_t(len(steady) - 1)
    return max(least, times * statistics.stdev(steady) * math.sqrt(2 * len(ordered)))


def _students_t(freedom: int) -> float:
    """The number of standard deviations that contains 95 %, for at least 2 degrees of freedom: the
    deviation of a few calls is often too small."""
    return _STUDENTS_T[freedom - 2] if freedom < len(_STUDENTS_T) + 2 else 2.0 + 2.3 / freedom


def _bounds(measured: _Measured, estimate: _Estimate) -> tuple[float, float]:
    """The least and the most that recording operators may have cost in ns."""
    low, high = measured.interval_ns or (measured.cost_ns, measured.cost_ns)
    return low + estimate.bounds[0], high + estimate.bounds[1]


def _method(estimate: _Estimate, costs: Mapping[str, CallCost]) -> CostMethod:
    if not estimate.events:
        return CostMethod.MEASURED
    return CostMethod.BOTH if costs else CostMethod.ESTIMATED


def _estimated(estimate: _Estimate) -> dict[str, Any]:
    """The fields of the manifest's `overhead` that come from estimates."""
    event_ns = estimate.cost_ns / estimate.events if estimate.events else 0.0
    low, high = estimate.spread or (None, None)
    return {
        "estimated_by": estimate.backends,
        "estimated_events": estimate.events,
        "operator_event_ns": round(event_ns, 1),
        "operator_event_low_ns": None if low is None else round(low, 1),
        "operator_event_high_ns": None if high is None else round(high, 1),
        "noisy": estimate.spread is not None and estimate.noisy,
    }


def whole_of(recorder: Recorder) -> ShareOf:
    """What the share of overhead in a run refers to."""
    if not recorder.outside_ns:
        return ShareOf.END_TO_END
    return ShareOf.BOTH if recorder.pipelines else ShareOf.CALLS


def _not_measured(
    sources: Sequence[tuple[str, SourceSummary]], costs: Mapping[str, CallCost]
) -> dict[str, _Events]:
    """By backend, the events whose cost is not measured by comparing calls."""
    events: dict[str, _Events] = {}
    for submodule, summary in sources:
        measured = submodule in costs
        count = summary.host_events + (0 if measured else summary.events)
        if count:
            known = events.setdefault(summary.backend, _Events())
            known.count += count
            known.gaps += Gaps() if measured else summary.gaps
    return events


@dataclass(slots=True)
class _Events:
    """The number of events, and the gaps between them."""

    count: int = 0
    gaps: Gaps = field(default_factory=Gaps)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """The estimated cost of `events` events of `backends`; `unknown` are the missing estimates,
    with reasons. `spread` are quartiles of the cost of one event, None if unknown; `bounds` the
    least and the most that all may have cost."""

    events: int
    cost_ns: float
    backends: tuple[str, ...]
    unknown: tuple[UnknownCost, ...]
    bounds: tuple[float, float]
    spread: tuple[float, float] | None = None
    noisy: bool = False


def _estimate(events: Mapping[str, _Events], total_ns: int) -> _Estimate:
    """Estimate the cost of events by backend. Tracing cannot have taken longer than `total_ns`, the
    time of all that ran, 0 if unknown."""
    backends, unknown, known = [], [], []
    for backend, recorded in events.items():
        cost = event_cost(backend, recorded.gaps)
        if cost is None:
            measurable = backend_named(backend).measures_events
            why = WhyUnknown.TOO_BUSY if measurable else WhyUnknown.NOT_MEASURED
            unknown.append(UnknownCost(why=why, backend=backend))
        else:
            known.append((recorded.count, cost))
            backends.append(backend)
    total = sum(recorded.count for recorded in events.values())
    cost_ns = sum(count * cost.ns for count, cost in known)
    if total_ns and cost_ns > total_ns:
        event_ns = round(cost_ns / total, 1)
        unknown.append(UnknownCost(why=WhyUnknown.IMPLAUSIBLE, event_ns=event_ns))
    spread = None
    if len(known) == 1 and known[0][1].low_ns is not None and known[0][1].high_ns is not None:
        spread = known[0][1].low_ns, known[0][1].high_ns
    noisy = any(cost.noisy for _, cost in known)
    low = sum(count * cost.bounds[0] for count, cost in known)
    high = sum(count * cost.bounds[1] for count, cost in known)
    return _Estimate(total, cost_ns, tuple(backends), tuple(unknown), (low, high), spread, noisy)


def event_cost(backend: str, gaps: Gaps) -> EventCost | None:
    """Measure the cost of recording one event now, for events with such gaps; None if unknown."""
    return backend_named(backend).event_cost(gaps)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The total of the measured submodules. `interval_ns` is the sum of their intervals, so it is
    no narrower than one of 95 %. None if nothing is measured."""

    by_submodule: dict[str, MeasuredCost]
    cost_ns: float
    interval_ns: tuple[float, float] | None


def _of_the_run(
    sources: Sequence[tuple[str, SourceSummary]], costs: Mapping[str, CallCost]
) -> _Measured:
    by_submodule, cost_ns, bounds = {}, 0.0, []
    for submodule, cost in costs.items():
        own = [summary for name, summary in sources if name == submodule]
        traced = sum(call.traced for summary in own for call in summary.timed)
        by_submodule[submodule] = cost.measured(sum(s.events for s in own) / traced)
        cost_ns += cost.call_ns * traced
        bounds.append([bound * traced for bound in cost.call_interval_ns])
    if not bounds:
        return _Measured(by_submodule, cost_ns, None)
    low, high = map(sum, zip(*bounds, strict=True))
    return _Measured(by_submodule, cost_ns, (low, high))
