"""What tracing operators cost a run: measured where it has calls of both kinds, else estimated.

Measured: the median duration of a submodule's traced calls less that of its untraced ones, with a
bootstrap interval. The first call of either kind stands apart, and calls are compared with calls
of the same input shapes alone.

Estimated: the profilers of ONNX Runtime and torch build a record of each executed operator. What
that takes is measured on a chain of small operators, run with and without profiling in turn; the
median difference per record times the events of a run estimates what tracing added to it. Where
that is not known either, no sum is stated.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.capture.operator_source import SourceSummary, TimedCall

__all__ = [
    "CallCost",
    "call_cost",
    "event_cost_ns",
    "measured_costs",
    "operator_event_ns",
    "tracing_cost",
]

_ESTIMATED = {
    "onnxruntime": "estimated: ONNX Runtime's cost per recorded node, measured on this machine on "
    "a chain of 200 elementwise nodes on all cores, with and without profiling in turn (median of "
    "pairs), times the operator events",
    "torch": "estimated: torch.profiler's cost per recorded event, with our hooks, measured on "
    "this machine on a chain of transformer blocks, with and without in turn (median of pairs, CPU "
    "time), times the operator events, those of host work included",
}
_MEASURED = (
    "measured: median duration of traced less untraced calls of the same submodule and input "
    "shapes, the first of either kind apart, times its traced calls; 95 % bootstrap intervals"
)
_UNKNOWN = {
    "rbln": "what tracing RBLN's runtimes cost was not measured: trace some of their calls only "
    "(calibrate), and the run measures it",
    "torch": "what recording torch's operators cost could not be measured: trace some calls only "
    "(calibrate), and the run measures it",
}
_UNKNOWN_BACKEND = "what recording operators cost was not measured"
_HOOKS = "hooks: time in the profiler's own code inside the run"
_RESAMPLES, _SEED = 2_000, 0
_FEWEST = 3  # calls of either kind below which no interval is given
_NODES, _PAIRS = 200, 11
_SHAPE = [256, 256]  # large enough that ONNX Runtime spreads a node over its threads


@dataclass(frozen=True, slots=True)
class CallCost:
    """What tracing cost a call of one submodule, from `traced` and `untraced` calls.

    `call_ns` is the difference of their median durations, `factor` the untraced median over the
    traced one, which turns operator times as traced into calibrated ones. Below 0 and above 1
    where noise exceeds the cost. The intervals, of 95 %, are None for fewer than three calls of
    either kind.
    """

    traced: int
    untraced: int
    traced_median_ns: float
    untraced_median_ns: float
    call_interval_ns: tuple[float, float] | None
    factor_interval: tuple[float, float] | None

    @property
    def call_ns(self) -> float:
        return self.traced_median_ns - self.untraced_median_ns

    @property
    def factor(self) -> float:
        return self.untraced_median_ns / self.traced_median_ns

    def calibration(self) -> dict[str, float]:
        """What the manifest says of the submodule."""
        interval = self.factor_interval
        bounds = {} if interval is None else {"low": interval[0], "high": interval[1]}
        return {key: round(value, 6) for key, value in {"factor": self.factor, **bounds}.items()}

    def as_dict(self, events: float) -> dict[str, Any]:
        """What the manifest's `overhead` says; `events` are the operator events of a call."""
        low, high = self.call_interval_ns or (None, None)
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

    Of several input shapes those are compared that most calls of the rarer kind have. None where
    either kind has its first call only.
    """
    steady = _without_first(calls)
    by_shapes: dict[tuple[tuple[str, str], ...], tuple[list[int], list[int]]] = {}
    for call in steady:
        shapes = tuple(sorted(call.input_shapes.items()))
        by_shapes.setdefault(shapes, ([], []))[call.traced].append(call.duration_ns)
    untraced, traced = max(
        by_shapes.values(), key=lambda kinds: min(map(len, kinds)), default=([], [])
    )
    if not untraced or not traced or np.median(traced) <= 0:
        return None
    intervals: tuple[Any, Any] = (None, None)
    if min(len(untraced), len(traced)) >= _FEWEST:
        generator = np.random.default_rng(_SEED)
        with_, without = _medians(traced, generator), _medians(untraced, generator)
        intervals = _interval(with_ - without), _interval(without / np.maximum(with_, 1))
    return CallCost(
        len(traced),
        len(untraced),
        float(np.median(traced)),
        float(np.median(untraced)),
        *intervals,
    )


def _without_first(calls: Iterable[TimedCall]) -> list[TimedCall]:
    """All but the first traced and the first untraced call: those pay for initialization."""
    seen: set[bool] = set()
    steady = []
    for call in calls:
        if call.traced in seen:
            steady.append(call)
        seen.add(call.traced)
    return steady


def _medians(durations_ns: list[int], generator: np.random.Generator) -> NDArray[np.float64]:
    """Medians of resamples with replacement, float64 [_RESAMPLES]."""
    values = np.array(durations_ns, dtype=np.float64)
    picked = generator.integers(len(values), size=(_RESAMPLES, len(values)))
    return np.asarray(np.median(values[picked], axis=1), dtype=np.float64)


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def measured_costs(sources: Iterable[tuple[str, SourceSummary]]) -> dict[str, CallCost]:
    """The cost of tracing by submodule, of those that have calls to compare."""
    calls: dict[str, list[TimedCall]] = {}
    for submodule, summary in sources:
        calls.setdefault(submodule, []).extend(summary.timed)
    costs = {submodule: call_cost(timed) for submodule, timed in calls.items()}
    return {submodule: cost for submodule, cost in costs.items() if cost is not None}


def tracing_cost(
    sources: Sequence[tuple[str, SourceSummary]],
    costs: Mapping[str, CallCost],
    hooks_ns: int,
    end_to_end_ns: int,
) -> dict[str, Any]:
    """The manifest's `overhead`, but `conversion_ns`: `costs` where measured, and estimates for
    all other events, those of host work included. Without `share` where some backend's cost is
    not known."""
    found: dict[str, Any] = {
        "hooks_ns": hooks_ns,
        "operator_events": sum(summary.events + summary.host_events for _, summary in sources),
    }
    methods = []
    measured = _of_the_run(sources, costs)
    if costs:
        found["measured"] = measured.by_submodule
        methods.append(_MEASURED)
    estimate = _estimate(_not_measured(sources, costs))
    if estimate.unknown:
        return {**found, "method": "; ".join([*methods, _HOOKS, *estimate.unknown])}
    cost_ns = measured.cost_ns + estimate.cost_ns
    if estimate.events or not costs:
        event_ns = estimate.cost_ns / estimate.events if estimate.events else 0.0
        found["estimated_events"] = estimate.events
        found["operator_event_ns"] = round(event_ns, 1)
        methods += estimate.methods
    found["operators_ns"] = round(cost_ns)
    if measured.interval_ns is not None and not estimate.events:
        low, high = measured.interval_ns
        found |= {"operators_low_ns": round(low), "operators_high_ns": round(high)}
    share = (hooks_ns + found["operators_ns"]) / end_to_end_ns if end_to_end_ns else 0.0
    return {**found, "share": share, "method": "; ".join([*methods, _HOOKS])}


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
    there is none."""

    events: int
    cost_ns: float
    methods: tuple[str, ...]
    unknown: tuple[str, ...]


def _estimate(events: Mapping[str, int]) -> _Estimate:
    cost_ns, methods, unknown = 0.0, [], []
    for backend, count in events.items():
        event_ns = event_cost_ns(backend)
        if event_ns is None:
            unknown.append(_UNKNOWN.get(backend, _UNKNOWN_BACKEND))
        else:
            cost_ns += count * event_ns
            methods.append(_ESTIMATED[backend])
    return _Estimate(sum(events.values()), cost_ns, tuple(methods), tuple(unknown))


def event_cost_ns(backend: str) -> float | None:
    """What one recorded event costs in ns, measured now; None where that is not known."""
    if backend == "onnxruntime":
        return operator_event_ns()
    if backend == "torch":
        from profiler.capture.torch_cost import torch_event_ns

        return torch_event_ns()
    return None


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measured submodules together; `interval_ns` adds up theirs, so it is no narrower than
    one of 95 %. None where one has none."""

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
        if cost.call_interval_ns is not None:
            bounds.append([bound * traced for bound in cost.call_interval_ns])
    if not bounds or len(bounds) < len(costs):
        return _Measured(by_submodule, cost_ns, None)
    low, high = map(sum, zip(*bounds, strict=True))
    return _Measured(by_submodule, cost_ns, (low, high))


def operator_event_ns() -> float:
    """Median cost of one recorded node of ONNX Runtime in ns, never below 0."""
    import onnxruntime

    model = _chain()
    feeds = {"x": np.zeros(_SHAPE, dtype=np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        sessions = []
        for profiled in (False, True):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            if profiled:
                options.enable_profiling = True
                options.profile_file_prefix = str(Path(folder) / "overhead")
            sessions.append(
                onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            )
        plain, traced = sessions
        _seconds(plain, feeds), _seconds(traced, feeds)  # the first runs allocate
        pairs = [_seconds(traced, feeds) - _seconds(plain, feeds) for _ in range(_PAIRS)]
        traced.end_profiling()
    return max(statistics.median(pairs) * 1e9 / _NODES, 0.0)


def _seconds(session: Any, feeds: dict[str, Any]) -> float:
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin


def _chain() -> bytes:
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Add", [f"y{i}" if i else "x", "c"], [f"y{i + 1}"], name=f"add_{i}")
        for i in range(_NODES)
    ]
    constant = helper.make_tensor(
        "c", TensorProto.FLOAT, _SHAPE, np.ones(_SHAPE, np.float32).ravel()
    )
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE)],
        [helper.make_tensor_value_info(f"y{_NODES}", TensorProto.FLOAT, _SHAPE)],
        [constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return bytes(model.SerializeToString())
