"""Compare runs of a data set by one field, gate one against its history, and look over all.

    compared = compare(Dataset("fleet/"), "hardware")
    result = gate(data, "newest", ["denoise.step"], limit=0.05)
    result.verdicts[0].failed
    overview(data).workloads    # the histories of each group of comparable runs

Two values are compared only if all other fields of the identity agree. A metric fails the gate
if the newest runs are outside their history and slower than the limit. It also fails if the run
is on a slower level that has not been accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.errors import InputError
from profiler.fleet.change_points import ratio_interval, runs_needed
from profiler.fleet.dataset import (
    FIELDS,
    IDENTIFYING,
    Apart,
    Dataset,
    comparable_with_none,
    differences,
    groups,
    identities,
    names,
)
from profiler.fleet.history import (
    Accepted,
    MetricHistory,
    Newest,
    State,
    accepted_changes,
    history_needed,
    metric_history,
    named_run,
    newest,
    state_of,
)
from profiler.tools.metrics import median_interval

# --- Runs side by side by one field of their identity: hardware, software, resolution, …
#
#     compared = compare(Dataset("fleet/"), "hardware")
#     compared.rows         # one row per workload, value of the field and metric
#     compared.apart        # what was not compared, and why
#
# Two values are compared if all other fields of the identity agree.


DEFAULT_METRICS = ("elapsed", "denoise.step")

_SCHEMA = {
    "workload": pl.String(),
    "value": pl.String(),
    "metric": pl.String(),
    "runs": pl.Int64(),
    "median": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "unit": pl.String(),
    "ratio": pl.Float64(),
    "ratio_low": pl.Float64(),
    "ratio_high": pl.Float64(),
    "verdict": pl.String(),
    "needs": pl.Int64(),
}


class Verdict(StrEnum):
    """The verdict on the runs of one value relative to the base, the value with most runs."""

    BASE = "base"
    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no_difference"  # that this number of runs could show
    NEEDS_MORE = "needs_more"
    ALONE = "alone"  # nothing to compare with


class Compared(Struct, frozen=True):
    """The comparison: `rows` with the columns in `docs/fleets.md`, medians and intervals in the
    metric's unit, ratios to the base's median; `apart` are the runs that were not compared."""

    rows: pl.DataFrame
    apart: tuple[Apart, ...]


def compare(  # one argument per option of a comparison
    data: Dataset,
    by: str,
    metrics: Sequence[str] = DEFAULT_METRICS,
    where: Sequence[str] = (),
    *,
    assume_same: Sequence[str] = (),
    ignored: Sequence[str] = (),
    quality: bool = False,
) -> Compared:
    """Compare the runs by a field of their identity. Other fields can be `ignored`, or assumed to
    agree if they are unknown. Runs of bad quality are left out unless `quality` is set. Raises
    InputError for an invalid metric or condition."""
    runs = data.runs(where, IDENTIFYING)
    good = runs if quality else runs.filter(pl.col("quality") == "")
    left_out = (by, *ignored)
    grouped = groups(good, assume_same, left_out).with_columns(value=pl.col(by).cast(pl.String))
    known = grouped.filter(pl.col("group").is_not_null() & pl.col("value").is_not_null())
    values = (
        data.metrics(metrics, where, quality=quality)
        .join(known.select("run", "group", "value", *FIELDS), on="run", suffix="_of_run")
        .rename({"value": "number", "value_of_run": "value"})
    )
    rows: list[tuple[object, ...]] = []
    for (_, name), part in values.group_by("group", "name", maintain_order=True):
        rows += _rows(str(name), part, left_out)
    bad = len(runs) - len(good)
    example = runs.filter(pl.col("quality") != "")["run_id"].first() if bad else ""
    lacking = grouped.filter(pl.col("group").is_null() | pl.col("value").is_null())
    apart = comparable_with_none(lacking, assume_same, ignored, by)
    apart += [Apart(bad, str(example), (), bad_quality=True)] if bad else []
    found = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    return Compared(found.sort("workload", "metric", maintain_order=True), tuple(apart))


def _rows(metric: str, part: pl.DataFrame, left_out: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of one workload and metric, first the base, which has most runs."""
    grouped = part.group_by("value", maintain_order=True).agg("number")
    by_value: dict[str, list[float]] = dict(grouped.select("value", "number").iter_rows())
    ordered = sorted(by_value.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    base = ordered[0][1]
    workload = _workload(part.row(0, named=True), left_out)
    for number, (value, numbers) in enumerate(ordered):
        ratio = ratio_interval(numbers, base) if number else (1.0, 1.0, 1.0)
        needs = max(runs_needed(numbers), runs_needed(base) if number else 0)
        verdict = difference_verdict(*ratio[1:], needs) if number else Verdict.BASE
        verdict = Verdict.ALONE if len(ordered) == 1 else verdict
        counts = (len(numbers), *median_interval(numbers), part["unit"][0])
        yield (workload, value, metric, *counts, *ratio, verdict.value, runs_needed(numbers))


def difference_verdict(low: float | None, high: float | None, needs: int) -> Verdict:
    """Return the verdict on a ratio's interval; if it has 1, more runs may be needed."""
    if low is None or high is None:
        return Verdict.NEEDS_MORE
    if low > 1:
        return Verdict.SLOWER
    if high < 1:
        return Verdict.FASTER
    return Verdict.NEEDS_MORE if needs else Verdict.NO_DIFFERENCE


def _workload(row: Mapping[str, Any], left_out: Sequence[str]) -> str:
    """Describe a group of runs in a few words."""
    parts = {
        "model": "{}",
        "pipeline": "{}",
        "steps": "{} steps",
        "resolution": "{}",
        "batch_size": "batch {}",
        "hardware": "{}",
        "software": "{}",
    }
    shown = [name for name in parts if name not in left_out and row[name] not in (None, "")]
    if "model" in shown and "pipeline" in shown:
        shown.remove("pipeline")
    return ", ".join(parts[name].format(row[name]) for name in shown)


# --- The gate: is a run of a data set outside the history of comparable runs?
#
#     found = gate(data, "newest", ["denoise.step"], limit=0.05)
#     found.verdicts[0].failed
#
# A metric fails if the run, or the newest few with it, are outside their history (`newest`) and
# slower by more than the limit; or if the history has a slower level that was not accepted, and
# the run is on it.


NEWEST = "newest"


class Outcome(StrEnum):
    """The gate's result for a metric."""

    WITHIN = "within"  # its history
    WITHIN_LIMIT = "within_limit"  # slower than its history, by no more than the limit
    FASTER = "faster"
    SLOWER = "slower"
    ALARM = "alarm"  # on a slower level that was not accepted


@dataclass(frozen=True, slots=True, eq=False)
class GateVerdict:
    """The gate's verdict on one metric: its value, the number of earlier runs, the test's result
    (`runs`, `change`, `expected`, `low`, `high`) and the smallest slowdown of a single run that it
    can detect (`sees`)."""

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
    "damaged": "its recording is damaged",
    "contradiction": "its figures contradict each other",
}


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """The gate's result: the run's row of `runs`, the limit, and a verdict per metric."""

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
    """Test a run (key, name, or `newest`) of the data set against the comparable runs before it.

    Raises InputError if that is not possible: the run does not exist or is of bad quality, none is
    comparable, there are too few, or they lack the metric.
    """
    runs = data.some_runs(where, IDENTIFYING)
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
        _gate_verdict(
            name, earlier.filter(pl.col("name") == name), row, limit, accepted, len(names)
        )
        for name in names
    ]
    return Gate(row, limit, tuple(verdicts))


def bad_quality_text(run: str, quality: str) -> str:
    """Explain why a run of bad quality (its column `quality`) is not tested, and what to do."""
    parts = quality.split(",")
    what = ", ".join(_BAD.get(part, part) for part in parts)
    cheaper = "" if "tracing_cost" not in parts else ", with --ops none or --ops first,last"
    return f"{run} is of bad quality ({what}), so its times tell nothing: record it again{cheaper}"


def comparable(
    runs: pl.DataFrame, row: dict[str, Any], assume_same: Sequence[str] = ()
) -> pl.DataFrame:
    """The runs that are comparable with the run of `row`, itself included. Raises InputError, with
    the field, if there is none."""
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
        f"{each.field} {each.one} ≠ {each.other}"
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
    """Return the runs in the group of the run of `row`; none if one of its fields is unknown."""
    grouped = groups(runs, assume_same)
    own = grouped.filter(pl.col("run") == row["run"])["group"][0]
    if own is None:
        return grouped.clear()
    return grouped.filter(pl.col("group") == own)


def _gate_verdict(
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


# --- The overview of a data set: newest and slowest runs, and the history of each workload.
#
#     found = overview(Dataset("fleet/"), ["elapsed"])
#     found.runs              # one row per run of good quality, with the median of comparable runs
#     found.workloads         # the histories of each group of comparable runs
#     found.bad, found.apart  # runs that are left out, and why
#
# Histories are those of `fleet history`; the levels of their tests are shared by all histories of
# the overview.


_URGENT = tuple(State)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A group of comparable runs: its distinguishing `name`, its `identity` by field, the number of
    `runs`, and the history of each requested metric that they have."""

    group: str
    name: str
    identity: dict[str, Any]
    runs: int
    histories: tuple[MetricHistory, ...]

    @property
    def state(self) -> State:
        """The most urgent state of its histories."""
        return min(map(state_of, self.histories), key=_URGENT.index)


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """The overview of `metrics` over all runs; `runs` and `bad` are about the first of them.

    `runs`: one row per run of good quality, by time: `run, run_id, time_ns, commit, place, quality,
    drops, residual, tracing_cost, workload, value, unit`, `median` of the comparable runs, and
    `against`: the value over that median, minus 1. `workload`, `median` and `against` are null for
    a run that is comparable with none, `value` for one without the metric. `bad`: the same for runs
    of bad quality, without median and `against`. `workloads`: the most urgent first. `apart`: runs
    that are comparable with none.
    """

    metrics: tuple[str, ...]
    unit: str
    runs: pl.DataFrame
    bad: pl.DataFrame
    workloads: tuple[Workload, ...]
    apart: tuple[Apart, ...]

    @property
    def histories(self) -> Iterator[tuple[Workload, MetricHistory]]:
        """Yield all histories, each with its workload."""
        return ((each, past) for each in self.workloads for past in each.histories)


def overview(
    data: Dataset,
    metrics: Sequence[str] = ("elapsed",),
    where: Sequence[str] = (),
    *,
    assume_same: Sequence[str] = (),
    quality: bool = False,
) -> Overview:
    """Make the overview of all runs that meet the conditions; runs of bad quality are separate
    unless `quality` is set. Raises InputError if there is no run, or none has the first metric, and
    for an invalid metric or condition."""
    asked = tuple(dict.fromkeys(metrics))
    runs = data.some_runs(where)
    values = data.metrics(asked, where, quality=True)
    first = values.filter(pl.col("name") == asked[0])
    if first.is_empty():
        known = ", ".join(data.names(where)[:6])
        raise InputError(f"no run has {asked[0]}: there is {known}, …")
    is_good = pl.lit(value=True) if quality else pl.col("quality") == ""
    grouped = groups(runs.filter(is_good), assume_same)
    workloads = _workloads(grouped, values, asked, accepted_changes(data.storage))
    named = {each.group: each.name for each in workloads}
    # Each run relative to the median of comparable runs.
    middle = pl.when(pl.col("group").is_not_null()).then(pl.col("value").median().over("group"))
    held = _with_values(grouped, first, named).with_columns(median=middle)
    against = pl.when(pl.col("median") > 0).then(pl.col("value") / pl.col("median") - 1)
    return Overview(
        asked,
        str(first["unit"][-1]),
        held.with_columns(against=against),
        _with_values(runs.filter(~is_good).with_columns(group=pl.lit(None, pl.String)), first, {}),
        workloads,
        tuple(comparable_with_none(grouped.filter(pl.col("group").is_null()), assume_same)),
    )


_SHOWN = (
    *("run", "run_id", "time_ns", "commit", "place"),
    *("quality", "drops", "residual", "tracing_cost"),
)


def _with_values(
    grouped: pl.DataFrame, values: pl.DataFrame, named: dict[str, str]
) -> pl.DataFrame:
    per_group = grouped.select(
        *_SHOWN,
        "group",
        workload=pl.col("group").replace_strict(named, default=None, return_dtype=pl.String),
    )
    own = values.select("run", "value", "unit")
    return per_group.join(own, on="run", how="left", maintain_order="left")


def _workloads(
    grouped: pl.DataFrame,
    values: pl.DataFrame,
    metrics: Sequence[str],
    accepted: Sequence[Accepted],
) -> tuple[Workload, ...]:
    known = identities(grouped)
    named = names(known)
    like = values.join(grouped.select("run", "group").drop_nulls(), on="run", how="inner")
    parts = like.sort("time_ns", "run").partition_by("group", "name", as_dict=True)
    counts = dict(grouped.group_by("group").len().iter_rows())
    found = []
    for group, identity in known.items():
        histories = tuple(
            metric_history(metric, parts[group, metric], accepted, family=len(parts))
            for metric in metrics
            if (group, metric) in parts
        )
        if histories:
            found.append(Workload(group, named[group], identity, counts[group], histories))
    return tuple(sorted(found, key=lambda each: _URGENT.index(each.state)))
