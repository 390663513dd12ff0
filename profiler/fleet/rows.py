"""Summaries of runs → the rows of a batch, and its files."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from profiler.errors import OutputError
from profiler.fleet.layout import batch_name, file_name, partition
from profiler.fleet.storage import Storage
from profiler.metrics import METRICS, RUNS, SCHEMA_VERSION, VALUE_COLUMNS, Summary, schema_of

__all__ = ["ORDER", "Addition", "commit_batch", "metrics_frame", "parquet_bytes", "runs_frame"]

_RUNS, _METRICS = schema_of(RUNS), schema_of(METRICS)
ORDER = ("metric", "stage", "submodule", "role", "shape", "device", "step", "run")
"""By which the rows of a file of metrics are sorted: a reader skips what it does not ask for."""
_ROW_GROUP = 64_000  # rows


@dataclass(frozen=True, slots=True)
class Addition:
    """A run that is added: its summary, where it lies, and what the user says of it."""

    summary: Summary
    place: str
    commit: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The run's key."""
        return str(self.summary.run["run"])

    @property
    def folder(self) -> str:
        """The partition in which its rows stand."""
        run = self.summary.run
        return partition(run["pipeline"], run["hardware"], run["time_ns"])


def commit_batch(
    storage: Storage, additions: Sequence[Addition], clock: Callable[[], int] = time.time_ns
) -> None:
    """Write a batch of runs: of each partition the metrics, then the runs, which makes them count.
    Raises OutputError."""
    by_folder: dict[str, list[Addition]] = {}
    for one in additions:
        by_folder.setdefault(one.folder, []).append(one)
    for folder, of in by_folder.items():
        batch = batch_name(clock)
        frames = {"metrics": metrics_frame(of, batch), "runs": runs_frame(of, batch, clock())}
        for table, frame in frames.items():  # in this order
            name = file_name(table, folder, batch)
            if not storage.create(name, parquet_bytes(frame)):
                raise OutputError(f"{storage.place}/{name} is there already: add the runs again")


def runs_frame(additions: Sequence[Addition], batch: str, added_ns: int) -> pl.DataFrame:
    """The rows of `runs`."""
    rows = [
        {
            **one.summary.run,
            "batch": batch,
            "schema_version": SCHEMA_VERSION,
            "added_ns": added_ns,
            "commit": one.commit or one.summary.run["commit"],
            "labels": json.dumps(dict(one.labels), sort_keys=True),
            "place": one.place,
        }
        for one in additions
    ]
    return pl.DataFrame(rows, schema=_RUNS, orient="row").sort("time_ns", "run")


def metrics_frame(additions: Sequence[Addition], batch: str) -> pl.DataFrame:
    """The rows of `metrics`."""
    values: dict[str, list[object]] = {name: [] for name in VALUE_COLUMNS}
    runs: list[str] = []
    for one in additions:
        runs += [one.key] * len(one.summary.metrics)
        for name, column in values.items():
            column.extend(getattr(measure, name) for measure in one.summary.metrics)
    columns = {"run": runs, "batch": [batch] * len(runs), **values}
    return pl.DataFrame(columns, schema=_METRICS).sort(ORDER)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """A Parquet file of the frame, with statistics by which readers skip rows."""
    file = io.BytesIO()
    frame.write_parquet(file, compression="zstd", statistics=True, row_group_size=_ROW_GROUP)
    return file.getvalue()
