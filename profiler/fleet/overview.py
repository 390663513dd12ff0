"""All runs of a data set at one look: newest, slowest, and the history of each workload.

    found = overview(Dataset("fleet/"), ["elapsed"])
    found.runs              # a row a run of good quality, with the median of the runs like it
    found.workloads         # the histories of each group of comparable runs
    found.bad, found.apart  # what takes no part, and why

Histories are those of `fleet history`; the levels of their tests are shared by all histories that
are looked at together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from profiler.errors import InputError
from profiler.fleet.accepted import Accepted, accepted_changes
from profiler.fleet.apart import Apart, comparable_with_none
from profiler.fleet.dataset import Dataset
from profiler.fleet.identity import groups
from profiler.fleet.metric_history import MetricHistory, metric_history
from profiler.fleet.states import State, state_of
from profiler.fleet.workloads import identities, names

__all__ = ["Overview", "Workload", "overview"]

_URGENT = tuple(State)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A group of comparable runs: its `name` among all, its `identity` by field, how many `runs`,
    and the history of each metric that they have, in the order asked for."""

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
    """What `metrics` show over all runs; their first is what `runs` and `bad` have.

    `runs`: a row a run of good quality, by time: `run, run_id, time_ns, commit, place, quality,
    drops, residual, tracing_cost, workload, value, unit`, `median` of the runs like it, and
    `against`: the value over that, less 1. Of a run that is comparable with none `workload`,
    `median` and `against` are null, of one without the metric `value` is. `bad`: the same of runs
    of bad quality, without what they would be held against. `workloads`: the most urgent first.
    `apart`: runs that are comparable with none.
    """

    metrics: tuple[str, ...]
    unit: str
    runs: pl.DataFrame
    bad: pl.DataFrame
    workloads: tuple[Workload, ...]
    apart: tuple[Apart, ...]

    @property
    def histories(self) -> Iterator[tuple[Workload, MetricHistory]]:
        """All histories, with whose they are."""
        return ((each, past) for each in self.workloads for past in each.histories)


def overview(
    data: Dataset,
    metrics: Sequence[str] = ("elapsed",),
    where: Sequence[str] = (),
    *,
    assume_same: Sequence[str] = (),
    quality: bool = False,
) -> Overview:
    """Look at all runs that meet the conditions; runs of bad quality stand apart unless `quality`
    is set. Raises InputError where there is none, or none has the first metric, and for a metric or
    condition that is none."""
    asked = tuple(dict.fromkeys(metrics))
    runs = data.runs(where)
    if runs.is_empty():
        raise InputError(f"{data.storage.place} has no run that meets --where: change it")
    values = data.metrics(asked, where, quality=True)
    first = values.filter(pl.col("name") == asked[0])
    if first.is_empty():
        known = ", ".join(data.names(where)[:6])
        raise InputError(f"no run has {asked[0]}: there is {known}, …")
    is_good = pl.lit(value=True) if quality else pl.col("quality") == ""
    grouped = groups(runs.filter(is_good), assume_same)
    workloads = _workloads(grouped, values, asked, accepted_changes(data.storage))
    named = {each.group: each.name for each in workloads}
    return Overview(
        asked,
        str(first["unit"][-1]),
        _held(_with_values(grouped, first, named)),
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
    told = grouped.select(
        *_SHOWN,
        "group",
        workload=pl.col("group").replace_strict(named, default=None, return_dtype=pl.String),
    )
    own = values.select("run", "value", "unit")
    return told.join(own, on="run", how="left", maintain_order="left")


def _held(runs: pl.DataFrame) -> pl.DataFrame:
    """`runs` against the median of the runs like each."""
    middle = pl.when(pl.col("group").is_not_null()).then(pl.col("value").median().over("group"))
    against = pl.when(pl.col("median") > 0).then(pl.col("value") / pl.col("median") - 1)
    return runs.with_columns(median=middle).with_columns(against=against)


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
