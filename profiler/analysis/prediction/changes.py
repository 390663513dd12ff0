"""Workloads as scenarios change them: guidance, submodules, types, steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler.analysis.prediction.batch import half_batch
from profiler.analysis.prediction.call_costs import Ratio, call_costs
from profiler.analysis.prediction.pieces import APPLY_GUIDANCE, TOKENIZER
from profiler.analysis.prediction.precision import at_precision, main_type, precision
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.workload import Task, Workload
from profiler.analysis.result import Analysis
from profiler.errors import InputError
from profiler.table.run import Run

__all__ = ["Changed", "changed", "scaled", "without"]

_OWN_CALLS = ("uncond", "negative_prompt", "skip_layers")
_WELL_KNOWN = 0.9  # of the time: less is said


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """A workload, and what its times rest on.

    `spread` has, by submodule, the bounds of its time relative to the workload's where that was
    estimated. `assumes` and `unknown` are sentences.
    """

    workload: Workload
    spread: Mapping[str, tuple[float, float]]
    assumes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def changed(workload: Workload, scenario: Scenario, run: Run, analysis: Analysis) -> Changed:
    """`workload` of `run` as `scenario` has it, but for where submodules are placed.

    `analysis` is of the whole run. Raises InputError where the run cannot answer it.
    """
    found = Changed(workload, {})
    if scenario.drop:
        found = _dropped(found, scenario.drop)
    if not scenario.guidance:
        found = _unguided(found, run, analysis)
    if scenario.precision is not None:
        found = _at_precision(found, precision(scenario.precision), analysis)
    if scenario.steps is not None:
        found = _with_steps(found, scenario.steps)
    return found


def without(workload: Workload, leaves: Callable[[Task], bool]) -> Workload:
    """`workload` without the calls that leave, and without the host's time that led to them.

    Where a phase begins the host prepares more than its first call: then only what is known to be
    that call's own (its tokenizer) leaves with it.
    """

    def kept(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        gone = {id(task) for task in tasks if task.submodule is not None and leaves(task)}
        staying: list[Task] = []
        waiting: list[Task] = []  # the host's, since the last call
        begun = False
        for task in tasks:
            if task.submodule is None:
                waiting.append(task)
                continue
            if id(task) in gone:
                own = [t for t in waiting if begun or t.name.startswith(TOKENIZER)]
                waiting = [t for t in waiting if t.of != task.name or t not in own]
            else:
                staying += [*waiting, task]
                waiting = []
            begun = True
        return (*staying, *waiting)

    return workload.mapped(kept)


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
    assumed = (
        f"without {', '.join(names)} its calls and the host's time before each of them are left "
        "out; nothing stands in for what they made"
    )
    return replace(
        found,
        workload=without(found.workload, lambda task: task.submodule in leaves),
        assumes=(*found.assumes, assumed),
    )


def _unguided(found: Changed, run: Run, analysis: Analysis) -> Changed:
    workload = without(found.workload, lambda task: task.branch in _OWN_CALLS)
    workload = workload.mapped(lambda tasks: tuple(t for t in tasks if t.name != APPLY_GUIDANCE))
    assumes = ["without guidance no negative prompt is encoded and no uncond call is made"]
    unknown: list[str] = []
    spread = dict(found.spread)
    for name in dict.fromkeys(t.submodule for t in workload.step if t.branch == "batched"):
        if name is None:
            continue
        calibration = workload.calibration.get(name, 1.0)
        half = half_batch(run, analysis, name, calibration)
        ratio = half.ratio or Ratio(0.5, 0.5, 1.0, known=0.0)
        share = f"{_percent(ratio.value)} of a batched call"
        if half.measured:
            assumes.append(f"{name} takes {share}, as measured in its cond calls")
        elif half.ratio is None:
            unknown.append(
                f"what half a batch takes of {name}: none of its calls was traced with operators; "
                "half is taken, and all of it as the upper bound"
            )
        else:
            assumes.append(
                f"{name} takes {_bounded(ratio)} of a batched call, by halving the batch of each "
                "operator"
            )
            unknown += _unknown_work(name, ratio)
        workload = scaled(workload, {name: ratio.value}, "batched")
        _widen(spread, name, ratio.spread)
    return Changed(
        workload=_renamed(workload),
        spread=spread,
        assumes=(*found.assumes, *assumes),
        unknown=(*found.unknown, *unknown),
    )


def _renamed(workload: Workload) -> Workload:
    """Calls that were batched are of the prompt alone."""

    def of(task: Task) -> Task:
        if task.branch != "batched":
            return task
        return replace(task, branch="cond", name=f"{task.submodule}.cond")

    return workload.mapped(lambda tasks: tuple(map(of, tasks)))


def _at_precision(found: Changed, dtype: str, analysis: Analysis) -> Changed:
    workload, spread = found.workload, dict(found.spread)
    assumes, unknown = list(found.assumes), list(found.unknown)
    placed = {task.submodule: task.device for task in workload.tasks if task.submodule is not None}
    ratios: dict[str, Ratio] = {}
    for name, device in placed.items():
        costs = call_costs(analysis, name)
        if costs is not None and main_type(costs) is not None:
            calibration = workload.calibration.get(name, 1.0)
            ratios[name] = at_precision(costs, device, dtype, calibration)
    if not ratios:
        raise InputError(
            "the trace does not tell the types of its operators, so --precision cannot be "
            "answered: record the run with --ops all"
        )
    _check_known(workload, {*ratios}, dtype)
    for name, device in placed.items():
        ratio = ratios.get(name)
        if ratio is None:
            unknown.append(
                f"what {dtype} does to {name}: the types of its operators are not in the trace; it "
                "is taken to stay as it is"
            )
            _widen(spread, name, (min(known.low for known in ratios.values()), 1.0))
            continue
        if ratio == Ratio(1.0, 1.0, 1.0):
            assumes.append(f"{name} computes in {dtype} already")
            continue
        assumes.append(
            f"{name} takes {_bounded(ratio)} of its time at {dtype}, by the rates of {device}; "
            "kernels of that type may reach less"
        )
        unknown += _unknown_work(name, ratio)
        _widen(spread, name, ratio.spread)
    workload = scaled(workload, {name: ratio.value for name, ratio in ratios.items()})
    return Changed(workload, spread, tuple(assumes), tuple(unknown))


def _check_known(workload: Workload, known: Collection[str], dtype: str) -> None:
    """Raise InputError where the types of less than half of the calls' time are known."""
    times = dict.fromkeys(workload.submodules, 0.0)
    for task in workload.tasks:
        if task.submodule is not None:
            times[task.submodule] += float(task.total_ns.sum())
    longest = max(times, key=lambda name: times[name])
    if 2 * sum(time for name, time in times.items() if name in known) < sum(times.values()):
        raise InputError(
            f"the trace does not tell the types of the operators of {longest}, so what {dtype} "
            "does cannot be predicted: record the run with shapes"
        )


def _with_steps(found: Changed, steps: int) -> Changed:
    assumes = list(found.assumes)
    if found.workload.steps_of:
        some = ", ".join(
            f"{name} in {count:g}" for name, count in sorted(found.workload.steps_of.items())
        )
        assumes.append(
            f"some calls do not happen in all of {found.workload.steps} steps ({some}): of fewer "
            "or more steps the same share has them"
        )
    return replace(found, workload=replace(found.workload, steps=steps), assumes=tuple(assumes))


def _unknown_work(name: str, ratio: Ratio) -> list[str]:
    if ratio.known >= _WELL_KNOWN:
        return []
    return [f"the work of {_percent(1 - ratio.known)} of the operators' time of {name}"]


def _bounded(ratio: Ratio) -> str:
    return f"{_percent(ratio.value)} ({_percent(ratio.low)} to {_percent(ratio.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _widen(spread: dict[str, tuple[float, float]], name: str, by: tuple[float, float]) -> None:
    low, high = spread.get(name, (1.0, 1.0))
    spread[name] = (low * by[0], high * by[1])
