"""Workloads as scenarios change them: guidance, submodules, types, steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler.analysis.denoise.half_batch import BATCHED, half_batch
from profiler.analysis.prediction.codes import Assumption, Unknown
from profiler.analysis.prediction.pieces import APPLY_GUIDANCE, TOKENIZER
from profiler.analysis.prediction.precision import at_precision, main_type, precision
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.workload import Task, Workload
from profiler.analysis.result import Analysis
from profiler.analysis.roofline.call_costs import Ratio, call_costs
from profiler.errors import InputError
from profiler.notes import Note
from profiler.table.run import Run

__all__ = ["Changed", "changed", "scaled", "without"]

_OWN_CALLS = ("uncond", "negative_prompt", "skip_layers")
_WELL_KNOWN = 0.9  # of the time: less is said


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """A workload, and what its times rest on.

    `spread` has, by submodule, the bounds of its time relative to the workload's where that was
    estimated. `assumes` (`Assumption`) and `unknown` (`Unknown`) are notes.
    """

    workload: Workload
    spread: Mapping[str, tuple[float, float]]
    assumes: tuple[Note, ...] = ()
    unknown: tuple[Note, ...] = ()


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
    assumed = Note.of(Assumption.WITHOUT_SUBMODULES, submodules=tuple(names))
    return replace(
        found,
        workload=without(found.workload, lambda task: task.submodule in leaves),
        assumes=(*found.assumes, assumed),
    )


def _unguided(found: Changed, run: Run, analysis: Analysis) -> Changed:
    workload = without(found.workload, lambda task: task.branch in _OWN_CALLS)
    workload = workload.mapped(lambda tasks: tuple(t for t in tasks if t.name != APPLY_GUIDANCE))
    assumes = [Note.of(Assumption.WITHOUT_GUIDANCE)]
    unknown: list[Note] = []
    spread = dict(found.spread)
    for name in dict.fromkeys(t.submodule for t in workload.step if t.branch == BATCHED):
        if name is None:
            continue
        half = half_batch(
            run.calls,
            analysis.calls,
            analysis.kinds.table,
            analysis.device_profiles,
            name,
            workload.overhead_ratio.get(name, 1.0),
        )
        if half.measured:
            share = half.wall.value
            assumes.append(Note.of(Assumption.HALF_BATCH_MEASURED, submodule=name, share=share))
        elif half.from_operators:
            assumes.append(_estimated(Assumption.HALF_BATCH_ESTIMATED, name, half.wall))
            unknown += _unknown_work(name, half.wall)
        else:
            unknown.append(Note.of(Unknown.HALF_BATCH_GUESSED, submodule=name))
        workload = scaled(workload, {name: half.wall.value}, BATCHED)
        _widen(spread, name, half.wall.spread)
    return Changed(
        workload=_renamed(workload),
        spread=spread,
        assumes=(*found.assumes, *assumes),
        unknown=(*found.unknown, *unknown),
    )


def _renamed(workload: Workload) -> Workload:
    """Calls that were batched are of the prompt alone."""

    def of(task: Task) -> Task:
        if task.branch != BATCHED:
            return task
        return replace(task, branch="cond", name=f"{task.submodule}.cond")

    return workload.mapped(lambda tasks: tuple(map(of, tasks)))


def _at_precision(found: Changed, dtype: str, analysis: Analysis) -> Changed:
    workload, spread = found.workload, dict(found.spread)
    assumes, unknown = list(found.assumes), list(found.unknown)
    placed = {task.submodule: task.device for task in workload.tasks if task.submodule is not None}
    ratios: dict[str, Ratio] = {}
    for name, device in placed.items():
        costs = call_costs(analysis.calls, analysis.kinds.table, analysis.device_profiles, name)
        if costs is not None and main_type(costs) is not None:
            overhead_ratio = workload.overhead_ratio.get(name, 1.0)
            ratios[name] = at_precision(costs, device, dtype, overhead_ratio)
    if not ratios:
        raise InputError(
            "the trace does not tell the types of its operators, so --precision cannot be "
            "answered: record the run with --ops all"
        )
    _check_known(workload, {*ratios}, dtype)
    for name, device in placed.items():
        ratio = ratios.get(name)
        if ratio is None:
            unknown.append(Note.of(Unknown.PRECISION_OF, submodule=name, dtype=dtype))
            _widen(spread, name, (min(known.low for known in ratios.values()), 1.0))
            continue
        if ratio == Ratio(1.0, 1.0, 1.0):
            assumes.append(Note.of(Assumption.SAME_PRECISION, submodule=name, dtype=dtype))
            continue
        by_rates = Assumption.PRECISION_BY_RATES
        assumes.append(_estimated(by_rates, name, ratio, dtype=dtype, device=device))
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
        some = tuple(
            Note.of(Assumption.STEPS_OF, submodule=name, steps=count)
            for name, count in sorted(found.workload.steps_of.items())
        )
        steps_now = found.workload.steps
        assumes.append(Note.of(Assumption.SHARE_OF_STEPS, steps=steps_now, submodules=some))
    return replace(found, workload=replace(found.workload, steps=steps), assumes=tuple(assumes))


def _unknown_work(name: str, ratio: Ratio) -> list[Note]:
    if ratio.known >= _WELL_KNOWN:
        return []
    return [Note.of(Unknown.WORK_OF_OPERATORS, submodule=name, share=1 - ratio.known)]


def _estimated(code: Assumption, name: str, ratio: Ratio, **more: str) -> Note:
    """A share of the submodule's time, with the bounds of its estimate."""
    bounds = {"share": ratio.value, "low_share": ratio.low, "high_share": ratio.high}
    return Note.of(code, submodule=name, **bounds, **more)


def _widen(spread: dict[str, tuple[float, float]], name: str, by: tuple[float, float]) -> None:
    low, high = spread.get(name, (1.0, 1.0))
    spread[name] = (low * by[0], high * by[1])
