"""The ladder of outcomes: what each change of a run brings, alone and after those above it.

    ladder_of(run, analysis).rungs[0].alone.ns

Changes are predicted by replay of this run (`Predictor`) and ranked greedily by what they gain
beside those that were chosen before. How much of the host's time is the profiler's is often not
known: then they are ranked midway between the host as it was recorded and one that is never late.
A rung names the options of `predict` that give its figures. Changes that give another result and
bounds that no change reaches are marked, and not in the total.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.finding_text import (
    MATERIAL,
    MOSTLY_IN_GRAPHS,
    change,
    in_graphs_share,
    number,
    words,
)
from profiler.analysis.gains import replay_gains
from profiler.analysis.health import is_damaged, notes_of
from profiler.analysis.host_bound import launches_less, loads_first, waits_for_loading
from profiler.analysis.idle import data_loader_times
from profiler.analysis.overview import advised
from profiler.analysis.replay import Refusal
from profiler.analysis.result import Analysis, Finding
from profiler.analysis.runtime import Runtime, graphs_of, runtime_of
from profiler.errors import InputError
from profiler.prediction.changes import FUSES, Named, named
from profiler.prediction.predict import Predictor, recorded_by_server
from profiler.prediction.replay import ReplayBasis
from profiler.prediction.requests import RequestTime
from profiler.prediction.scenario import GUIDED, Scenario
from profiler.run.intervals import Stretches, ends
from profiler.run.launches import device_work
from profiler.run.run import Run
from profiler.text import Note, Said, counted, said
from profiler.trace.events import NO_STEP

MOST = 5  # rungs
_MOST_LEFT = 3  # changes without a number
_BOUNDS = frozenset(("data_movement", "launch_bound", "slow_products"))  # no change reaches them
_OTHER_IMAGE = frozenset(("single_precision", "step_cache"))
_FIRST = frozenset(("first_call", "slow_start", "compilation"))  # rules about first calls
_WHOLE = re.compile(r"run|trace|process_\d+")  # names of a recording without calls
_MANY_CALLS = 1_000  # each is replayed alone if there are no steps: too slow for a report
_FEWER_STEPS = 2  # halve the steps


class Kind(StrEnum):
    """What an outcome is: the same result sooner, an upper bound of the gain, or the time of a
    different result: of another image, say."""

    SAME_IMAGE = "same_image"
    AT_BEST = "at_best"
    OTHER_IMAGE = "other_image"


class Change(Struct, frozen=True):
    """One thing to do: as text, as options of `predict`, and the findings that call for it.
    `on_host` says that host time is part of what it gains."""

    action: Said | str
    options: tuple[str, ...]
    kind: Kind
    findings: tuple[Finding, ...] = ()
    follow: tuple[str, ...] = ()
    cuda_graph: bool = False
    guidance: bool = True
    steps: int | None = None
    submodule: str | None = None
    on_host: bool = False

    def of(self, scenario: Scenario) -> Scenario:
        """Add this change to `scenario`."""
        return replace(
            scenario,
            follow=(*scenario.follow, *self.follow),
            cuda_graph=scenario.cuda_graph or self.cuda_graph,
            guidance=scenario.guidance and self.guidance,
            steps=scenario.steps if self.steps is None else self.steps,
        )


class Outcome(Struct, frozen=True):
    """A request's predicted time in ns; `low` to `high` with 90 % confidence, None if unknown.
    `least_ns` is the time without the most that recording may have added, `most_ns` without the
    least; None if that is not known."""

    ns: float
    low: float | None
    high: float | None
    least_ns: float | None = None
    most_ns: float | None = None

    @classmethod
    def of(cls, request: RequestTime) -> Outcome:
        return cls(request.ns, request.low, request.high)


class Rung(Struct, frozen=True):
    """A change with the run's time when it is applied `alone` and `after` the changes above that
    keep the result; `after` is None if it removes the same work as one of them. `pays_after` is the
    number of the rung above without which it gains nothing. `certain_ns` is its gain alone without
    the most that recording may have added, or what it gains beyond that if that is more; None if
    recording did not slow the host, or by a known factor."""

    change: Change
    alone: Outcome
    after: Outcome | None
    pays_after: int | None = None
    certain_ns: float | None = None


class Ladder(Struct, frozen=True):
    """The outcomes of a run that takes `before_ns`, the mean of its `pipelines` measured pipeline
    calls. `total` is the outcome of all changes that keep the result, with these `options`; `left`
    are changes that cannot be replayed, each with the reason. `recording_ns` is an upper bound of
    the time that recording added, None if that is not known or is corrected, and
    `recording_least_ns` a lower bound; `unsure` are the numbers of rungs whose order depends on it.
    `data_loader_ns` is how long a device waits at least for the DataLoader. `stacks` if Python
    stacks were recorded, `replayed` if launches were; without launches, outcomes are sums of call
    times. `cold` if work was launched in first calls only and they load libraries or kernels, or if
    these take longer than later ones by a fifth of the run.
    `why_not` says why nothing was replayed; `refused` why launches could not be."""

    run_id: str
    before_ns: float
    rungs: tuple[Rung, ...] = ()
    total: Outcome | None = None
    options: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    recording_ns: float | None = None
    recording_least_ns: float = 0.0
    data_loader_ns: int = 0
    unsure: tuple[int, ...] = ()
    stacks: bool = False
    replayed: bool = False
    cold: bool = False
    why_not: str = ""
    refused: Note | None = None
    pipelines: int = 1

    @property
    def least_ns(self) -> float | None:
        """The run's time without the most that recording may have added; None if not known."""
        return None if self.recording_ns is None else self.before_ns - self.recording_ns

    @property
    def most_ns(self) -> float | None:
        """The run's time without the least that recording added; None if not known."""
        return None if self.recording_ns is None else self.before_ns - self.recording_least_ns


def ladder_of(
    run: Run, analysis: Analysis, base: Scenario | None = None, pipeline: int | None = None
) -> Ladder:
    """Build the ladder of `run`; `analysis` is of the whole run. `base` applies to every rung: the
    untraced time of the run. Raises InputError if the run cannot be predicted."""
    if recorded_by_server(run):
        raise InputError("a server's trace tells of requests, not of what a change would do to one")
    predictor = Predictor(run, analysis, pipeline)
    return _Climb(predictor, base or Scenario()).ladder()


def asks_nothing(scenario: Scenario) -> bool:
    """Whether a scenario changes nothing (it may give the untraced time)."""
    return scenario == Scenario(untraced_ns=scenario.untraced_ns)


def ladder_or_left(run: Run, analysis: Analysis) -> Ladder:
    """Build the ladder; if the run cannot be predicted, one that has only changes without a number
    and says why."""
    try:
        return ladder_of(run, analysis)
    except InputError as error:
        left = tuple(_left(analysis, ()))
        return Ladder(run.run_id, 0.0, left=left, why_not=str(error))


class _Climb:
    """Builds one ladder; caches predictions."""

    def __init__(self, predictor: Predictor, base: Scenario) -> None:
        self.predictor, self.base = predictor, base
        self.made: dict[tuple[int, str], Outcome | None] = {}
        self.before = predictor.measured(base)
        self.unslowed: Predictor | None = None  # without the most that recording may have added
        self.slowed = predictor  # without the least
        self.least_ns = self.most_ns = self.before.ns  # of the run, by these two
        if base.untraced_ns is None and not self.before.corrected:
            cost = predictor.analysis.run.overhead
            lightly = predictor.lightly_recorded
            self.unslowed = predictor.never_late or lightly(cost.untraced_low_ns)
            self.slowed = lightly(cost.untraced_high_ns) or predictor
        if self.unslowed is not None:
            self.least_ns = min(self.unslowed.measured(base).ns, self.least_ns)
            self.most_ns = min(self.slowed.measured(base).ns, self.most_ns)
        late_ns = self.before.ns - self.least_ns
        self.recording_ns = min(late_ns, _host_gain_ns(predictor.analysis, late_ns))

    def ladder(self) -> Ladder:
        before_ns, analysis = self.before.ns, self.predictor.analysis
        least = MATERIAL * before_ns
        changes = [one for one in candidates(self.predictor) if self.outcome([one]) is not None]
        rungs = self._greedy([c for c in changes if c.kind is Kind.SAME_IMAGE], least)
        for kind in (Kind.AT_BEST, Kind.OTHER_IMAGE):
            rungs += self._marked([c for c in changes if c.kind is kind], rungs, least)
        rungs = rungs[:MOST]
        together = [rung.change for rung in rungs if rung.change.kind is Kind.SAME_IMAGE]
        recorded, refused = self.predictor.run.info.recording, self.predictor.refused
        return Ladder(
            run_id=self.predictor.run.run_id,
            before_ns=before_ns,
            rungs=tuple(rungs),
            total=self._bounded(together) if together else None,
            options=tuple(dict.fromkeys(o for one in together for o in one.options)),
            left=tuple(_left(analysis, rungs)),
            recording_ns=None if self.unslowed is None else self.recording_ns,
            recording_least_ns=min(before_ns - self.most_ns, self.recording_ns),
            data_loader_ns=_in_data_loader(analysis),
            unsure=_unsure(rungs, least),
            replayed=self.predictor.launches is not None,
            stacks=bool(recorded and recorded.with_stack),
            cold=self._is_cold(),
            why_not=str(refused or ""),
            refused=None if refused is None else refused.why,
            pipelines=analysis.accounting.pipelines,
        )

    def outcome(self, some: Sequence[Change], by: Predictor | None = None) -> Outcome | None:
        """Predict the run with these changes, as recorded or `by` another predictor; None if it
        cannot be replayed."""
        predictor = by or self.predictor
        scenario = self.base
        for one in some:
            scenario = one.of(scenario)
        key = id(predictor), repr(scenario)
        if key not in self.made:
            try:
                self.made[key] = Outcome.of(predictor.request_time(scenario))
            except InputError:
                self.made[key] = None
        return self.made[key]

    def _ns(self, some: Sequence[Change]) -> float:
        """The time with these changes, or the unchanged time if they cannot be replayed."""
        found = self.outcome(some)
        return self.before.ns if found is None else found.ns

    def _least_of(self, some: Sequence[Change]) -> float:
        """The same without the most that recording may have added."""
        found = self.outcome(some, self.unslowed)
        return self.least_ns if found is None else found.ns

    def _likely_ns(self, some: Sequence[Change]) -> float:
        """The time with these changes, midway between recording that cost nothing and the most."""
        if self.unslowed is None:
            return self._ns(some)
        return (self._ns(some) + self._least_of(some)) / 2

    def _greedy(self, changes: list[Change], least: float) -> list[Rung]:
        """Rank changes greedily: next is always the one that gains most beside those above it.
        Stops at gains below `least`."""
        chosen: list[Change] = []
        rungs: list[Rung] = []
        while len(rungs) < MOST:
            enough = self._ns(chosen) - least
            worth = [one for one in changes if self._ns([*chosen, one]) <= enough]
            if not worth:
                break
            best = worth[0]
            if len(worth) > 1:
                best = min(worth, key=lambda one: self._likely_ns([*chosen, one]))
            rungs.append(self._rung(best, rungs, least))
            chosen.append(best)
            changes = [one for one in changes if one is not best]
        return rungs

    def _marked(self, changes: list[Change], rungs: list[Rung], least: float) -> list[Rung]:
        """Rate each change by itself beside those that keep the result, largest gain first."""
        above = [rung for rung in rungs if rung.change.kind is Kind.SAME_IMAGE]
        found = [self._rung(one, above, least) for one in changes]
        saved = {
            id(rung): self.before.ns - min(rung.alone.ns, self._ns([rung.change])) for rung in found
        }
        worth = [
            rung
            for rung in found
            if saved[id(rung)] >= least or (rung.pays_after and saved[id(rung)] > -least)
        ]
        return sorted(worth, key=lambda rung: rung.alone.ns)

    def _rung(self, one: Change, above: Sequence[Rung], least: float) -> Rung:
        alone = self._bounded([one])
        assert alone is not None
        others = [rung.change for rung in above]
        after = self._bounded([*others, one]) if others and not _same_work(one, others) else None
        pays_after = None
        if after is not None and self.before.ns - alone.ns < least:
            pays_after = self._needed(one, above, least)
        certain_ns = None if alone.least_ns is None else self._least_before() - alone.least_ns
        return Rung(one, alone, after, pays_after, certain_ns)

    def _bounded(self, some: Sequence[Change]) -> Outcome | None:
        """Predict the run with these changes as recorded, with its `least_ns` and `most_ns`."""
        found = self.outcome(some)
        if found is None or self.unslowed is None:
            return found
        beyond_ns = self.before.ns - found.ns - self.recording_ns
        certain_ns = max(self.least_ns - self._least_of(some), beyond_ns)
        most = self.outcome(some, self.slowed) or found
        return replace(
            found,
            least_ns=self._least_before() - certain_ns,
            most_ns=min(most.ns, found.ns),
        )

    def _least_before(self) -> float:
        """The run's time without the most that recording may have added."""
        return self.before.ns - self.recording_ns

    def _needed(self, one: Change, above: Sequence[Rung], least: float) -> int | None:
        """The number of the first rung above that lets this change gain enough, or None."""
        for number, rung in enumerate(above, 1):
            if self._ns([rung.change]) - self._ns([rung.change, one]) >= least:
                return number
        return None

    def _is_cold(self) -> bool:
        """Whether the run is a cold start: each submodule launched work in one call only, no
        warm-up is known, and the driver loads meanwhile; or first calls or loading of libraries
        take a fifth of the run."""
        basis, analysis = self.predictor.launches, self.predictor.analysis
        if basis is None:
            return False
        names = basis.names[basis.queued].tolist()
        once = analysis.run.warmup is None and len(names) == len(set(names))
        return (once and loads_first(analysis)) or any(
            waits_for_loading(one) if one.rule == "host_bound" else one.rule in _FIRST
            for one in analysis.findings
            if one.severity == "high"
        )


def _in_data_loader(analysis: Analysis) -> int:
    """How long a device waits at least for the DataLoader in a pipeline call, in ns."""
    waits = (one for one in analysis.findings if one.rule == "host_bound")
    longest = max((number(one, "data_loader_ns") for one in waits), default=0.0)
    return round(longest / max(analysis.accounting.pipelines, 1))


def _host_gain_ns(analysis: Analysis, otherwise: float) -> float:
    """Return how much shorter a pipeline call is if the host takes no time in calls but to load
    data, which recording hardly slows; `otherwise` if it loads none."""
    loads = data_loader_times(analysis.inputs.run)
    gains = replay_gains(analysis.inputs) if len(loads) else None
    if gains is None:
        return otherwise
    run = analysis.inputs.run
    begin = run.calls["start_ns"].to_numpy()
    inside = Stretches.union(begin, ends(run.calls)).minus(loads)
    works = device_work(run.commands["category"].to_physical().to_numpy())
    first = int(run.commands["start_ns"].to_numpy()[works].min())
    # the gain is that of the device span, which begins with the first work
    ahead = inside.clipped(int(begin.min()), max(first, int(begin.min()))).length
    return (max(gains.without_host(inside), 0) + ahead) / max(analysis.accounting.pipelines, 1)


def _unsure(rungs: Sequence[Rung], least: float) -> tuple[int, ...]:
    """The numbers of result-keeping rungs whose order differs, by at least `least`, between the
    recorded and an infinitely fast host."""
    same = [rung for rung in rungs if rung.change.kind is Kind.SAME_IMAGE]
    found: set[int] = set()
    for (first, one), (second, other) in combinations(enumerate(same, 1), 2):
        more = other.alone.ns - one.alone.ns  # how much more this one gains
        certainly = (one.certain_ns or 0.0) - (other.certain_ns or 0.0)
        if more * certainly < 0 and max(abs(more), abs(certainly)) >= least:
            found |= {first, second}
    return tuple(sorted(found))


def _same_work(one: Change, others: Sequence[Change]) -> bool:
    """Whether a bound counts work that a change above already removes."""
    return one.kind is Kind.AT_BEST and any(
        other.submodule == one.submodule and other.follow for other in others
    )


# --- Possible changes of a run: graphs, findings with an effect, guidance, steps.


def candidates(predictor: Predictor) -> Iterator[Change]:
    """Yield every change that may be worth a rung, whatever it gains."""
    analysis, workload = predictor.analysis, predictor.workload
    if _has_calls(predictor.launches) and in_graphs_share(analysis) <= MOSTLY_IN_GRAPHS:
        rows = (one for one in analysis.findings if one.rule == "host_bound")
        waits = tuple(one for one in rows if launches_less(one))
        yield Change(
            action=graphs_of(analysis),
            options=("--cuda-graph",),
            kind=Kind.SAME_IMAGE,
            findings=waits,
            cuda_graph=True,
            on_host=True,
        )
    some = named(analysis.findings)
    yield from _fusing([one for one in some if one.finding.rule in FUSES], analysis)
    for one in some:
        if one.finding.rule not in FUSES:
            yield _following(one)
    if any(task.branch in GUIDED for task in workload.tasks):
        yield Change(
            action=said("Generate without guidance"),
            options=("--guidance off",),
            kind=Kind.OTHER_IMAGE,
            guidance=False,
        )
    steps = workload.steps // _FEWER_STEPS
    if steps:
        yield Change(
            action=said(
                "{steps} in place of {all}", steps=counted(steps, "step"), all=workload.steps
            ),
            options=(f"--steps {steps}",),
            kind=Kind.OTHER_IMAGE,
            steps=steps,
        )


def _has_calls(basis: ReplayBasis | None) -> bool:
    """Whether calls launch work: a whole process or trace does not count as a call."""
    return basis is not None and not all(map(_WHOLE.fullmatch, basis.queued_names))


def _fusing(some: Sequence[Named], analysis: Analysis) -> Iterator[Change]:
    """Yield what a compiler would fuse in each submodule, as one change."""
    for submodule in dict.fromkeys(one.effect.submodules[0] for one in some):
        own = [one for one in some if one.effect.submodules[0] == submodule]
        action = said("Fuse elementwise operators and norms of {submodule}", submodule=submodule)
        if runtime_of(analysis, submodule) is Runtime.TORCH:
            action = said(
                "Compile {submodule}: fuses its elementwise operators and norms",
                submodule=submodule,
            )
        yield Change(
            action=action,
            options=tuple(f"--follow {one.name}" for one in own),
            kind=Kind.SAME_IMAGE,
            findings=tuple(one.finding for one in own),
            follow=tuple(one.name for one in own),
            submodule=submodule,
            on_host=any(map(_on_host, own)),
        )


def _following(one: Named) -> Change:
    rule, submodule = one.finding.rule, one.effect.submodules[0]
    kind = Kind.OTHER_IMAGE if rule in _OTHER_IMAGE else Kind.SAME_IMAGE
    action: Said | str = change(one.finding)
    if len(one.effect.submodules) == 1:
        action = said("{action} ({submodule})", action=action, submodule=submodule)
    return Change(
        action=action,
        options=(f"--follow {one.name}",),
        kind=Kind.AT_BEST if rule in _BOUNDS else kind,
        findings=(one.finding,),
        follow=(one.name,),
        submodule=submodule,
        on_host=_on_host(one),
    )


def _on_host(one: Named) -> bool:
    """Whether following a finding removes calls or launches, and so host time."""
    effect = one.effect
    return effect.without_branch is not None or bool(effect.launches or effect.launches_of)


def _left(analysis: Analysis, rungs: Sequence[Rung]) -> Iterator[tuple[str, str]]:
    """The actions, with titles, of the findings that no rung follows; at most `_MOST_LEFT`."""
    followed = [one for rung in rungs for one in rung.change.findings]
    known = {one.name for one in named(analysis.findings)} if rungs else set()
    others = [
        one
        for one in advised(analysis.findings)
        if one not in followed and not (rungs and named((one,)) and named((one,))[0].name in known)
    ]
    done: dict[str, str] = {}
    for one in others:
        done.setdefault(change(one), words(one).title)
    yield from [*done.items()][:_MOST_LEFT]


# --- The ladder of an analysis, made once on demand.


def ladder_of_analysis(analysis: Analysis) -> Ladder | None:
    """The ladder of the analyzed run, without rungs if its recording is damaged; None for a
    selection, which is not the whole run."""
    if analysis.run.selection:
        return None
    made = analysis.inputs.made
    if ladder_of_analysis not in made:
        run = analysis.inputs.run
        if is_damaged(notes_of(run.info)):  # `predict` refuses it
            left = tuple(_left(analysis, ()))
            why = "the recording is damaged"
            made[ladder_of_analysis] = Ladder(run.run_id, 0.0, left=left, why_not=why)
        elif (calls := len(run.calls)) > _MANY_CALLS and (run.calls["step"] == NO_STEP).all():
            left = tuple(_left(analysis, ()))
            why = f"{calls} calls without steps take long to replay: `profile-sd3 predict` does"
            refused = Note.of(Refusal.MANY_CALLS, calls=calls)
            made[ladder_of_analysis] = Ladder(
                run.run_id, 0.0, left=left, why_not=why, refused=refused
            )
        else:
            made[ladder_of_analysis] = ladder_or_left(run, analysis)
    found = made[ladder_of_analysis]
    assert isinstance(found, Ladder)
    return found
