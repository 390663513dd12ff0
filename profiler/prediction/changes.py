"""Predicted workloads: no guidance, another batch, type or step count, or findings followed.

On a device with a launch queue (`on_device`), estimates are device time, and a replay gives the
gain. On other devices they are the time of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import isclose, prod
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.flops import Ratio, call_costs
from profiler.analysis.gains import Gains
from profiler.analysis.guidance import BATCHED, HalfBatch, half_of, times_batch
from profiler.analysis.result import Analysis, Effect, Finding
from profiler.errors import InputError
from profiler.prediction.pieces import APPLY_GUIDANCE, TOKENIZER, Piece, PipelinePieces
from profiler.prediction.scenario import (
    PRECISIONS,
    Assumption,
    ImageSize,
    Scenario,
    Unknown,
    at_precision,
    main_type,
    precision,
    recorded_size,
    resized,
)
from profiler.prediction.workload import Task, Workload
from profiler.run.run import Run
from profiler.text import Note, Value

# --- Estimate the time of submodules with another batch, size or type, relative to recorded time.
#
# On a device with a launch queue (`on_device`) this is device time, and a replay says how much of
# the saving shortens the run. On other devices it is the time of calls.


_WELL_KNOWN = 0.9  # of the time: below, a note says so


class Estimates(Struct, frozen=True):
    """New time over old time by submodule (only calls of `branch`, if given), and notes on what the
    estimates rest on."""

    ratios: dict[str, Ratio] = field(default_factory=dict)
    assumes: list[Note] = field(default_factory=list)
    unknown: list[Note] = field(default_factory=list)
    branch: str | None = None


class Following(Struct, frozen=True):
    """The effect of following findings: calls that are removed, and the remaining share of
    submodules' work (`work`) and of the host time in them (`host`); `fused` are submodules whose
    launches a compiler takes over."""

    effects: tuple[Effect, ...] = ()
    work: tuple[Estimates, ...] = ()
    host: Mapping[str, float] = field(default_factory=dict)
    fused: frozenset[str] = frozenset()
    assumes: tuple[Note, ...] = ()

    def leaves(self, submodule: str | None, branch: str) -> bool:
        """Whether following removes the calls of this submodule and branch."""
        return any(
            submodule in one.submodules and branch == one.without_branch for one in self.effects
        )


def half_batch_estimates(
    workload: Workload, analysis: Analysis, on_device: Collection[str] = ()
) -> Estimates:
    """Estimate the batched calls of the steps if they had the prompt alone (half the batch)."""
    found = Estimates(branch=BATCHED)
    for name in dict.fromkeys(t.submodule for t in workload.step if t.branch == BATCHED):
        if name is None:
            continue
        half = half_of(analysis.inputs, name, workload.overhead_ratio.get(name, 1.0))
        ratio = found.ratios[name] = half.busy if name in on_device else half.wall
        if half.measured or half.from_operators:
            found.assumes.append(_half(half, name, ratio, queued=name in on_device))
        else:
            found.unknown.append(Note.of(Unknown.HALF_BATCH_GUESSED, submodule=name))
        if half.from_operators and not half.measured:
            found.unknown.extend(_unknown_work(name, ratio))
    return found


def _half(half: HalfBatch, name: str, ratio: Ratio, *, queued: bool) -> Note:
    if queued:
        return _estimate_note(Assumption.HALF_BATCH_ON_DEVICE, name, ratio)
    if half.measured:
        return Note.of(Assumption.HALF_BATCH_MEASURED, submodule=name, share=ratio.value)
    return _estimate_note(Assumption.HALF_BATCH_ESTIMATED, name, ratio)


def work_estimates(
    workload: Workload, scenario: Scenario, analysis: Analysis, on_device: Collection[str] = ()
) -> Iterator[Estimates]:
    """Yield the estimates of everything that changes the work of calls: batch, size, precision.
    Raises InputError if one is not known."""
    if scenario.batch is not None:
        yield _batch_estimates(workload, scenario.batch, analysis, on_device)
    if scenario.size is not None:
        yield _size_estimates(workload, scenario.size, analysis, on_device)
    if scenario.precision is not None:
        yield _precision_estimates(workload, precision(scenario.precision), analysis, on_device)


def _batch_estimates(
    workload: Workload, factor: int, analysis: Analysis, on_device: Collection[str]
) -> Estimates:
    """Estimate submodules in and after the steps with `factor` times the batch; prompts are
    encoded as before. Without traced operators they take `factor` times as long, the lower bound
    being 1."""
    found = Estimates()
    for name in dict.fromkeys(t.submodule for t in (*workload.step, *workload.decode)):
        if name is None:
            continue
        costs = call_costs(analysis.calls, analysis.kinds.table, analysis.device_profiles, name)
        if costs is None:
            found.ratios[name] = Ratio(float(factor), 1.0, float(factor), known=0.0)
            found.unknown.append(Note.of(Unknown.BATCH_GUESSED, submodule=name))
            continue
        wall, busy = times_batch(costs, factor, workload.overhead_ratio.get(name, 1.0))
        ratio = found.ratios[name] = busy if name in on_device else wall
        found.assumes.append(_estimate_note(Assumption.TIMES_BATCH, name, ratio))
        found.unknown.extend(_unknown_work(name, ratio))
    return found


def _size_estimates(
    workload: Workload, size: ImageSize, analysis: Analysis, on_device: Collection[str]
) -> Estimates:
    """Estimate submodules in and after the steps, and VAEs, with images of `size`; prompts are
    encoded as before. Without shapes of operators, time is proportional to the pixels, at most to
    their square."""
    decoders = dict.fromkeys(t.submodule for t in workload.decode if t.submodule)
    others = [t.submodule for t in workload.step if t.submodule]
    others += [name for name in workload.submodules if name.startswith("vae")]  # of input images
    of = {
        name: call_costs(analysis.calls, analysis.kinds.table, analysis.device_profiles, name)
        for name in dict.fromkeys((*decoders, *others))
    }
    decoded = [kind for name in decoders if (costs := of[name]) for kind in costs.kinds]
    old = recorded_size(analysis.run.generations, workload.numbers, decoded)
    if old == size:
        return Estimates()
    if old is None:
        raise InputError(
            "the trace does not tell how large its images are, so --size cannot be answered: "
            "record the run with --ops all"
        )
    found, area = Estimates(), size.area / old.area
    for name, costs in of.items():
        both = costs and resized(costs, old, size, workload.overhead_ratio.get(name, 1.0))
        if not both:
            least, most = sorted((1.0, area * area))
            found.ratios[name] = Ratio(area, least, most, known=0.0)
            found.unknown.append(Note.of(Unknown.SIZE_GUESSED, submodule=name))
            continue
        wall, busy = both
        ratio = found.ratios[name] = busy if name in on_device else wall
        sizes = {"before": str(old), "size": str(size)}
        found.assumes.append(_estimate_note(Assumption.ANOTHER_SIZE, name, ratio, **sizes))
        found.unknown.extend(_unknown_work(name, ratio))
    return found


def _precision_estimates(
    workload: Workload, dtype: str, analysis: Analysis, on_device: Collection[str]
) -> Estimates:
    """Estimate all submodules in `dtype`. Raises InputError if the effect is not known."""
    placed = {task.submodule: task.device for task in workload.tasks if task.submodule is not None}
    ratios: dict[str, Ratio] = {}
    for name, device in placed.items():
        costs = call_costs(analysis.calls, analysis.kinds.table, analysis.device_profiles, name)
        if costs is not None and main_type(costs) is not None:
            queued = name in on_device
            overhead_ratio = 1.0 if queued else workload.overhead_ratio.get(name, 1.0)
            of = costs.on_device if queued else costs
            ratios[name] = at_precision(of, device, dtype, overhead_ratio)
    if not ratios:
        raise InputError(
            "the trace does not tell the types of its operators, so --precision cannot be "
            "answered: record the run with --ops all"
        )
    _check_known(workload, {*ratios}, dtype)
    found, least = Estimates(ratios), min(known.low for known in ratios.values())
    for name, device in placed.items():
        ratio = ratios.get(name)
        if ratio is None:
            found.unknown.append(Note.of(Unknown.PRECISION_OF, submodule=name, dtype=dtype))
            ratios[name] = Ratio(1.0, least, 1.0, known=0.0)
        elif ratio == Ratio(1.0, 1.0, 1.0):
            found.assumes.append(Note.of(Assumption.SAME_PRECISION, submodule=name, dtype=dtype))
        else:
            code = Assumption.PRECISION_BY_RATES
            if name in on_device:
                code = Assumption.PRECISION_ON_DEVICE
            found.assumes.append(_estimate_note(code, name, ratio, dtype=dtype, device=device))
            found.unknown.extend(_unknown_work(name, ratio))
    if found.assumes and dtype.startswith(PRECISIONS["fp8"]):
        found.assumes.append(Note.of(Assumption.PRODUCTS_ALONE, dtype=dtype))
    return found


def _check_known(workload: Workload, known: Collection[str], dtype: str) -> None:
    """Raise InputError if the types are known for less than half of the calls' time."""
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


def multiplied(some: Sequence[Estimates]) -> Iterator[Note]:
    """Note the product of the estimates of a submodule if several change its time."""
    names = dict.fromkeys(name for estimates in some for name in estimates.ratios)
    found = [_product(name, [each for each in some if name in each.ratios]) for name in names]
    notes = tuple(note for note in found if note is not None)
    if notes:
        yield Note.of(Assumption.SHARES_MULTIPLY, submodules=notes)


def _product(name: str, some: Sequence[Estimates]) -> Note | None:
    ratios = [estimates.ratios[name] for estimates in some]
    bounds = ((ratio.value, ratio.low, ratio.high) for ratio in ratios)
    if sum(any(not isclose(share, 1.0) for share in of_one) for of_one in bounds) < 2:
        return None
    batched = any(estimates.branch == BATCHED for estimates in some)
    whole = Ratio(
        value=prod(ratio.value for ratio in ratios),
        low=prod(ratio.low for ratio in ratios),
        high=prod(ratio.high for ratio in ratios),
    )
    code = Assumption.SHARE_OF_BATCHED if batched else Assumption.SHARE_OF_ALL
    return _estimate_note(code, name, whole)


def share_of_steps(workload: Workload) -> Iterator[Note]:
    """Note what other numbers of steps assume, if some calls do not happen in every step."""
    if workload.steps_of:
        some = tuple(
            Note.of(Assumption.STEPS_OF, submodule=name, steps=count)
            for name, count in sorted(workload.steps_of.items())
        )
        yield Note.of(Assumption.SHARE_OF_STEPS, steps=workload.steps, submodules=some)


def _unknown_work(name: str, ratio: Ratio) -> Iterator[Note]:
    if ratio.known < _WELL_KNOWN:
        yield Note.of(Unknown.WORK_OF_OPERATORS, submodule=name, share=1 - ratio.known)


def _estimate_note(code: Assumption, name: str, ratio: Ratio, **more: str) -> Note:
    """Make a note of the new share of a submodule's time, with the bounds of its estimate."""
    bounds = {"share": ratio.value, "low_share": ratio.low, "high_share": ratio.high}
    return Note.of(code, submodule=name, **bounds, **more)


# --- Remove calls from one phase of a pipeline call.


OWN_CALLS = ("uncond", "negative_prompt", "skip_layers")  # branches of guidance alone


_Some = TypeVar("_Some", Piece, Task)  # a call, or the host's time before one


def staying(
    phase: Iterable[_Some],
    leaves: Callable[[_Some], bool],
    leads_to: Callable[[_Some, _Some], bool],
) -> tuple[_Some, ...]:
    """Return a phase without the calls that leave, and without the host time that led to them.

    At the start of a phase the host prepares more than its first call: only work that is known to
    be that call's own (its tokenizer) leaves with it.
    """
    kept: list[_Some] = []
    waiting: list[_Some] = []  # host work since the last call
    begun = False
    for part in phase:
        if part.submodule is None:
            waiting.append(part)
            continue
        if leaves(part):
            waiting = [
                host
                for host in waiting
                if not leads_to(host, part) or not (begun or host.name.startswith(TOKENIZER))
            ]
        else:
            kept += waiting
            kept.append(part)
            waiting = []
        begun = True
    return tuple(kept + waiting)


# --- Apply a scenario to a workload: guidance, submodules, types, steps.


class DeviceSpan(Struct, frozen=True):
    """The time from the first start of device work to its last end, in ns, averaged over
    pipeline calls: as `recorded`, in a replay of the unchanged run (`replayed`), and in the
    scenario (`ns`)."""

    recorded_ns: float
    replayed_ns: float
    ns: float


class Changed(Struct, frozen=True, eq=False):
    """A changed workload, and what its times rest on.

    `spread` has, by submodule, the bounds of its time relative to the workload's if that was
    estimated. `assumes` (`Assumption`) and `unknown` (`Unknown`) are notes.

    If launches were replayed, `device` has the device's span, `reasons` (`Reason`) say what
    determines the request's time, and `scatter` is the workload whose steps give the scatter, None
    for `workload` itself. `within_ns` are bounds of the request's time that do not come from
    scatter, or None.
    """

    workload: Workload
    spread: Mapping[str, tuple[float, float]]
    assumes: tuple[Note, ...] = ()
    unknown: tuple[Note, ...] = ()
    scatter: Workload | None = None
    device: DeviceSpan | None = None
    reasons: tuple[Note, ...] = ()
    within_ns: tuple[float, float] | None = None


def changed(
    workload: Workload, scenario: Scenario, analysis: Analysis, following: Following
) -> Changed:
    """Apply `scenario` to the `workload` of the run, except for placement.

    `analysis` is of the whole run, `following` the effect of the scenario's findings. Raises
    InputError if the run cannot answer it.
    """
    assumes: list[Note] = []
    halves: list[Estimates] = []
    if scenario.drop:
        workload = without(workload, lambda task: task.submodule in scenario.drop)
        assumes.append(Note.of(Assumption.WITHOUT_SUBMODULES, submodules=scenario.drop))
    if not scenario.guidance:
        workload = without(workload, lambda task: task.branch in OWN_CALLS)
        halves = [half_batch_estimates(workload, analysis)]
        workload = _at(workload, halves[0]).mapped(_prompt_alone)
        assumes += (Note.of(Assumption.WITHOUT_GUIDANCE), *halves[0].assumes)
    if following.effects:
        workload = without(workload, lambda task: following.leaves(task.submodule, task.branch))
        assumes += following.assumes
    for estimates in following.work:
        workload = _at(workload, estimates)
    others = [*work_estimates(workload, scenario, analysis)]
    for estimates in others:
        workload = _at(workload, estimates)
    assumes += (note for estimates in (*following.work, *others) for note in estimates.assumes)
    assumes += multiplied([*halves, *others])
    if scenario.steps is not None:
        assumes += share_of_steps(workload)
        workload = replace(workload, steps=scenario.steps)
    spread: dict[str, tuple[float, float]] = {}
    unknown: list[Note] = []
    for estimates in (*halves, *following.work, *others):
        unknown += estimates.unknown
        for name, ratio in estimates.ratios.items():
            low, high = spread.get(name, (1.0, 1.0))
            spread[name] = (low * ratio.spread[0], high * ratio.spread[1])
    return Changed(workload, spread, tuple(assumes), tuple(unknown))


def without(workload: Workload, leaves: Callable[[Task], bool]) -> Workload:
    """Return `workload` without the calls for which `leaves` is true, and without the host time
    that led to them."""
    return workload.mapped(
        lambda tasks: staying(tasks, leaves, lambda host, call: host.of == call.name)
    )


def scaled(workload: Workload, factors: Mapping[str, float], branch: str | None = None) -> Workload:
    """Return `workload` with multiplied times of submodules, or of one branch of them."""

    def of(task: Task) -> Task:
        factor = factors.get(task.submodule or "", 1.0)
        if factor == 1.0 or (branch is not None and task.branch != branch):
            return task
        times = ("first_ns", "steady_ns")
        longer = {name: np.rint(getattr(task, name) * factor).astype(np.int64) for name in times}
        return replace(task, **longer)

    return workload.mapped(lambda tasks: tuple(map(of, tasks)))


def _at(workload: Workload, estimates: Estimates) -> Workload:
    """Return `workload` with the estimated times of submodules."""
    factors = {name: ratio.value for name, ratio in estimates.ratios.items()}
    return scaled(workload, factors, estimates.branch)


def _prompt_alone(phase: Iterable[_Some]) -> tuple[_Some, ...]:
    """Return a phase without the host's work of guidance; batched calls get the prompt alone."""
    return tuple(
        replace(one, branch="cond", name=f"{one.submodule}.cond") if one.branch == BATCHED else one
        for one in phase
        if one.name != APPLY_GUIDANCE
    )


# --- Change the plan of the host's work in a pipeline call, piece by piece.
#
# Pieces are on the host's axis: a call lasts until it returns. A changed plan leaves some out and
# repeats others; `replayed_call` runs it.


_Phase = tuple[Piece, ...]


def _left(leaves: Callable[[Piece], bool]) -> Callable[[_Phase], _Phase]:
    return lambda pieces: staying(pieces, leaves, lambda host, call: host.call == call.call)


def dropped(plan: PipelinePieces, names: Sequence[str]) -> PipelinePieces:
    """Return the plan without the calls of the named submodules."""
    return plan.mapped(_left(lambda piece: piece.submodule in names))


def without_calls(
    plan: PipelinePieces, leaves: Callable[[str | None, str], bool]
) -> PipelinePieces:
    """Return the plan without the calls whose submodule and branch `leaves` selects."""
    return plan.mapped(_left(lambda piece: leaves(piece.submodule, piece.branch)))


def unguided(plan: PipelinePieces) -> PipelinePieces:
    """The plan without the calls and work of guidance; batched calls get the prompt alone."""
    return plan.mapped(_left(lambda piece: piece.branch in OWN_CALLS)).mapped(_prompt_alone)


def with_steps(plan: PipelinePieces, steps: int) -> PipelinePieces:
    """Return the plan with `steps` steps: the first recorded one once, then the later ones, spread
    evenly."""
    later = len(plan.steps) - 1
    repeated = (1 + place * later // (steps - 1) for place in range(steps - 1))
    return replace(plan, steps=tuple(plan.steps[place] for place in (0, *repeated)))


# --- Following findings: the work, launches and calls that they remove.
#
#     predict(run, analysis, Scenario(follow=("norm_chains:transformer",)))
#
# The effect of a finding is what its rule measured (`Effect`). In a run whose launches are replayed
# it shortens the device's work and the host's time; elsewhere it shortens calls.


FUSES = frozenset(("elementwise_chains", "norm_chains"))
"""Rules that a compiler follows; it also launches the remaining work with less host time."""


class Named(NamedTuple):
    """A finding with an effect, and its name for `--follow`."""

    name: str
    finding: Finding
    effect: Effect


def named(findings: Iterable[Finding]) -> tuple[Named, ...]:
    """Name the findings with a known effect, as `rule:submodule`."""
    return tuple(
        Named(f"{one.rule}:{one.where.submodule or one.effect.submodules[0]}", one, one.effect)
        for one in findings
        if one.effect is not None and one.effect.submodules
    )


def followed(names: Sequence[str], findings: Iterable[Finding]) -> tuple[Named, ...]:
    """Resolve `names` to findings, each once; a rule alone means all of its submodules. Raises
    InputError for a name without such a finding."""
    known = named(findings)
    found: list[Named] = []
    for name in names:
        some = [one for one in known if name in (one.name, one.finding.rule)]
        if not some:
            there = ", ".join(dict.fromkeys(one.name for one in known))
            offered = f"give one of {there}" if there else "this run has none"
            raise InputError(f"--follow {name!r} is no finding whose effect is known: {offered}")
        found += [one for one in some if one not in found]
    return tuple(found)


def by_replay(some: Sequence[Named], gains: Gains) -> Following:
    """Compute the effect of findings in a run whose launches are replayed: less device work, and
    fewer launches, each with its share of the host time."""
    works = gains.whole.recording.works
    work: dict[str, float] = {}
    host: dict[str, float] = {}
    for submodule, effects in _by_submodule(some):
        own = gains.calls(submodule)
        mine = np.append(own, False)[works.call]
        busy, count = int(works.length[mine].sum()), int(np.count_nonzero(mine))
        launches = sum(
            one.launches + gains.in_mean_launches(own, one.launches_of) for one in effects
        )
        work[submodule] = _rest(sum(one.less_ns for one in effects), busy)
        host[submodule] = _rest(launches, count)
    return _following_of(some, work, host)


def by_calls(some: Sequence[Named], run: Run) -> Following:
    """Compute the effect of findings in a run whose calls are synchronous: the removed work
    shortens them."""
    calls = run.calls.with_columns(pl.col("submodule").cast(pl.String))
    work = {}
    for submodule, effects in _by_submodule(some):
        took = int(calls.filter(pl.col("submodule") == submodule)["duration_ns"].clip(0).sum())
        work[submodule] = _rest(sum(one.less_ns for one in effects), took)
    return _following_of(some, work, {})


def _by_submodule(some: Sequence[Named]) -> Iterator[tuple[str, list[Effect]]]:
    """Yield the effects that remove work, by submodule; several of one submodule add up."""
    less = [one.effect for one in some if one.effect.without_branch is None]
    for submodule in dict.fromkeys(name for one in less for name in one.submodules):
        yield submodule, [one for one in less if submodule in one.submodules]


def _rest(less: float, whole: float) -> float:
    return max(1.0 - less / whole, 0.0) if whole > 0 else 1.0


def _following_of(
    some: Sequence[Named], work: Mapping[str, float], host: Mapping[str, float]
) -> Following:
    estimates = [Estimates({name: Ratio(part, part, part)}) for name, part in work.items()]
    for one in some:
        if one.effect.grown != 1.0:  # the kept calls take longer
            grown = Ratio(one.effect.grown, one.effect.grown, one.effect.grown)
            estimates.append(Estimates(dict.fromkeys(one.effect.submodules, grown)))
    return Following(
        effects=tuple(one.effect for one in some),
        work=tuple(estimates),
        host=host,
        fused=frozenset(
            name for one in some if one.finding.rule in FUSES for name in one.effect.submodules
        ),
        assumes=tuple(map(_assumed, some)),
    )


def _assumed(one: Named) -> Note:
    effect = one.effect
    values: dict[str, Value] = {"rule": one.finding.rule, "submodules": effect.submodules}
    if effect.without_branch is not None:
        return Note.of(Assumption.FOLLOWED_WITHOUT, **values, branch=effect.without_branch)
    return Note.of(Assumption.FOLLOWED, **values, less_ns=round(effect.less_ns))
