"""What tracing operators cost a run: measured where it has calls of both kinds, else estimated.

Measured: the median duration of a submodule's traced calls less that of its untraced ones, with a
bootstrap interval. The first call of either kind stands apart, and calls are compared with calls
of the same input shapes alone, at least three of either kind.

Estimated: the profilers of ONNX Runtime and torch build a record of each executed operator. What
that takes is measured on a chain of small operators, run with and without profiling in turn; the
median difference per record times the events of a run estimates what tracing added to it. Where
that is not known either, or says that tracing took longer than all that ran, no sum is stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler.capture.event_cost import EventCost
from profiler.capture.onnx_cost import onnx_event_cost
from profiler.capture.operator_source import SourceSummary, TimedCall
from profiler.resampling import Bootstrap

__all__ = [
    "CallCost",
    "call_cost",
    "event_cost",
    "measured_costs",
    "too_few",
    "tracing_cost",
]

_ESTIMATED = {
    "onnxruntime": "estimated: ONNX Runtime's cost per recorded node, measured on this machine on "
    "a chain of 200 elementwise nodes on all cores, with and without profiling in turn (median and "
    "quartiles of pairs), times the operator events",
    "torch": "estimated: torch.profiler's cost per recorded event, with our hooks, measured on "
    "this machine on a chain of transformer blocks, with and without in turn (median of pairs, CPU "
    "time), times the operator events, those of host work included",
}
_MEASURED = (
    "measured: median duration of traced less untraced calls of the same submodule and input "
    "shapes, the first of either kind apart, times its traced calls; 95 % bootstrap intervals"
)
_UNKNOWN = {
    "onnxruntime": "what recording ONNX Runtime's nodes cost could not be measured, the machine "
    "was too busy: trace some calls only (calibrate), and the run measures it",
    "rbln": "what tracing RBLN's runtimes cost was not measured: trace some of their calls only "
    "(calibrate), and the run measures it",
    "torch": "what recording torch's operators cost could not be measured: trace some calls only "
    "(calibrate), and the run measures it",
}
_UNKNOWN_BACKEND = "what recording operators cost was not measured"
_IMPLAUSIBLE = (
    "what recording operators cost is not known: the estimate, {} an event, is more than all that "
    "ran took, so the machine was too busy for it"
)
_HOOKS = "hooks: time in the profiler's own code, in pipeline calls and around all others"
_FEWEST = 3  # calls of either kind below which nothing is measured


@dataclass(frozen=True, slots=True)
class CallCost:
    """What tracing cost a call of one submodule, from `traced` and `untraced` calls.

    `call_ns` is the difference of their median durations, `factor` the untraced median over the
    traced one, which turns operator times as traced into calibrated ones. Below 0 and above 1
    where noise exceeds the cost. The intervals are of 95 %.
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

    def calibration(self) -> dict[str, float]:
        """What the manifest says of the submodule."""
        low, high = self.factor_interval
        found = {"factor": self.factor, "low": low, "high": high}
        return {key: round(value, 6) for key, value in found.items()}

    def as_dict(self, events: float) -> dict[str, Any]:
        """What the manifest's `overhead` says; `events` are the operator events of a call."""
        low, high = self.call_interval_ns
        found = {
            "traced_calls": self.traced,
            "untraced_calls": self.untraced,
            "traced_median_ns": self.traced_median_ns,
            "untraced_median_ns": self.untraced_median_ns,
            "call_ns": self.call_ns,
            "call_low_ns": low,
            "call_high_ns": high,
            "event_ns": self.call_ns / events if events else None,
        }
        return {key: round(value, 1) for key, value in found.items() if value is not None}


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
    """The cost of tracing by submodule, of those that have calls to compare."""
    costs = {submodule: call_cost(timed) for submodule, timed in _timed(sources).items()}
    return {submodule: cost for submodule, cost in costs.items() if cost is not None}


def too_few(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, dict[str, int]]:
    """By submodule, how many calls could be compared of those that have too few for it, though
    calls of both kinds ran."""
    found = {}
    for submodule, timed in _timed(sources).items():
        kinds = {call.traced for call in timed}
        untraced, traced = map(len, _comparable(timed))
        if len(kinds) == 2 and min(untraced, traced) < _FEWEST:
            found[submodule] = {"traced_calls": traced, "untraced_calls": untraced}
    return found


def _timed(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, list[TimedCall]]:
    calls: dict[str, list[TimedCall]] = {}
    for submodule, summary in sources:
        calls.setdefault(submodule, []).extend(summary.timed)
    return calls


def tracing_cost(
    sources: Sequence[tuple[str, SourceSummary]],
    costs: Mapping[str, CallCost],
    hooks_ns: int,
    end_to_end_ns: int,
    outside_ns: int = 0,
    waited_ns: int = 0,
) -> dict[str, Any]:
    """The manifest's `overhead`, but for writing: `costs` where measured, and estimates for all
    other events, those of host work included. Without `share` where some backend's cost is not
    known, or nothing ran.

    `end_to_end_ns` is the time of pipeline calls, `outside_ns` that in calls outside them; threads
    of the script waited `waited_ns` for files.
    """
    found: dict[str, Any] = {
        "hooks_ns": hooks_ns,
        "operator_events": sum(summary.events + summary.host_events for _, summary in sources),
    }
    if few := too_few(sources):
        found["too_few"] = few
    methods = []
    measured = _of_the_run(sources, costs)
    if costs:
        found["measured"] = measured.by_submodule
        methods.append(_MEASURED)
    total_ns = end_to_end_ns + outside_ns
    estimate = _estimate(_not_measured(sources, costs), total_ns)
    if estimate.unknown:
        return {**found, "method": "; ".join([*methods, _HOOKS, *estimate.unknown])}
    cost_ns = measured.cost_ns + estimate.cost_ns
    if estimate.events or not costs:
        event_ns = estimate.cost_ns / estimate.events if estimate.events else 0.0
        found["estimated_events"] = estimate.events
        found["operator_event_ns"] = round(event_ns, 1)
        if estimate.spread is not None:
            low, high = estimate.spread
            found |= {"operator_event_low_ns": round(low, 1)}
            found |= {"operator_event_high_ns": round(high, 1), "noisy": estimate.noisy}
        methods += estimate.methods
    found["operators_ns"] = round(cost_ns)
    if measured.interval_ns is not None and not estimate.events:
        low, high = measured.interval_ns
        found |= {"operators_low_ns": round(low), "operators_high_ns": round(high)}
    if total_ns:
        found["share"] = (hooks_ns + found["operators_ns"] + waited_ns) / total_ns
        found["share_of"] = _share_of(end_to_end_ns, outside_ns)
    return {**found, "method": "; ".join([*methods, _HOOKS])}


def _share_of(end_to_end_ns: int, outside_ns: int) -> str:
    if not outside_ns:
        return "end to end"
    return "end to end and other calls" if end_to_end_ns else "the time in calls"


def _not_measured(
    sources: Sequence[tuple[str, SourceSummary]], costs: Mapping[str, CallCost]
) -> dict[str, int]:
    """By backend, the events whose cost no comparison of calls covers."""
    events: dict[str, int] = {}
    for submodule, summary in sources:
        count = summary.host_events + (0 if submodule in costs else summary.events)
        if count:
            events[summary.backend] = events.get(summary.backend, 0) + count
    return events


@dataclass(frozen=True, slots=True)
class _Estimate:
    """What `events` cost by the estimates that `methods` name; `unknown` says of which backends
    there is none. `spread` are quartiles of what one event costs, None where nobody knows them."""

    events: int
    cost_ns: float
    methods: tuple[str, ...]
    unknown: tuple[str, ...]
    spread: tuple[float, float] | None = None
    noisy: bool = False


def _estimate(events: Mapping[str, int], total_ns: int) -> _Estimate:
    """`total_ns` is all that ran, 0 where nobody knows: tracing cannot have taken longer."""
    methods, unknown, known = [], [], []
    for backend, count in events.items():
        cost = event_cost(backend)
        if cost is None:
            unknown.append(_UNKNOWN.get(backend, _UNKNOWN_BACKEND))
        else:
            known.append((count, cost))
            methods.append(_ESTIMATED[backend])
    total, cost_ns = sum(events.values()), sum(count * cost.ns for count, cost in known)
    if total_ns and cost_ns > total_ns:
        unknown.append(_IMPLAUSIBLE.format(f"{cost_ns / total / 1_000:.1f} µs"))
    spread = None
    if len(known) == 1 and known[0][1].low_ns is not None and known[0][1].high_ns is not None:
        spread = known[0][1].low_ns, known[0][1].high_ns
    noisy = any(cost.noisy for _, cost in known)
    return _Estimate(total, cost_ns, tuple(methods), tuple(unknown), spread, noisy)


def event_cost(backend: str) -> EventCost | None:
    """What one recorded event costs, measured now; None where that is not known."""
    if backend == "onnxruntime":
        return onnx_event_cost()
    if backend == "torch":
        from profiler.capture.torch_cost import torch_event_ns

        event_ns = torch_event_ns()
        return None if event_ns is None else EventCost(event_ns)
    return None


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measured submodules together; `interval_ns` adds up theirs, so it is no narrower than
    one of 95 %. None where nothing is measured."""

    by_submodule: dict[str, dict[str, Any]]
    cost_ns: float
    interval_ns: tuple[float, float] | None


def _of_the_run(
    sources: Sequence[tuple[str, SourceSummary]], costs: Mapping[str, CallCost]
) -> _Measured:
    by_submodule, cost_ns, bounds = {}, 0.0, []
    for submodule, cost in costs.items():
        own = [summary for name, summary in sources if name == submodule]
        traced = sum(call.traced for summary in own for call in summary.timed)
        by_submodule[submodule] = cost.as_dict(sum(s.events for s in own) / traced)
        cost_ns += cost.call_ns * traced
        bounds.append([bound * traced for bound in cost.call_interval_ns])
    if not bounds:
        return _Measured(by_submodule, cost_ns, None)
    low, high = map(sum, zip(*bounds, strict=True))
    return _Measured(by_submodule, cost_ns, (low, high))
