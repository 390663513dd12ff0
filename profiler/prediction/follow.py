"""Follow findings in a prediction: the work, launches and calls that they take away.

    predict(run, analysis, Scenario(follow=("norm_chains:transformer",)))

The effect of a finding is what its rule measured (`Effect`). In a run whose launches are replayed
it shortens the device's work and the host's time; elsewhere it shortens calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from profiler.analysis.replay import Gains
from profiler.analysis.result import Effect, Finding
from profiler.analysis.roofline import Ratio
from profiler.errors import InputError
from profiler.prediction.changes import Estimates, Following
from profiler.prediction.scenario import Assumption
from profiler.run.run import Run
from profiler.text import Note

FUSES = frozenset(("elementwise_chains", "norm_chains"))
"""Rules that a compiler follows: it also launches what is left with less of the host's time."""


class Named(NamedTuple):
    """A finding with an effect, under the name that `--follow` gives it."""

    name: str
    finding: Finding
    effect: Effect


def named(findings: Iterable[Finding]) -> tuple[Named, ...]:
    """The findings whose effect is known, as `rule:submodule`."""
    return tuple(
        Named(f"{one.rule}:{one.where.submodule or one.effect.submodules[0]}", one, one.effect)
        for one in findings
        if one.effect is not None and one.effect.submodules
    )


def followed(names: Sequence[str], findings: Iterable[Finding]) -> tuple[Named, ...]:
    """Those that `names` mean, a rule alone for all of its submodules, each once. Raises InputError
    for a name that the run has no such finding for."""
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
    """Of a run whose launches are replayed: less work on the device, and fewer launches, each with
    its share of the host's time."""
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
    return _following(some, work, host)


def by_calls(some: Sequence[Named], run: Run) -> Following:
    """Of a run whose calls are done when they return: their time is less by the work that goes."""
    calls = run.calls.with_columns(pl.col("submodule").cast(pl.String))
    work = {}
    for submodule, effects in _by_submodule(some):
        took = int(calls.filter(pl.col("submodule") == submodule)["duration_ns"].clip(0).sum())
        work[submodule] = _rest(sum(one.less_ns for one in effects), took)
    return _following(some, work, {})


def _by_submodule(some: Sequence[Named]) -> Iterator[tuple[str, list[Effect]]]:
    """The effects that take work away; what several say of one submodule adds up."""
    less = [one.effect for one in some if one.effect.without_branch is None]
    for submodule in dict.fromkeys(name for one in less for name in one.submodules):
        yield submodule, [one for one in less if submodule in one.submodules]


def _rest(less: float, whole: float) -> float:
    return max(1.0 - less / whole, 0.0) if whole > 0 else 1.0


def _following(
    some: Sequence[Named], work: Mapping[str, float], host: Mapping[str, float]
) -> Following:
    estimates = [Estimates({name: Ratio(part, part, part)}, (), ()) for name, part in work.items()]
    for one in some:
        if one.effect.grown != 1.0:  # of the calls that stay
            grown = Ratio(one.effect.grown, one.effect.grown, one.effect.grown)
            estimates.append(Estimates(dict.fromkeys(one.effect.submodules, grown), (), ()))
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
    if effect.without_branch is not None:
        return Note.of(
            Assumption.FOLLOWED_WITHOUT,
            rule=one.finding.rule,
            submodules=effect.submodules,
            branch=effect.without_branch,
        )
    return Note.of(
        Assumption.FOLLOWED,
        rule=one.finding.rule,
        submodules=effect.submodules,
        less_ns=round(effect.less_ns),
    )
