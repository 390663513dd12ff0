"""The time of one request: the sum of its parts, with an interval.

The interval is that of one request to come, by a seeded bootstrap over what repeats. A request of m
steps beyond its first draws m of the n measured ones, with replacement. Draws from few values
scatter too little, and their mean, which the prediction goes by, is off itself: it is m of these
means. Deviations of the sum are widened by sqrt(n / (n - 1) (1 + m / n)) t(n - 1) / z, which makes
of their variance, m (n - 1) / n s^2, the one of a prediction interval, m (1 + m / n) s^2.

Of a single pipeline call what was measured once (its first step, and what lies in none) is taken to
scatter as its steps do, by the same share of itself in each submodule: without that, an interval of
few steps beside long encoders would hold the scatter of the smaller part alone.

Of p pipeline calls, two or more, each draw takes one, with its own steps. What lies between the
calls is widened by sqrt((p + 1) / (p - 1)), the same with one of p; what lies within, by
sqrt(k / (k - 1)) with k steps in each; both together by t / z with the degrees of freedom of their
sum (Satterthwaite 1946, Biometrics Bulletin 2(6), 110-114). That few calls are alike may be by
chance: of less than six the interval is at least that of the steps of all of them.

Equal runs differ by more than their pipeline calls do: what a machine does with clocks, caches and
other work changes in minutes, and no run shows it. Each draw therefore also multiplies what the
host's processors execute with one factor of `_BETWEEN_RUNS`, and what other devices do with one
of `LEAST_SPREAD`.

Where the time of a submodule was estimated within bounds each draw also multiplies it with a value
between them, from a triangular distribution that has its peak at the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from profiler.analysis.prediction.tasks import Task
from profiler.analysis.prediction.workload import HOST, Workload
from profiler.bootstrap import (
    LEAST_SPREAD,
    PREDICTED_CONFIDENCE,
    RESAMPLES,
    SEED,
    Resampled,
    ends,
    t_ratio,
)
from profiler.trace.events import device_kind

__all__ = ["RequestTime", "by_stage", "by_submodule", "mean_time", "moved", "request_time"]

_Reals = npt.NDArray[np.float64]
_FEW = 6  # pipeline calls; that fewer are alike may be by chance
_BETWEEN_RUNS = 0.02
"""Standard deviation of an equal run's time on a processor, relative, beyond what its pipeline
calls scatter by (docs/performance.md, "What intervals are worth")."""


@dataclass(frozen=True, slots=True)
class RequestTime:
    """A request's time in ns. `low` and `high` bound it with 90 % confidence, None where nothing
    was measured more than once and nothing was estimated within bounds. `resampled` names what was
    drawn from, None for nothing; `once_ns` is the part of the time that was measured once."""

    ns: float
    low: float | None
    high: float | None
    resampled: Resampled | None
    once_ns: float


def request_time(
    workload: Workload,
    spread: Mapping[str, tuple[float, float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> RequestTime:
    """The time of one request of `workload`; `spread` as in `changes.Changed`."""
    value = sum(mean_time(task, workload) for task in workload.tasks)
    names = list(dict.fromkeys(task.submodule for task in workload.tasks))
    bounds = [spread.get(name or "", (1.0, 1.0)) for name in names]
    generator = np.random.default_rng(seed)
    parts = [_Measured.of(workload, name) for name in names]
    later = max(workload.steps - 1, 0)
    of_calls = _calls_drawn(parts, later, generator, resamples)
    of_steps = None
    if len(workload.measured_ns) < _FEW:
        of_steps = _steps_drawn(parts, later, generator, resamples)
    resampled = None
    if of_calls is not None:
        resampled = Resampled.PIPELINE_CALLS
    elif of_steps is not None:
        resampled = Resampled.STEPS
    once = _once(workload, resampled)
    drawn = [found for found in (of_calls, of_steps) if found is not None]
    if not drawn and all(low >= high for low, high in bounds):
        return RequestTime(value, None, None, None, once)
    deviations = max(drawn, key=_width, default=np.zeros((len(names), resamples)))
    total = _between_runs(workload, generator, resamples) if drawn else np.zeros(resamples)
    for part, deviation, between in zip(parts, deviations, bounds, strict=True):
        total += (part.mean(later) + deviation) * _factors(between, generator, resamples)
    least, most = (max(end, 0.0) for end in ends(total, PREDICTED_CONFIDENCE))
    return RequestTime(value, min(least, value), max(most, value), resampled, once)


def _between_runs(workload: Workload, generator: np.random.Generator, resamples: int) -> _Reals:
    """How far a run to come is from this one, by what neither shows; float64 [resamples]."""
    on_host = sum(
        mean_time(task, workload)
        for task in workload.tasks
        if not task.device or device_kind(task.device) == "cpu"
    )
    elsewhere = sum(mean_time(task, workload) for task in workload.tasks) - on_host
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
    """The mean time of each stage in ns, in order; "" for what lies in none."""
    return _sums(workload, [task.stage for task in workload.tasks])


def by_submodule(workload: Workload) -> dict[str, float]:
    """The mean time of each submodule's calls in ns, and of the host."""
    return _sums(workload, [task.submodule or HOST for task in workload.tasks])


def _sums(workload: Workload, names: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, task in zip(names, workload.tasks, strict=True):
        found[name] = found.get(name, 0.0) + mean_time(task, workload)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """The time of a submodule in p pipeline calls: `once`, float64 [p], in the first step and in no
    step, `steady`, float64 [p, k], in each later step."""

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
        """Its time with `later` steps, each the mean of its call's [p]."""
        if not self.steady.size:
            return self.once
        means: _Reals = self.once + later * self.steady.mean(axis=1)
        return means


def _steps_drawn(
    parts: Sequence[_Measured], later: int, generator: np.random.Generator, resamples: int
) -> _Reals | None:
    """How far `later` steps, drawn from those of all calls, are from as many means, widened:
    float64 [parts, resamples]. None where nothing is drawn, or from one step."""
    count = parts[0].steady.size
    if not later or count < 2:
        return None
    counts = generator.multinomial(later, np.full(count, 1 / count), size=resamples)
    drawn = np.array([counts @ (part.steady - part.steady.mean()).ravel() for part in parts])
    widened: _Reals = drawn * math.sqrt(count / (count - 1) * (1 + later / count))
    if len(parts[0].once) == 1:
        widened = widened + _once_drawn(parts, generator, resamples)
    return widened * t_ratio(count, PREDICTED_CONFIDENCE)


def _once_drawn(
    parts: Sequence[_Measured], generator: np.random.Generator, resamples: int
) -> _Reals:
    """How far what was measured once would be off, did it scatter as the steps of the one pipeline
    call do; float64 [parts, resamples]."""
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
    """How far a pipeline call with its own steps is from the mean, widened: float64
    [parts, resamples]. None where there is one."""
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
    """The degrees of freedom of a sum of independent variances, each with its own."""
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
    """A factor for each draw."""
    low, high = between
    if low >= high:
        return 1.0
    return generator.triangular(low, min(max(1.0, low), high), high, resamples)


def _width(deviations: _Reals) -> float:
    low, high = ends(deviations.sum(axis=0), PREDICTED_CONFIDENCE)
    return high - low


def _once(workload: Workload, resampled: Resampled | None) -> float:
    """The mean time of what was measured in one pipeline call, and there once."""
    if len(workload.measured_ns) > 1:
        return 0.0
    total = sum(mean_time(task, workload) for task in workload.tasks)
    if resampled == Resampled.STEPS:
        return total - (workload.steps - 1) * sum(
            float(task.steady_ns.mean()) for task in workload.step if task.steady_ns.size
        )
    return total
