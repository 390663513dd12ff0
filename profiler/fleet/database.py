"""SQL over a data set: the sandbox of `query`, with the tables `runs` and `metrics`.

    with open_database(Dataset("fleet/"), timeout_s=60) as database:
        database.ask("select hardware, count(*) from runs group by all")

The tables of one run, commands too, are there for runs that were named: read from their bundles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.fleet.dataset import Dataset
from profiler.fleet.removal import selected
from profiler.fleet.storage import is_url
from profiler.query import Database
from profiler.run.run import Run
from profiler.sources import load

__all__ = ["bundles_of", "open_database"]

_RUNS = re.compile(r"\bruns\b", re.IGNORECASE)
_METRICS = re.compile(r"\bmetrics\b", re.IGNORECASE)
_COUNTED_METRICS = """
SELECT metric_rows.* EXCLUDE (batch)
FROM metric_rows SEMI JOIN counted_runs USING (run, batch)"""
_MOST_BUNDLES = 20


def open_database(
    data: Dataset,
    sql: str,
    where: Sequence[str] = (),
    runs: Mapping[str, Run] | None = None,
    timeout_s: float | None = None,
) -> Database:
    """A database of the runs that meet the conditions and of their metrics, where `sql` names these
    tables, and of the tables of `runs`. Raises InputError for a condition that is none,
    MissingPackageError without DuckDB.

    Metrics are read while a query runs, of their columns those alone that it needs: there may be
    more of them than memory holds.
    """
    tables: dict[str, Any] = {}
    views = {}
    if _METRICS.search(sql):
        tables["counted_runs"], tables["metric_rows"] = data.metric_rows(where)
        views["metrics"] = _COUNTED_METRICS
    if _RUNS.search(sql) or not views:
        tables["runs"] = data.runs(where)
    return Database(dict(runs or {}), timeout_s, tables, views)


def bundles_of(data: Dataset, names: Sequence[str]) -> dict[str, Run]:
    """The runs of these names, read where they lie, by key: so their rows join those of `runs`.
    Raises InputError where one is none, or its bundle is not there any more."""
    if len(names) > _MOST_BUNDLES:
        raise InputError(f"{len(names)} bundles are too many to read at once: name {_MOST_BUNDLES}")
    found: dict[str, Run] = {}
    for run, place in selected(data.storage, names).select("run", "place").rows() if names else ():
        if is_url(place) or not Path(place).exists():
            raise InputError(
                f"the bundle of {run} is not at {place}: bring it back, or leave it out"
            )
        found[run] = load(place)
    return found
