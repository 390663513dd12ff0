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

# --- What tracing its operators costs a call, from traced and untraced calls of one run.
#
# The median duration of a submodule's traced calls less that of its untraced ones, with a bootstrap
# interval. The first call of either kind stands apart, and calls are compared with calls of the
# same input shapes alone, at least three of either kind.


_MOST_FACTOR = 1e3  # untraced over traced time, or the inverse: beyond it nothing was measured
_FEWEST = 3  # calls of either kind below which nothing is measured


@dataclass(frozen=True, slots=True)
class CallCost:
    """What tracing cost a call of one submodule, from `traced` and `untraced` calls.

    `call_ns` is the difference of their median durations, `factor` the untraced median over the
    traced one, which turns operator times as traced into corrected ones. Below 0 and above 1
    if noise exceeds the cost. The intervals are of 95 %.
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
        """What the manifest says of the submodule; None for a factor that nothing can have."""
        low, high = self.factor_interval
        if not 1 / _MOST_FACTOR <= self.factor <= _MOST_FACTOR:
            return None
        return OverheadRatio(factor=round(self.factor, 6), low=round(low, 6), high=round(high, 6))

    def measured(self, events: float) -> MeasuredCost:
        """What the manifest's `overhead` says; `events` are the operator events of a call."""
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
    """Compare the traced with the untraced of `calls`, which are in order of time.

    Of several input shapes those are compared that most calls of the rarer kind have. None below
    three of either kind.
    """
    untraced, traced = _comparable(calls)
    if min(len(untraced), len(traced)) < _FEWEST or np.median(traced) <= 0:
        return None
    found = Bootstrap().compare(untraced, traced)
    low, high = found.low or 0.0, found.high or 0.0  # there are several calls of either kind
    return CallCost(
        len(traced),
        len(untraced),
        found.new,
        found.base,
        (low, high),
        (found.base / max(found.base + high, 1), found.base / max(found.base + low, 1)),
    )


def _comparable(calls: Iterable[TimedCall]) -> tuple[list[int], list[int]]:
    """Durations in ns of the untraced and of the traced calls that can be compared."""
    steady = _without_first(calls)
    by_shapes: dict[tuple[tuple[str, str], ...], tuple[list[int], list[int]]] = {}
    for call in steady:
        shapes = tuple(sorted(call.input_shapes.items()))
        by_shapes.setdefault(shapes, ([], []))[call.traced].append(call.duration_ns)
    return max(by_shapes.values(), key=lambda kinds: min(map(len, kinds)), default=([], []))


def _without_first(calls: Iterable[TimedCall]) -> list[TimedCall]:
    """All but the first traced and the first untraced call: those pay for initialization."""
    seen: set[bool] = set()
    steady = []
    for call in calls:
        if call.traced in seen:
            steady.append(call)
        seen.add(call.traced)
    return steady


def measured_costs(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, CallCost]:
    """The profiling overhead by submodule, of those that have calls to compare."""
    costs = {submodule: call_cost(timed) for submodule, timed in _timed(sources).items()}
    return {submodule: cost for submodule, cost in costs.items() if cost is not None}


def too_few(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, CallCounts]:
    """By submodule, how many calls could be compared of those that have too few for it, though
    calls of both kinds ran."""
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


# --- What recording one event costs, from runs with and without recording in turn.


_BEYOND = 1.5  # of `bounds`: events of runs cost 0.8 to 1.3 times as much


@dataclass(frozen=True, slots=True)
class EventCost:
    """The median in ns an event, and the quartiles of the pairs, None if unknown."""

    ns: float
    low_ns: float | None = None
    high_ns: float | None = None

    @classmethod
    def of_pairs(cls, pairs_s: Sequence[float], events: int) -> EventCost | None:
        """From differences in s, at least two, of runs that recorded so many `events`. None if
        noise exceeds the cost."""
        low, median, high = (
            quartile * 1e9 / events
            for quartile in statistics.quantiles(pairs_s, n=4, method="inclusive")
        )
        return cls(median, max(low, 0.0), high) if median > 0 else None

    @property
    def bounds(self) -> tuple[float, float]:
        """Between what a run's events may have cost each: a run is not the chain that was measured,
        so they reach as far beyond the quartiles as `_BEYOND` says. If these are not known, for
        a busy machine left time for one pair alone, between nothing and four times as much.
        """
        if self.low_ns is None or self.high_ns is None:
            return 0.0, 4 * self.ns
        return self.low_ns / _BEYOND, self.high_ns * _BEYOND

    @property
    def noisy(self) -> bool:
        """Whether half of the pairs lie further apart than the cost itself."""
        return (
            self.low_ns is not None
            and self.high_ns is not None
            and (self.high_ns - self.low_ns > self.ns)
        )


# --- What tracing operators cost a run: measured if it has calls of both kinds, else estimated.
#
# Measured: the median duration of a submodule's traced calls less that of its untraced ones, with a
# bootstrap interval. The first call of either kind stands apart, and calls are compared with calls
# of the same input shapes alone, at least three of either kind.
#
# Estimated: the profiler of a runtime builds a record of each executed operator. What that takes is
# measured on a chain of operators, run with and without profiling in turn; the median difference
# per record times the events of a run estimates what tracing added to it; if a backend knows how
# far the run's own events lie apart, compared with those of the chain. If that is not known either,
# or says that tracing took longer than all that ran, no sum is stated.
#
# By the run's own calls: what the first call on a session that was opened for profiling took longer
# than later ones, if the program's own session had run before.


_NOISE = 0.075  # of what a program takes: it differs by at least that from process to process
_STUDENTS_T = (4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27)  # of 2 degrees of freedom, 3, …


def tracing_cost(
    sources: Sequence[tuple[str, SourceSummary]],
    costs: Mapping[str, CallCost],
    hooks_ns: int,
    traced_ns: int,
    share_of: ShareOf = ShareOf.END_TO_END,
    noise_ns: float = 0.0,
) -> Overhead:
    """The manifest's `overhead`, but for writing: `costs` if measured, and estimates for all
    other events, those of host work included. Without `untraced_ns` and `share` if some
    backend's cost is not known, or nothing ran.

    `traced_ns` is what the callers saw of what `share_of` says: the program's own time, `hooks_ns`
    of our own work, and what recording operators cost. Without us it might have been `noise_ns`
    longer or shorter anyway.
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
    """Between what a run may have taken without us, if recording operators cost `cost_ns`, between
    the `bounds`, and the run varies by the share `noise`.

    What is known of a cost is how it compares with the program's own work: where an event costs
    twice as much, that work is slower, too. So the most that it may have cost is a proportion of
    the untraced time, and all times that come of it are possible ones.
    """
    least, most = min(bounds[0], cost_ns), max(bounds[1], cost_ns)
    without_hooks = untraced_ns + cost_ns
    low = without_hooks / (1 + most / untraced_ns)
    return low / (1 + noise), (without_hooks - least) * (1 + noise)


def noise_ns(recorder: Recorder, crowding: float = 1.0) -> float:
    """By how much the sum of a run's pipeline calls is another next time, in nineteen of twenty:
    from how far they lie apart, the first aside, the sum of as many others included. At least a
    share of it, since another process is another one by more than its calls tell; if the machine
    has more to do than it has cores (`crowding`), by as much more."""
    ordered = sorted(recorder.pipelines, key=lambda pipeline: pipeline.start_ns)
    steady = [pipeline.end_ns - pipeline.start_ns for pipeline in ordered[1:]]
    least = _NOISE * max(crowding, 1.0) * recorder.traced_ns
    if len(steady) < _FEWEST:
        return least
    times = _students_t(len(steady) - 1)
    return max(least, times * statistics.stdev(steady) * math.sqrt(2 * len(ordered)))


def _students_t(freedom: int) -> float:
    """Within how many deviations, which are of so many degrees of freedom, at least 2, nineteen of
    twenty lie: a deviation of a few calls is often too small by itself."""
    return _STUDENTS_T[freedom - 2] if freedom < len(_STUDENTS_T) + 2 else 2.0 + 2.3 / freedom


def _bounds(measured: _Measured, estimate: _Estimate) -> tuple[float, float]:
    """The least and the most that recording operators may have cost."""
    low, high = measured.interval_ns or (measured.cost_ns, measured.cost_ns)
    return low + estimate.bounds[0], high + estimate.bounds[1]


def _method(estimate: _Estimate, costs: Mapping[str, CallCost]) -> CostMethod:
    if not estimate.events:
        return CostMethod.MEASURED
    return CostMethod.BOTH if costs else CostMethod.ESTIMATED


def _estimated(estimate: _Estimate) -> dict[str, Any]:
    """The fields of the manifest's `overhead` that come of estimates."""
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
    """What the share of tracing in a run is of."""
    if not recorder.outside_ns:
        return ShareOf.END_TO_END
    return ShareOf.BOTH if recorder.pipelines else ShareOf.CALLS


def _not_measured(
    sources: Sequence[tuple[str, SourceSummary]], costs: Mapping[str, CallCost]
) -> dict[str, _Events]:
    """By backend, the events whose cost no comparison of calls covers."""
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
    """How many, and the gaps between them."""

    count: int = 0
    gaps: Gaps = field(default_factory=Gaps)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """What `events` of `backends` cost by estimates; `unknown` says where there is none, and why.
    `spread` are quartiles of what one event costs, None if unknown, `bounds` what all
    may have cost at least and at most."""

    events: int
    cost_ns: float
    backends: tuple[str, ...]
    unknown: tuple[UnknownCost, ...]
    bounds: tuple[float, float]
    spread: tuple[float, float] | None = None
    noisy: bool = False


def _estimate(events: Mapping[str, _Events], total_ns: int) -> _Estimate:
    """`total_ns` is all that ran, 0 if unknown: tracing cannot have taken longer."""
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
    """What one recorded event costs, measured now, of events with such gaps between them; None
    if that is not known."""
    return backend_named(backend).event_cost(gaps)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measured submodules together; `interval_ns` adds up theirs, so it is no narrower than
    one of 95 %. None if nothing is measured."""

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
