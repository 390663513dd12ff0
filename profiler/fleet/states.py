"""What a history has come to, its changes, and each of its runs, as codes.

state_of(past)                   # steady, a change that nobody has accepted, a drift, …
run_verdicts(past)               # a RunVerdict a run, in the order of the history
levels(past)                     # the median of the runs between the changes around each run
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

import numpy as np

from profiler.fleet.metric_history import HistoryChange, MetricHistory
from profiler.fleet.scatter import Reals

__all__ = [
    "ChangeState",
    "RunVerdict",
    "State",
    "change_state",
    "levels",
    "run_verdicts",
    "state_of",
]


class RunVerdict(StrEnum):
    """What a run is in its history."""

    ON_LEVEL = "on_level"
    FIRST_BAD = "first_bad"  # after a change to slower
    FIRST_FASTER = "first_faster"  # after a change to faster
    FIRST_ACCEPTED = "first_accepted"  # after a change that somebody accepted
    NOT_ACCEPTED = "not_accepted"  # on a slower level that nobody has accepted
    DRIFT = "drift"
    OUTSIDE = "outside"  # one of the newest runs, which the history does not expect


class ChangeState(StrEnum):
    """What has become of a change."""

    ALARM = "alarm"  # slower, neither accepted nor gone; also a further one beyond such a one
    ACCEPTED = "accepted"
    FASTER = "faster"
    GONE = "gone"  # slower, and a later change took it back, or the one accepted after it


class State(StrEnum):
    """What a history has come to; the first that holds, in this order."""

    CHANGE = "change"  # slower, and neither accepted nor gone
    OUTSIDE = "outside"  # its newest runs
    DRIFT = "drift"  # until its newest run
    TWO_MODES = "two_modes"
    ACCEPTED = "accepted"  # its last change
    FEW = "few"  # runs: fewer than any of these could be told from
    STEADY = "steady"


def change_state(past: MetricHistory, each: HistoryChange) -> ChangeState:
    """What has become of a change of this history."""
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
    """What each run is; a change tells more of its first run than what that lies in."""
    n = len(past.values)
    found = [RunVerdict.ON_LEVEL] * n
    for drift in past.drifts:
        for at in range(max(drift.first, 0), min(drift.end, n)):
            found[at] = RunVerdict.DRIFT
    if past.has_alarm:
        for at in range(past.level_to, n):
            found[at] = RunVerdict.NOT_ACCEPTED
    if past.newest is not None and past.newest.outside:
        for at in range(n - past.newest.runs, n):
            found[at] = RunVerdict.OUTSIDE
    for each in past.changes:
        slower = each.change.after > each.change.before
        found[each.change.at] = (
            RunVerdict.FIRST_ACCEPTED
            if each.because is not None
            else RunVerdict.FIRST_BAD
            if slower
            else RunVerdict.FIRST_FASTER
        )
    return found


def levels(past: MetricHistory) -> Reals:
    """The median of the runs between the changes around each run, in the unit of the values."""
    n = len(past.values)
    found = np.empty(n)
    for begin, end in pairwise([0, *(each.change.at for each in past.changes), n]):
        found[begin:end] = np.median(past.values[begin:end]) if end > begin else 0.0
    return found
