"""The gate: is a run of a data set outside the history of runs like it?

    found = gate(data, "newest", ["denoise.step"], limit=0.05)
    found.verdicts[0].failed

A metric fails where the run, or the newest few with it, are outside their history (`newest`) and
slower by more than the limit; or where the history has a slower level that nobody has accepted, and
the run is on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from profiler.errors import InputError
from profiler.fleet.accepted import Accepted, accepted_changes, named_run
from profiler.fleet.dataset import Dataset
from profiler.fleet.identity import IDENTIFYING, differences, groups
from profiler.fleet.metric_history import MetricHistory, metric_history
from profiler.fleet.newest import Newest, history_needed, newest

__all__ = [
    "NEWEST",
    "Gate",
    "GateVerdict",
    "Outcome",
    "bad_quality_text",
    "comparable",
    "gate",
    "like",
]

NEWEST = "newest"


class Outcome(StrEnum):
    """What the gate says of a metric."""

    WITHIN = "within"  # its history
    WITHIN_LIMIT = "within_limit"  # slower than its history, by no more than the limit
    FASTER = "faster"
    SLOWER = "slower"
    ALARM = "alarm"  # on a slower level that nobody has accepted


@dataclass(frozen=True, slots=True, eq=False)
class GateVerdict:
    """A metric of the run: its value, how many runs it is held against, the test's answer (`runs`,
    `change`, `expected`, `low`, `high`) and the least slowdown of a single run that it can see."""

    metric: str
    unit: str
    value: float
    runs: int
    newest: Newest
    outcome: Outcome
    change: float
    sees: float
    history: MetricHistory

    @property
    def failed(self) -> bool:
        return self.outcome in (Outcome.SLOWER, Outcome.ALARM)


_BAD = {
    "drops": "events were dropped",
    "residual": "time that no stage accounts for",
    "tracing_cost": "tracing took much of its time",
}


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """The row of the run in `runs`, the limit, and a verdict a metric."""

    run: dict[str, Any]
    limit: float
    verdicts: tuple[GateVerdict, ...]

    @property
    def failed(self) -> bool:
        return any(each.failed for each in self.verdicts)


def gate(
    data: Dataset,
    run: str,
    metrics: Sequence[str],
    limit: float,
    *,
    where: Sequence[str] = (),
    assume_same: Sequence[str] = (),
) -> Gate:
    """Hold a run (key, name, or `newest`) of the data set against those before it that are like it.

    Raises InputError where that cannot be told: the run is not there or of bad quality, none is
    comparable, there are too few, or they have no such metric.
    """
    runs = data.runs(where, IDENTIFYING)
    if runs.is_empty():
        raise InputError(f"{data.storage.place} has no run that meets --where: change it")
    row = runs.row(-1, named=True) if run == NEWEST else named_run(runs, run)
    if row["quality"]:
        raise InputError(bad_quality_text(str(row["run_id"]), str(row["quality"])))
    same = comparable(runs, row, assume_same)
    accepted = accepted_changes(data.storage)
    frame = data.metrics(metrics, where)
    frame = frame.join(same.select("run"), on="run", how="semi", maintain_order="left")
    earlier = frame.filter(
        (pl.col("time_ns") < row["time_ns"])
        | ((pl.col("time_ns") == row["time_ns"]) & (pl.col("run") <= row["run"]))
    )
    names = list(dict.fromkeys(metrics))
    verdicts = [
        _verdict(name, earlier.filter(pl.col("name") == name), row, limit, accepted, len(names))
        for name in names
    ]
    return Gate(row, limit, tuple(verdicts))


def bad_quality_text(run: str, quality: str) -> str:
    """Why a run is held against nothing, as its column `quality` has it, and what to do."""
    parts = quality.split(",")
    what = ", ".join(_BAD.get(part, part) for part in parts)
    cheaper = "" if "tracing_cost" not in parts else ", with --ops none or --ops first,last"
    return f"{run} is of bad quality ({what}), so its times tell nothing: record it again{cheaper}"


def comparable(
    runs: pl.DataFrame, row: dict[str, Any], assume_same: Sequence[str] = ()
) -> pl.DataFrame:
    """The runs that are comparable with the run of `row`, itself included. Raises InputError, with
    the field, where there is none."""
    found = like(runs, row, assume_same)
    if len(found) > 1:
        return found
    others = runs.filter(pl.col("run") != row["run"])
    if others.is_empty():
        raise InputError(
            f"the data set has no run but {row['run_id']}: add the runs before it, at least 8"
        )
    apart = [differences(row, other, assume_same) for other in others.tail(50).to_dicts()]
    nearest = min(apart, key=len)
    texts = [
        f"{each.field} {_known(each.one)} ≠ {_known(each.other)}"
        for each in nearest[:3]
        if each.one is not None and each.other is not None
    ]
    unknown = [each.field for each in nearest if None in (each.one, each.other)]
    if unknown and not texts:
        raise InputError(
            f"{row['run_id']} is not comparable: nobody recorded {', '.join(unknown)}: give "
            f"--assume-same {','.join(unknown)}"
        )
    raise InputError(
        f"{row['run_id']} is not comparable with any run: {', '.join(texts)}: add runs like it"
    )


def like(runs: pl.DataFrame, row: dict[str, Any], assume_same: Sequence[str] = ()) -> pl.DataFrame:
    """The runs in the group of the run of `row`; none where a field of it is unknown."""
    grouped = groups(runs, assume_same)
    own = grouped.filter(pl.col("run") == row["run"])["group"][0]
    if own is None:
        return grouped.clear()
    return grouped.filter(pl.col("group") == own)


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)


def _verdict(
    metric: str,
    frame: pl.DataFrame,
    row: dict[str, Any],
    limit: float,
    accepted: Sequence[Accepted],
    family: int,
) -> GateVerdict:
    if frame.is_empty() or frame["run"][-1] != row["run"]:
        raise InputError(f"{row['run_id']} has no {metric}: `profile-sd3 fleet query` shows names")
    needed = history_needed(frame["value"].to_numpy()[:-1], limit, family=family)
    past = metric_history(metric, frame, accepted, family=family) if len(frame) > 1 else None
    tested = None if past is None else past.newest
    if past is not None and past.alarm is not None:
        level = past.values[past.level_from : past.level_to]
        tested = newest(np.append(level, past.values[-1]), family=family) or tested
    if past is None or tested is None:
        raise InputError(
            f"{metric} of {row['run_id']} has too few comparable runs before it, {len(frame) - 1}: "
            f"it needs {max(needed, 1)} more"
        )
    value = float(past.values[-1])
    outcome, change = _outcome(past, tested, value, limit)
    sees = tested.high / tested.expected - 1 if tested.expected else float("inf")
    return GateVerdict(
        metric, past.unit, value, len(frame) - 1, tested, outcome, change, sees, past
    )


def _outcome(
    past: MetricHistory, tested: Newest, value: float, limit: float
) -> tuple[Outcome, float]:
    if past.alarm is not None:
        change = value / past.level - 1
        on_it = tested.outside or abs(value / past.alarm.change.after - 1) < abs(change)
        if change > limit and on_it:
            return Outcome.ALARM, change
        return (Outcome.WITHIN_LIMIT if change > 0 and on_it else Outcome.WITHIN), change
    if not tested.outside:
        return Outcome.WITHIN, value / tested.expected - 1 if tested.expected else 0.0
    if tested.change < 0:
        return Outcome.FASTER, tested.change
    return (Outcome.SLOWER if tested.change > limit else Outcome.WITHIN_LIMIT), tested.change
