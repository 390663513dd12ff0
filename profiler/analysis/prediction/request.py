"""The time of one request: the sum of its parts, with an interval.

The interval is that of a single request, by a seeded bootstrap over what repeats: each draw takes
one of the measured pipeline calls, its first step, and as many of its later steps as are needed,
with replacement. With fewer than three pipeline calls steps are drawn from all of them together.
Draws of few values scatter too little: deviations are widened by sqrt(1 + 1/n) t(n - 1) / z, with
n the number of what was drawn from (Hesterberg 2015, Am. Stat. 69(4), 371-386). Where the
time of a submodule was estimated within bounds each draw also multiplies it with a value between
them, from a triangular distribution that has its peak at the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.analysis.comparison.noise import CONFIDENCE, RESAMPLES, SEED, student
from profiler.analysis.prediction.workload import HOST, Task, Workload

__all__ = ["RequestTime", "by_stage", "by_submodule", "mean_time", "request_time"]

_Reals = npt.NDArray[np.float64]
_FEW = 3  # pipeline calls; the steps of fewer tell more than they do
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class RequestTime:
    """A request's time in ns. `low` and `high` bound it with 95 % confidence, None where nothing
    was measured more than once. `resampled` names what repeats, "" for nothing; `once_ns` is the
    part of the time that was measured once and is taken as it was."""

    ns: float
    low: float | None
    high: float | None
    resampled: str
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
    draws = _Draws(workload, np.random.default_rng(seed), resamples)
    once = draws.once()
    if not draws.units:
        return RequestTime(value, None, None, "", once)
    total = np.zeros(resamples)
    for submodule in dict.fromkeys(task.submodule for task in workload.tasks):
        tasks = [task for task in workload.tasks if task.submodule == submodule]
        center = sum(mean_time(task, workload) for task in tasks)
        drawn = center + (draws.of(tasks) - center) * draws.widening
        low, high = spread.get(submodule or "", (1.0, 1.0))
        total += np.maximum(drawn, 0.0) * draws.between(low, high)
    ends = np.quantile(total, (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    least, most = (float(end) for end in ends)
    return RequestTime(value, min(least, value), max(most, value), draws.resampled, once)


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


class _Draws:
    """Which pipeline call and which of its steps each draw has: the same for all tasks."""

    def __init__(self, workload: Workload, generator: np.random.Generator, resamples: int) -> None:
        self._workload = workload
        self._generator = generator
        self._resamples = resamples
        self._in_steps = {id(task) for task in workload.step}
        self._calls = len(workload.measured_ns)
        self._pooled = self._calls < _FEW
        steady = max((task.steady_ns.shape[1] for task in workload.step), default=0)
        self._later = max(workload.steps - 1, 0)
        self._call = generator.integers(self._calls, size=resamples)
        choices = steady * self._calls if self._pooled else steady
        self._counts = np.zeros((resamples, choices))
        if choices and self._later:
            shares = np.full(choices, 1 / choices)
            self._counts = generator.multinomial(self._later, shares, size=resamples).astype(float)
        drawn = choices if self._later else 0
        of_steps = self._pooled and drawn > 1
        self.units = drawn if of_steps else self._calls if self._calls > 1 else 0
        self.resampled = "" if not self.units else "steps" if of_steps else "pipeline calls"

    @property
    def widening(self) -> float:
        """By how much draws from so few values scatter too little."""
        return math.sqrt(1 + 1 / self.units) * student(self.units) / _Z

    def of(self, tasks: Sequence[Task]) -> _Reals:
        """The time of `tasks` together in each draw, float64 [resamples]."""
        total = np.zeros(self._resamples)
        for task in tasks:
            if id(task) not in self._in_steps:
                total += task.steady_ns[:, 0][self._call]
                continue
            if task.first_ns.size:
                total += task.first_ns[self._call]
            if not self._later or not task.steady_ns.size:
                continue
            if self._pooled:
                total += self._counts @ task.steady_ns.ravel()
            else:
                total += (self._counts * task.steady_ns[self._call]).sum(axis=1)
        return total

    def between(self, low: float, high: float) -> _Reals | float:
        """A factor for each draw."""
        if low >= high:
            return 1.0
        return self._generator.triangular(low, min(max(1.0, low), high), high, self._resamples)

    def once(self) -> float:
        """The mean time of what was measured in one pipeline call, and there once."""
        if self._calls > 1:
            return 0.0
        steps = self.resampled == "steps"
        total = 0.0
        for task in self._workload.tasks:
            if id(task) in self._in_steps and steps:
                total += float(task.first_ns.sum())
            else:
                total += mean_time(task, self._workload)
        return total
