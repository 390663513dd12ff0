"""The history of a metric: changes, accepted levels, alarms, and the newest runs.

    past = metric_history("denoise.step", frame, accepted_changes(storage))
    past.changes      # with the runs before and after, and whether they were accepted
    past.alarm        # the change that is slower, and neither accepted nor gone
    past.newest       # whether the newest runs are outside, by the sequential test
    accept(storage, "denoise.step@3fa1b2c4", because="the new sampler takes longer")

A change is named by its metric and the first run after it, so the name is stable. The
sequential test keeps false alarms at `alpha / family`, with `family` the number of metrics
gated together.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
import polars as pl

from profiler.compare.compare import Comparison, compare
from profiler.compare.measure import measure
from profiler.errors import InputError, ProfilerError
from profiler.fleet.change_points import (
    LEAST_SPREAD,
    Change,
    Drift,
    Found,
    Modes,
    Reals,
    change_points,
    clipped,
    line_of,
    relative,
    spread_of,
    student,
    two_modes,
)
from profiler.fleet.dataset import metric_name
from profiler.fleet.storage import Storage, read_documents, why_not_here
from profiler.tools.sources import load

# --- Accepted changes: each is one file of the data set, and ends an alarm.
#
# Files follow the data set's commit rule: each appears whole, by a conditional create, and
# never changes (`docs/fleet-data-set.md`).


ACCEPTED = "accepted"
_DIGITS = 8
_MOST = 2000

_Name = Annotated[str, msgspec.Meta(max_length=_MOST)]


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A user's acceptance of the level of `metric` from the run with the key `run` on."""

    metric: _Name
    run: Annotated[str, msgspec.Meta(max_length=64)]
    because: _Name
    when_ns: int

    @property
    def name(self) -> str:
        return change_name(self.metric, self.run)


def change_name(metric: str, run: str) -> str:
    """Return the name of the change that starts with this run: `denoise.step@3fa1b2c4`."""
    return f"{metric}@{run[:_DIGITS]}"


def accept(
    storage: Storage,
    runs: pl.DataFrame,
    change: str,
    because: str,
    clock: Callable[[], int] = time.time_ns,
) -> Accepted:
    """Accept a change of a data set with these `runs`. Raises InputError if its name is invalid, no
    reason is given, or it is accepted already."""
    metric, at, run = change.rpartition("@")
    if not at or not metric:
        raise InputError(
            f"{change!r:.120} is no change: give its name, METRIC@RUN, as `profile-sd3 fleet "
            "history` prints it"
        )
    reason = " ".join(because.split())
    if not reason or len(reason) > _MOST:
        raise InputError(f"--because is the reason in the history: give 1 to {_MOST} characters")
    key = named_run(runs, run)["run"]
    made = Accepted(metric=metric_name(metric).text, run=key, because=reason, when_ns=clock())
    digest = hashlib.sha256(f"{made.metric}\0{key}".encode()).hexdigest()[:32]
    if not storage.create(f"{ACCEPTED}/{digest}.json", msgspec.json.encode(made) + b"\n"):
        raise InputError(f"{made.name} is accepted already: its reason stands in the history")
    return made


def accepted_changes(storage: Storage) -> list[Accepted]:
    """Read the accepted changes, oldest first. Raises InputError for a file that is none."""
    names = (name for name in storage.names(ACCEPTED) if name.endswith(".json"))
    found = read_documents(storage, names, Accepted)
    return sorted(found, key=lambda each: (each.when_ns, each.metric, each.run))


def named_run(runs: pl.DataFrame, name: str) -> dict[str, Any]:
    """Return the row of the run with this key, its first 8 digits at least, or name (the newest of
    that name). Raises InputError if there is none, or several runs share a short key."""
    found = runs.filter((pl.col("run") == name) | (pl.col("run_id") == name))
    if found.is_empty() and len(name) >= _DIGITS:
        found = runs.filter(pl.col("run").str.starts_with(name))
        if len(found) > 1:
            raise InputError(f"{name} begins the keys of {len(found)} runs: give more of it")
    if found.is_empty():
        raise InputError(
            f"the data set has no run {name!r:.80}: add it with `profile-sd3 fleet add`, or give a "
            "key or name that it has"
        )
    return found.row(-1, named=True)


# --- Why a metric changed: a comparison of the last good and the first bad run's bundles.


def explanation(good: Mapping[str, Any], bad: Mapping[str, Any]) -> Comparison | str:
    """Compare two runs, given as rows of a history; or say in a sentence why not."""
    measured = []
    try:
        for row in (good, bad):
            place = str(row["place"])
            if reason := why_not_here(place, str(row["run_id"])):
                return f"not compared: {reason}"
            run = load(place)
            measured.append(measure(run))
            run.close()
        return compare(measured[:1], measured[1:])
    except ProfilerError as error:
        return f"not compared: {error}"


# --- Are the newest runs outside their history? A sequential test, for the gate.
#
#     newest(values).outside      # of the last run, and up to five before it
#
# The newest one to six runs are each tested against the runs before them: Student's t of their
# mean, with the spread of the history. Unlike `change_points`, which looks back at the whole
# history and locates changes, this detects a change early; `change_points` confirms it later.
#
# - If the history drifts (p below 0.05), the runs are tested against the continued line, including
#   its error. Otherwise a step has to explain them better than a line through all runs, because a
#   drift that 30 runs still hide looks like a step to a mean of several. Four and five runs have
#   the power for a large margin, which limits them more than p does.
# - Levels and margins were chosen together, on generated histories, so that at most `alpha /
#   family` of the runs of an unchanged or a drifting history are outside; `family` is the number of
#   metrics that are gated together. They are no bound for all histories, as the sum of the levels
#   would be.
# - If it has two modes, a run is tested against its nearest mode; if all newest runs are in one
#   mode, also against that mode's share.
# - The newest run must itself deviate to the same side, and in means of several each run counts
#   with at most four standard deviations: so an outlier does not affect the runs after it, and a
#   mean that is outside by chance does not stay so for six runs.


ALPHA = 0.01
LEAST_RUNS = 8
"""The minimum number of earlier runs: with fewer, their spread is hardly known."""

_WINDOWS = 6  # newest runs that are tested together
_REFERENCE = 60  # runs of history that are used
_DRIFTS = 0.05  # p of a slope, below which the history may drift
_PARTS = (0.067, 0.047, 0.032, 1.24, 0.51, 0.047)  # of the level, by number of newest runs
_BETTER = (3.0, 3.0, 3.0, 7.0, 5.0, 0.0)
"""By how much a step must beat a line, in variances of a run, by number of newest runs."""
_OF_LINE = (0.047,) * _WINDOWS  # parts if the history drifts
_OF_MODES = (0.107,) * _WINDOWS  # parts if it has two modes
_FURTHEST = 4.0  # standard deviations at which a run is clipped in a mean
_SAME_SIDE = 1.7  # standard deviations that the newest run must deviate
_OF_SHARES = 0.2  # part of alpha for the test of modes' shares


@dataclass(frozen=True, slots=True)
class Newest:
    """The result of the test of the newest runs.

    `runs`: the number of newest runs with the strongest result. `change`: their mean over the
    expected value, minus 1, a ratio. `p`: the probability of that or more without a change,
    corrected for the windows and the family. `expected`, `low`, `high`: the expected value of the
    newest run, and the interval of one run at the given level, in the unit of the values. `spread`:
    the standard deviation of the history, a ratio.
    """

    outside: bool
    runs: int
    change: float
    p: float
    expected: float
    low: float
    high: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the history predicts: residuals of the newest runs, the spread of one run, the standard
    error of the expectation relative to it, degrees of freedom, and the parts of the level for
    tests of one to six runs."""

    residuals: Reals
    spread: float
    error: float
    freedom: int
    expectation: float
    parts: tuple[float, ...] = _PARTS


def newest(values: Reals, *, family: int = 1, earlier: Reals | None = None) -> Newest | None:
    """Hold the last of `values`, in the order of time, against those before it; None if there
    are fewer than `LEAST_RUNS` before it.

    `earlier` are relative residuals of runs before the last change, each about its own level: they
    give the spread if there are only few runs on the current level.
    """
    scale = relative(values)
    known = np.empty(0) if earlier is None else earlier
    level = ALPHA / family
    best: tuple[float, int, _Expected] | None = None
    shares = 1.0
    for m in range(1, _WINDOWS + 1):
        history = scale[:-m][-_REFERENCE:]
        if len(history) + len(known) < LEAST_RUNS or len(history) < 1:
            break
        modes = two_modes(history) if len(history) >= LEAST_RUNS else None
        expected = _expected(history, scale[-m:], known, modes)
        p = _p(expected, m) / expected.parts[m - 1]
        if modes is not None:
            shares = min(shares, _share_p(modes, scale[-m:]) * _WINDOWS / _OF_SHARES)
        elif expected.parts is _PARTS:
            margin = _BETTER[m - 1] + 2 * math.log(ALPHA / level)
            if _beats_line(history, scale[-m:], expected.spread) < margin:
                p = 1.0
        if best is None or p < best[0]:
            best = p, m, expected
    if best is None:
        return None
    p, m, expected = best
    p = min(p, shares, 1.0)
    reach = _quantile(level * expected.parts[0], expected.freedom) * expected.spread
    reach *= math.sqrt(1 + expected.error**2)
    is_log = bool(values.min() > 0)
    unit = 1.0 if is_log or not scale[-1] else float(values[-1] / scale[-1])

    def back(at: float) -> float:
        return math.exp(min(at, 700.0)) if is_log else at * unit

    middle = expected.expectation
    change = float(np.mean(scale[-m:] - middle))
    return Newest(
        outside=p <= level,
        runs=m,
        change=math.expm1(min(change, 700.0)) if is_log else change,
        p=min(p * family, 1.0),
        expected=back(middle),
        low=back(middle - reach),
        high=back(middle + reach),
        spread=expected.spread,
    )


def _expected(history: Reals, last: Reals, known: Reals, modes: Modes | None) -> _Expected:
    n, m = len(history), len(last)
    if modes is not None:
        spread = spread_of(modes.residuals(history), n - 2)
        level = float(clipped(history).mean())
        rest = min(modes.share, 1 - modes.share) * n
        residuals = modes.residuals(last)
        return _Expected(residuals, spread, 1 / math.sqrt(rest), n - 2, level, _OF_MODES)
    if n >= LEAST_RUNS:
        line = line_of(history)
        if line.p < _DRIFTS:
            positions = np.arange(n, n + m, dtype=np.float64)
            error = line.error(n + (m - 1) / 2)
            ahead = line.at(positions)
            return _Expected(last - ahead, line.spread, error, n - 2, float(ahead[-1]), _OF_LINE)
    level = float(clipped(history).mean())
    residuals = np.concatenate((known[-_REFERENCE:], history - level))
    freedom = len(residuals) - 1 - bool(len(known))
    spread = spread_of(residuals, freedom)
    return _Expected(last - level, spread, 1 / math.sqrt(n), freedom, level)


def _p(expected: _Expected, m: int) -> float:
    """The two-sided p of the mean of the newest runs; 1 if the last does not deviate, too."""
    shares = expected.residuals / expected.spread
    if m > 1:
        shares = np.clip(shares, -_FURTHEST, _FURTHEST)
    mean = float(shares.mean())
    if m > 1 and float(shares[-1]) * math.copysign(1.0, mean) < _SAME_SIDE:
        return 1.0
    return student(mean / math.sqrt(1 / m + expected.error**2), expected.freedom)


def _beats_line(history: Reals, last: Reals, spread: float) -> float:
    """By how much a step before `last` beats a line through all values, in variances of a run."""
    n, m = len(history), len(last)
    together = np.concatenate((history, last))
    reach = _FURTHEST * spread  # outliers are no sign of a line
    together = np.clip(together, history.mean() - reach, history.mean() + reach)
    step = n * m / (n + m) * float(together[n:].mean() - together[:n].mean()) ** 2
    positions = np.arange(n + m) - (n + m - 1) / 2
    line = float(positions @ together) ** 2 / float(positions @ positions)
    return (step - line) / spread**2


def _share_p(modes: Modes, last: Reals) -> float:
    """The probability that all newest runs are in one mode by chance; 1 if they are not."""
    n = len(modes.is_high)
    high = last > modes.border
    if high.all():
        share = (modes.share * n + 1) / (n + 2)
    elif not high.any():
        share = ((1 - modes.share) * n + 1) / (n + 2)
    else:
        return 1.0
    return float(share ** len(last))


def _quantile(p: float, freedom: int) -> float:
    """Student's t whose two-sided p value is `p`, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, freedom) > p else (low, middle)
    return high


def history_needed(values: Reals, limit: float, *, family: int = 1) -> int:
    """How many more runs of history the gate needs to see one run that is slower by `limit`, a
    ratio; 0 if it has enough, -1 if no number of runs would do, because single runs scatter
    by too much."""
    n = len(values)
    if n < LEAST_RUNS:
        return LEAST_RUNS - n
    history = relative(values)[-_REFERENCE:]
    spread = max(
        spread_of(history - float(clipped(history).mean()), len(history) - 1), LEAST_SPREAD
    )
    for more in range(_REFERENCE):
        runs = n + more
        reach = _quantile(ALPHA / family * _PARTS[0], runs - 1) * spread * math.sqrt(1 + 1 / runs)
        if reach <= math.log1p(limit):
            return more
    return -1


# --- The history of one metric: its changes, which were accepted, and its current level.
#
#     past = metric_history("denoise.step", frame, accepted_changes(storage))
#     past.changes      # with the runs before and after, and whether they were accepted
#     past.alarm        # the change that is slower, and neither accepted nor gone
#     past.newest       # whether the newest runs are outside, by the sequential test
#
# `frame` is the result of `Dataset.history` for comparable runs, in order of time.


_NEAR = 3  # runs by which a change may move as runs are added
_BACK = 0.01  # a change is gone if its level is within this of the previous one


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """A change of level: `name` as `fleet accept` takes it, the rows of the last good and the first
    bad run, and the reason if it is accepted. `is_open`: slower, not accepted, not gone."""

    name: str
    change: Change
    good: dict[str, Any]
    bad: dict[str, Any]
    because: str | None
    is_open: bool


@dataclass(frozen=True, slots=True, eq=False)
class MetricHistory:
    """The history of a metric. `level_from` to `level_to`: positions of the runs that define its
    level: those since the last change, or before the alarm."""

    metric: str
    unit: str
    frame: pl.DataFrame
    changes: tuple[HistoryChange, ...]
    drifts: tuple[Drift, ...]
    two_modes: tuple[float, float, float] | None
    newest: Newest | None
    level_from: int
    level_to: int

    @property
    def values(self) -> Reals:
        return self.frame["value"].to_numpy()

    @property
    def alarm(self) -> HistoryChange | None:
        """The open change: slower, not accepted and not gone; None if there is none."""
        return next((each for each in self.changes if each.is_open), None)

    @property
    def level(self) -> float:
        """The median of the runs that define the level, with which later runs are compared."""
        return float(np.median(self.values[self.level_from : self.level_to]))

    @property
    def since(self) -> int:
        """Position of the first run after the last change, accepted or not."""
        return self.changes[-1].change.at if self.changes else 0

    @property
    def now(self) -> float:
        """The median of the runs since the last change."""
        return float(np.median(self.values[self.since :]))

    @property
    def has_alarm(self) -> bool:
        """Whether the newest runs are on a level that was not accepted."""
        return self.level_to < len(self.values)


def metric_history(
    metric: str, frame: pl.DataFrame, accepted: Iterable[Accepted] = (), *, family: int = 1
) -> MetricHistory:
    """Compute the history of `metric` from at least one run."""
    values = frame["value"].to_numpy()
    found = change_points(values)
    places = {run: at for at, run in enumerate(frame["run"])}
    own = [each for each in accepted if each.metric == metric and each.run in places]
    reasons = {places[each.run]: each for each in own}
    points = _with_accepted(values, found, reasons)
    changes, level_from, level_to = _judged(metric, frame, points, reasons)
    since = points[-1].at if points else 0
    last = newest(values[since:], family=family, earlier=_residuals(values, points))
    two, modes = None, found.modes
    if modes is not None and values.min() > 0:
        middle, shift = np.median(values[since:]), np.median(relative(values[since:]))
        low, high = (middle * np.exp(each - shift) for each in (modes.low, modes.high))
        two = float(low), float(high), modes.share
    unit = str(frame["unit"][-1])
    return MetricHistory(
        metric, unit, frame, changes, found.drifts, two, last, level_from, level_to
    )


def _with_accepted(values: Reals, found: Found, reasons: dict[int, Accepted]) -> list[Change]:
    """Return the detected changes, and those that were accepted before they could be detected."""
    points = list(found.changes)
    for at in reasons:
        if at > 0 and all(abs(at - each.at) > _NEAR for each in points):
            before = float(np.median(values[max(0, at - 30) : at]))
            after = float(np.median(values[at : at + 30]))
            change = after / before - 1 if before else 0.0
            points.append(Change(at, before, after, change, 1.0))
    return sorted(points, key=lambda each: each.at)


def _judged(
    metric: str, frame: pl.DataFrame, points: list[Change], reasons: dict[int, Accepted]
) -> tuple[tuple[HistoryChange, ...], int, int]:
    """Return each change with its reason and state, and the range of runs that define the level."""
    start, opened = 0, None
    rows = frame.select("run", "run_id", "commit", "time_ns", "place", "value")
    judged: list[HistoryChange] = []
    for each in points:
        near = next((reasons[at] for at in reasons if abs(at - each.at) <= _NEAR), None)
        if opened is not None and (near or each.after <= opened.before * (1 + _BACK)):
            opened = None
        if opened is None and each.after > each.before and near is None:
            opened = each
        elif opened is None:
            start = each.at
        good, bad = (rows.row(at, named=True) for at in (each.at - 1, each.at))
        name = near.name if near else change_name(metric, bad["run"])
        reason = near.because if near else None
        judged.append(HistoryChange(name, each, good, bad, reason, is_open=False))
    if opened is None:
        return tuple(judged), start, len(frame)
    changes = (replace(each, is_open=each.change is opened) for each in judged)
    return tuple(changes), start, opened.at


def _residuals(values: Reals, points: list[Change]) -> Reals:
    """The relative deviations of the runs before the last change, each from its own level."""
    parts = []
    edges = [0, *(each.at for each in points)]
    for begin, end in pairwise(edges):
        if end - begin > 1:
            part = relative(values[begin:end])
            parts.append(part - float(clipped(part).mean()))
    return np.concatenate(parts) if parts else np.empty(0)


# --- The state of a history, of its changes, and of each of its runs, as codes.
#
# state_of(past)                   # steady, a change that was not accepted, a drift, …
# run_verdicts(past)               # one RunVerdict per run, in the order of the history
# levels(past)                     # the median of the runs between the changes around each run


class RunVerdict(StrEnum):
    """The verdict on a run within its history."""

    ON_LEVEL = "on_level"
    FIRST_BAD = "first_bad"  # after a change to slower
    FIRST_FASTER = "first_faster"  # after a change to faster
    FIRST_ACCEPTED = "first_accepted"  # after a change that was accepted
    NOT_ACCEPTED = "not_accepted"  # on a slower level that was not accepted
    DRIFT = "drift"
    OUTSIDE = "outside"  # one of the newest runs, beyond what the history predicts


class ChangeState(StrEnum):
    """The state of a change."""

    ALARM = "alarm"  # slower, neither accepted nor gone; also later ones beyond it
    ACCEPTED = "accepted"
    FASTER = "faster"
    GONE = "gone"  # slower, but reverted by a later or an accepted change


class State(StrEnum):
    """The state of a history: the first that applies, in this order."""

    CHANGE = "change"  # slower, and neither accepted nor gone
    OUTSIDE = "outside"  # its newest runs
    DRIFT = "drift"  # until its newest run
    TWO_MODES = "two_modes"
    ACCEPTED = "accepted"  # its last change
    FEW = "few"  # fewer runs than any of these needs
    STEADY = "steady"


def change_state(past: MetricHistory, each: HistoryChange) -> ChangeState:
    """Return the state of a change of this history."""
    if each.because is not None:
        return ChangeState.ACCEPTED
    if each.change.after <= each.change.before:
        return ChangeState.FASTER
    alarm = past.alarm
    if alarm is not None and each.change.at >= alarm.change.at:
        return ChangeState.ALARM
    return ChangeState.GONE


def state_of(past: MetricHistory) -> State:
    """The state of a history at its newest run."""
    if past.alarm is not None:
        return State.CHANGE
    if past.newest is not None and past.newest.outside:
        return State.OUTSIDE
    if any(each.end == len(past.values) for each in past.drifts):
        return State.DRIFT
    if past.two_modes is not None:
        return State.TWO_MODES
    if past.changes and past.changes[-1].because is not None:
        return State.ACCEPTED
    return State.FEW if past.newest is None and not past.changes else State.STEADY


def run_verdicts(past: MetricHistory) -> list[RunVerdict]:
    """Return the verdict on each run; the first run of a change gets the change's verdict."""
    n = len(past.values)
    found = [RunVerdict.ON_LEVEL] * n
    for drift in past.drifts:
        for at in range(max(drift.first, 0), min(drift.end, n)):
            found[at] = RunVerdict.DRIFT
    for at in range(past.level_to, n):
        found[at] = RunVerdict.NOT_ACCEPTED
    if past.newest is not None and past.newest.outside:
        for at in range(n - past.newest.runs, n):
            found[at] = RunVerdict.OUTSIDE
    first = {
        ChangeState.ACCEPTED: RunVerdict.FIRST_ACCEPTED,
        ChangeState.FASTER: RunVerdict.FIRST_FASTER,
    }
    for each in past.changes:
        found[each.change.at] = first.get(change_state(past, each), RunVerdict.FIRST_BAD)
    return found


def levels(past: MetricHistory) -> Reals:
    """The median of the runs between the changes around each run, in the unit of the values."""
    edges = [0, *(each.change.at for each in past.changes), len(past.values)]
    parts = [past.values[begin:end] for begin, end in pairwise(edges)]
    return np.concatenate([np.full(len(part), np.median(part)) for part in parts])
