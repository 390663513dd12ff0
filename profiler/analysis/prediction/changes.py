"""Workloads as scenarios change them: guidance, submodules, types, steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler.analysis.denoise.batch import BATCHED
from profiler.analysis.prediction.codes import Assumption
from profiler.analysis.prediction.estimates import (
    Estimates,
    half_batch_estimates,
    multiplied,
    share_of_steps,
    work_estimates,
)
from profiler.analysis.prediction.leaving import OWN_CALLS, staying
from profiler.analysis.prediction.pieces import APPLY_GUIDANCE
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.tasks import Task
from profiler.analysis.prediction.workload import Workload
from profiler.analysis.result import Analysis
from profiler.run.run import Run
from profiler.text import Note

__all__ = ["Changed", "DeviceSpan", "changed", "scaled", "without"]


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """From the first begin of device work to the last end, in ns, the mean of pipeline calls: as
    `recorded`, as the unchanged run is `replayed`, and `ns` in the scenario."""

    recorded_ns: float
    replayed_ns: float
    ns: float


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """A workload, and what its times rest on.

    `spread` has, by submodule, the bounds of its time relative to the workload's where that was
    estimated. `assumes` (`Assumption`) and `unknown` (`Unknown`) are notes.

    Where launches were replayed, `device` has the device's span, `reasons` (`Reason`) say why the
    request takes what it takes, and `scatter` is the workload whose steps tell how much it
    scatters, None: `workload` itself.
    """

    workload: Workload
    spread: Mapping[str, tuple[float, float]]
    assumes: tuple[Note, ...] = ()
    unknown: tuple[Note, ...] = ()
    scatter: Workload | None = None
    device: DeviceSpan | None = None
    reasons: tuple[Note, ...] = ()


def changed(workload: Workload, scenario: Scenario, run: Run, analysis: Analysis) -> Changed:
    """`workload` of `run` as `scenario` has it, but for where submodules are placed.

    `analysis` is of the whole run. Raises InputError where the run cannot answer it.
    """
    found = Changed(workload, {})
    if scenario.drop:
        found = _dropped(found, scenario.drop)
    some: list[Estimates] = []
    if not scenario.guidance:
        found = _unguided(found)
        some.append(half_batch_estimates(found.workload, run, analysis))
        found = _renamed(_estimated(found, some[0]))
    for estimates in work_estimates(found.workload, scenario, run, analysis):
        found = _estimated(found, estimates)
        some.append(estimates)
    found = replace(found, assumes=(*found.assumes, *multiplied(some)))
    if scenario.steps is not None:
        found = _with_steps(found, scenario.steps)
    return found


def without(workload: Workload, leaves: Callable[[Task], bool]) -> Workload:
    """`workload` without the calls that leave, and without the host's time that led to them."""
    return workload.mapped(
        lambda tasks: staying(tasks, leaves, lambda host, call: host.of == call.name)
    )


def scaled(workload: Workload, factors: Mapping[str, float], branch: str | None = None) -> Workload:
    """`workload` with the times of submodules multiplied, of one branch alone where it is given."""

    def of(task: Task) -> Task:
        factor = factors.get(task.submodule or "", 1.0)
        if factor == 1.0 or (branch is not None and task.branch != branch):
            return task
        times = (np.rint(ns * factor).astype(np.int64) for ns in (task.first_ns, task.steady_ns))
        first, steady = times
        return replace(task, first_ns=first, steady_ns=steady)

    return workload.mapped(lambda tasks: tuple(map(of, tasks)))


def _dropped(found: Changed, names: Sequence[str]) -> Changed:
    leaves = {*names}
    assumed = Note.of(Assumption.WITHOUT_SUBMODULES, submodules=tuple(names))
    return replace(
        found,
        workload=without(found.workload, lambda task: task.submodule in leaves),
        assumes=(*found.assumes, assumed),
    )


def _unguided(found: Changed) -> Changed:
    workload = without(found.workload, lambda task: task.branch in OWN_CALLS)
    workload = workload.mapped(lambda tasks: tuple(t for t in tasks if t.name != APPLY_GUIDANCE))
    assumed = Note.of(Assumption.WITHOUT_GUIDANCE)
    return replace(found, workload=workload, assumes=(*found.assumes, assumed))


def _renamed(found: Changed) -> Changed:
    """Calls that were batched are of the prompt alone."""

    def of(task: Task) -> Task:
        if task.branch != BATCHED:
            return task
        return replace(task, branch="cond", name=f"{task.submodule}.cond")

    workload = found.workload.mapped(lambda tasks: tuple(map(of, tasks)))
    return replace(found, workload=workload)


def _estimated(found: Changed, estimates: Estimates) -> Changed:
    """With the times of submodules as they were estimated."""
    ratios, spread = estimates.ratios, dict(found.spread)
    for name, ratio in ratios.items():
        _widen(spread, name, ratio.spread)
    factors = {name: ratio.value for name, ratio in ratios.items()}
    return Changed(
        workload=scaled(found.workload, factors, estimates.branch),
        spread=spread,
        assumes=(*found.assumes, *estimates.assumes),
        unknown=(*found.unknown, *estimates.unknown),
    )


def _with_steps(found: Changed, steps: int) -> Changed:
    return replace(
        found,
        workload=replace(found.workload, steps=steps),
        assumes=(*found.assumes, *share_of_steps(found.workload)),
    )


def _widen(spread: dict[str, tuple[float, float]], name: str, by: tuple[float, float]) -> None:
    low, high = spread.get(name, (1.0, 1.0))
    spread[name] = (low * by[0], high * by[1])
