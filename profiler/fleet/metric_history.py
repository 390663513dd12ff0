"""The history of one metric: where it changed, what was accepted, and what counts as its level now.

    past = metric_history("denoise.step", frame, accepted_changes(storage))
    past.changes      # with the runs before and after, and whether anybody accepted them
    past.alarm        # the change that is slower, and neither accepted nor gone
    past.newest       # whether the newest runs are outside, by the sequential test

`frame` is what `Dataset.history` returns for comparable runs, in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from profiler.fleet.accepted import Accepted, change_name
from profiler.fleet.change_points import Change, Drift, Found, change_points
from profiler.fleet.newest import ALPHA, Newest, newest
from profiler.fleet.scatter import Reals, clipped, relative

__all__ = ["HistoryChange", "MetricHistory", "metric_history"]

_NEAR = 3  # runs by which the place of a change may move as runs are added
_BACK = 0.01  # a change is gone where the level is within this of the one before it


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """A change of level: `name` as `fleet accept` takes it, the rows of the last good and the first
    bad run, and the reason where it is accepted. `is_open`: slower, not accepted, not gone."""

    name: str
    change: Change
    good: dict[str, Any]
    bad: dict[str, Any]
    because: str | None
    is_open: bool


@dataclass(frozen=True, slots=True, eq=False)
class MetricHistory:
    """What the history of a metric shows. `level_from` to `level_to`: positions of the runs that
    tell its level: those since the last change, or before the alarm."""

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
        """The change that nobody has accepted and that is not gone."""
        return next((each for each in self.changes if each.is_open), None)

    @property
    def level(self) -> float:
        """The median of the runs that tell the level, which later runs are held against."""
        return float(np.median(self.values[self.level_from : self.level_to]))

    @property
    def now(self) -> float:
        """The median since the last change, accepted or not."""
        return float(np.median(self.values[self.changes[-1].change.at if self.changes else 0 :]))

    @property
    def has_alarm(self) -> bool:
        """Whether the newest runs are on a level that nobody has accepted."""
        return self.level_to < len(self.values)


def metric_history(
    metric: str,
    frame: pl.DataFrame,
    accepted: Iterable[Accepted] = (),
    *,
    alpha: float = ALPHA,
    family: int = 1,
) -> MetricHistory:
    """The history of `metric`, of at least one run."""
    values = frame["value"].to_numpy()
    found = change_points(values)
    reasons = _reasons(metric, frame["run"].to_list(), accepted)
    points = _with_accepted(values, found, reasons)
    changes, level_from, level_to = _judged(metric, frame, points, reasons)
    since = points[-1].at if points else 0
    last = newest(values[since:], alpha=alpha, family=family, earlier=_residuals(values, points))
    modes = found.modes
    scale = relative(values[since:])
    shift = float(np.median(scale)) if len(scale) else 0.0
    middle = float(np.median(values[since:])) if len(scale) else 0.0
    two = None
    if modes is not None and values.min() > 0:
        low, high = (middle * np.exp(each - shift) for each in (modes.low, modes.high))
        two = float(low), float(high), modes.share
    unit = str(frame["unit"][-1])
    return MetricHistory(
        metric, unit, frame, changes, found.drifts, two, last, level_from, level_to
    )


def _reasons(metric: str, runs: Sequence[str], accepted: Iterable[Accepted]) -> dict[int, Accepted]:
    """What was accepted of this metric, by the position of the run."""
    places = {run: at for at, run in enumerate(runs)}
    return {
        places[each.run]: each for each in accepted if each.metric == metric and each.run in places
    }


def _with_accepted(values: Reals, found: Found, reasons: dict[int, Accepted]) -> list[Change]:
    """The changes that were found, and those that were accepted before they can be."""
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
    """Each change with its reason; and which runs tell the level."""
    n, start, open_at = len(frame), 0, None
    ends = [*(each.at for each in points[1:]), n][: len(points)]
    judged: list[HistoryChange] = []
    base = 0.0
    for number, (each, end) in enumerate(zip(points, ends, strict=True)):
        near = [at for at in reasons if abs(at - each.at) <= _NEAR]
        reason = reasons[near[0]].because if near else None
        slower = each.after > each.before
        if open_at is not None and (reason is not None or each.after <= base * (1 + _BACK)):
            open_at = None
        if open_at is None and slower and reason is None:
            open_at, base = number, each.before
            level_to = each.at
        elif open_at is None:
            start, level_to = each.at, end
        rows = frame.select("run", "run_id", "commit", "time_ns", "place", "value")
        good, bad = (rows.row(at, named=True) for at in (each.at - 1, each.at))
        name = reasons[near[0]].name if near else change_name(metric, bad["run"])
        judged.append(HistoryChange(name, each, good, bad, reason, is_open=False))
    if open_at is not None:
        judged[open_at] = replace(judged[open_at], is_open=True)
        return tuple(judged), start, level_to
    return tuple(judged), start, n


def _residuals(values: Reals, points: list[Change]) -> Reals:
    """Relative deviations of the runs before the last change from the level of their stretch."""
    parts = []
    edges = [0, *(each.at for each in points)]
    for begin, end in pairwise(edges):
        if end - begin > 1:
            part = relative(values[begin:end])
            parts.append(part - float(clipped(part).mean()))
    return np.concatenate(parts) if parts else np.empty(0)
