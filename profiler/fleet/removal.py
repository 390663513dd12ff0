"""Removing runs from a data set: they stop to count at once, and go with the next compaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec
import polars as pl

from profiler.errors import InputError
from profiler.fleet.conditions import condition
from profiler.fleet.dataset import counted_runs, scan
from profiler.fleet.layout import REMOVED, Removal, batch_name, check_dataset, snapshot
from profiler.fleet.storage import Storage

__all__ = ["remove", "selected"]

_NAMED = 3


def selected(
    storage: Storage,
    runs: Sequence[str] = (),
    where: Sequence[str] = (),
    older_than: timedelta | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> pl.DataFrame:
    """The runs that are meant: those named by key (at least its first 8 digits) or `run_id`, and
    that meet all conditions and are older than that. Raises InputError for a name of no run, or
    a short key of several."""
    check_dataset(storage)
    files = snapshot(storage)
    try:
        found = counted_runs(scan(storage, "runs", files.runs), files.removed).collect()
    except FileNotFoundError as error:
        raise InputError(f"files of {storage.place} go while they are read: try again") from error
    if runs:
        keys = {key for name in runs for key in _named(found, name)}
        found = found.filter(pl.col("run").is_in(sorted(keys)))
    for text in where:
        found = found.filter(condition(text).matches)
    if older_than is not None:
        found = found.filter(pl.col("time_ns") < clock() - int(older_than.total_seconds() * 1e9))
    return found


def remove(storage: Storage, runs: pl.DataFrame) -> int:
    """Remove these rows of `runs`, and all others of the same keys; how many runs that are. A run
    that is added again counts again. Raises OutputError where that cannot be written."""
    if runs.is_empty():
        return 0
    files = snapshot(storage)
    rows = scan(storage, "runs", files.runs).select("run", "batch")
    pairs = rows.join(runs.lazy().select("run"), on="run", how="semi").unique().sort("run", "batch")
    removal = Removal(removed=tuple(pairs.collect().rows()))
    storage.create(f"{REMOVED}/{batch_name()}.json", msgspec.json.encode(removal))
    return len(runs)


def _named(runs: pl.DataFrame, name: str) -> list[str]:
    found = runs.filter((pl.col("run") == name) | (pl.col("run_id") == name))["run"].to_list()
    if not found and len(name) >= 8:
        found = runs.filter(pl.col("run").str.starts_with(name))["run"].to_list()
        if len(found) > 1:
            more = ", ".join(found[:_NAMED])
            raise InputError(f"{name} begins the keys of {len(found)} runs: give more of {more}")
    if not found:
        raise InputError(
            f"the data set has no run {name!r:.80}: give a key or a name that `profile-sd3 fleet "
            "query` shows"
        )
    return found
