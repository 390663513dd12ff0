"""What tracing its operators costs a call, from traced and untraced calls of one run.

The median duration of a submodule's traced calls less that of its untraced ones, with a bootstrap
interval. The first call of either kind stands apart, and calls are compared with calls of the same
input shapes alone, at least three of either kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from profiler.capture.operator_source import SourceSummary, TimedCall
from profiler.resampling import Bootstrap
from profiler.trace.manifest_fields import OverheadRatio
from profiler.trace.manifest_overhead import CallCounts, MeasuredCost

__all__ = ["CallCost", "call_cost", "measured_costs", "too_few"]

_MOST_FACTOR = 1e3  # untraced over traced time, or the inverse: beyond it nothing was measured
_FEWEST = 3  # calls of either kind below which nothing is measured


@dataclass(frozen=True, slots=True)
class CallCost:
    """What tracing cost a call of one submodule, from `traced` and `untraced` calls.

    `call_ns` is the difference of their median durations, `factor` the untraced median over the
    traced one, which turns operator times as traced into corrected ones. Below 0 and above 1
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
    """The cost of tracing by submodule, of those that have calls to compare."""
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
