"""A data set of runs as it is read.

    data = Dataset("fleet/")
    data.runs(where=("hardware~MI300X", "steps=28"))
    data.history("denoise.step", where=())

Readers take no lock: each question takes a snapshot of the files that count, and starts over where
a compaction has removed one of them meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import polars as pl

from profiler.errors import InputError
from profiler.fleet.conditions import Condition, conditions
from profiler.fleet.layout import Snapshot, check_dataset, partition, snapshot
from profiler.fleet.storage import Storage, open_storage
from profiler.metrics import (
    DISTINGUISHING,
    METRICS,
    RUNS,
    MetricName,
    full_name,
    metric_name,
    schema_of,
)

__all__ = ["Dataset", "Where", "counted_runs", "scan"]

_Answer = TypeVar("_Answer")
_ATTEMPTS = 5  # snapshots, until no compaction removes a file of one
_INTERNAL = ("batch", "schema_version")
_SHOWN = tuple(column.name for column in RUNS if column.name not in _INTERNAL)
_TOLD = ("run", "batch", "run_id", "time_ns", "commit", "place", "quality")
_HISTORY = (
    *("run", "run_id", "time_ns", "commit", "value", "low", "high", "unit", "place", "quality"),
)
_SCHEMAS = {"runs": schema_of(RUNS), "metrics": schema_of(METRICS)}

Where = Sequence[str] | str


class Dataset:
    """The data set at a folder or an fsspec URL. Raises InputError where there is none."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.storage: Storage = open_storage(os.fspath(place))
        check_dataset(self.storage)

    def __repr__(self) -> str:
        return f"Dataset({self.storage.place!r})"

    def runs(self, where: Where = (), columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The runs that meet all conditions, as `columns.RUNS` has them but for `batch` and
        `schema_version`, ordered by time; with these `columns` alone where some are named, which
        of many runs takes far less time. Raises InputError for a condition that is none."""
        wanted = conditions(where)
        named = _SHOWN if columns is None else columns
        return self._asked(lambda files: self._runs(files, wanted, named))

    def history(self, metric: str, where: Where = (), *, quality: bool = False) -> pl.DataFrame:
        """A metric over time: `run, run_id, time_ns, commit, value, low, high, unit, place,
        quality`, a row a run that has it, ordered by time.

        Runs of bad quality are left out unless `quality` is set. Raises InputError where the name
        is none, or names a submodule that has several stages.
        """
        return self.metrics([metric], where, quality=quality).drop("name")

    def metrics(
        self, names: Sequence[str], where: Where = (), *, quality: bool = False
    ) -> pl.DataFrame:
        """Several metrics: the columns of `history` with `name` in front, a row a run and name,
        ordered by name as given, then by time."""
        wanted, parsed = conditions(where), [metric_name(name) for name in names]
        found = self._asked(lambda files: self._metrics(files, wanted, parsed, bad=quality))
        for name in parsed:
            _check_one_stage(name, found.filter(pl.col("name") == name.text))
        return found.select("name", *_HISTORY)

    def metric_rows(self, where: Where = ()) -> tuple[pl.DataFrame, Any]:
        """Every row of metrics, as a `pyarrow.dataset.Dataset`, which reads its files when it is
        read; and the `run` and `batch` of the runs that meet the conditions: other rows do not
        count."""
        import pyarrow.dataset

        wanted = conditions(where)

        def asked(files: Snapshot) -> tuple[pl.DataFrame, Sequence[str]]:
            return self._runs(files, wanted, ("run", "batch")), _pruned(files.metrics, wanted)

        counted, names = self._asked(asked)
        filesystem, places = self.storage.files(names)
        empty = pl.DataFrame(schema=_SCHEMAS["metrics"])
        rows = pyarrow.dataset.FileSystemDataset.from_paths(
            places,
            schema=empty.to_arrow(compat_level=pl.CompatLevel.oldest()).schema,
            format=pyarrow.dataset.ParquetFileFormat(),
            filesystem=filesystem,
        )
        return counted, rows

    def names(self, where: Where = ()) -> list[str]:
        """The names of all metrics that the runs have, sorted."""
        wanted = conditions(where)

        def asked(files: Snapshot) -> pl.DataFrame:
            chosen = self._runs(files, wanted, ("run", "batch")).lazy()
            rows = scan(self.storage, "metrics", _pruned(files.metrics, wanted))
            known = rows.join(chosen, on=["run", "batch"], how="semi")
            return known.select(*DISTINGUISHING, "metric").unique().collect()

        return sorted(map(full_name, self._asked(asked).iter_rows(named=True)))

    def _asked(self, question: Callable[[Snapshot], _Answer]) -> _Answer:
        """The answer of one snapshot."""
        for _ in range(_ATTEMPTS):
            try:
                return question(snapshot(self.storage))
            except FileNotFoundError:
                continue
            except pl.exceptions.PolarsError as error:
                said = " ".join(str(error).split())[:200]
                raise InputError(
                    f"a file of {self.storage.place} cannot be read ({said}): restore it, or "
                    "remove it and add its runs again"
                ) from error
        raise InputError(
            f"files of {self.storage.place} go while they are read: ask again, and compact less "
            "often, or leave replaced files there for longer"
        )

    def _runs(
        self, files: Snapshot, wanted: Sequence[Condition], columns: Sequence[str]
    ) -> pl.DataFrame:
        found = counted_runs(scan(self.storage, "runs", _pruned(files.runs, wanted)), files.removed)
        for one in wanted:
            found = found.filter(one.matches)
        return found.select(columns).collect()

    def _metrics(
        self,
        files: Snapshot,
        wanted: Sequence[Condition],
        names: Sequence[MetricName],
        *,
        bad: bool,
    ) -> pl.DataFrame:
        told = self._runs(files, wanted, _TOLD)
        told = told if bad else told.filter(pl.col("quality") == "")
        rows = scan(self.storage, "metrics", _pruned(files.metrics, wanted))
        read = rows.filter(pl.any_horizontal([name.matches() for name in names])).collect()
        parts = [read.filter(name.matches()).with_columns(name=pl.lit(name.text)) for name in names]
        joined = [part.join(told, on=["run", "batch"]).sort("time_ns", "run") for part in parts]
        return pl.concat(joined)


def counted_runs(
    rows: pl.LazyFrame, removed: Iterable[tuple[str, str]] = frozenset()
) -> pl.LazyFrame:
    """Each run once, as the earliest batch that was not removed has it, ordered by time."""
    pairs = list(removed)
    if pairs:
        gone = pl.LazyFrame(pairs, schema=["run", "batch"], orient="row")
        rows = rows.join(gone, on=["run", "batch"], how="anti")
    return rows.sort("batch").unique("run", keep="first").sort("time_ns", "run")


def scan(storage: Storage, table: str, names: Sequence[str]) -> pl.LazyFrame:
    """The rows of these files of a table. Raises FileNotFoundError where one is gone, InputError
    for one that is no Parquet file of that table."""
    schema = _SCHEMAS[table]
    if not names:
        return pl.LazyFrame(schema=schema)
    return pl.scan_parquet(
        [storage.input(name) for name in names],  # type: ignore[arg-type]
        schema=schema,
        hive_partitioning=False,
        glob=False,
    )


def _pruned(names: Sequence[str], wanted: Sequence[Condition]) -> list[str]:
    """The files that can hold runs which meet the conditions, by the names of their folders."""
    for one in wanted:
        if one.sign == "=" and one.key in ("pipeline", "hardware"):
            told = {"pipeline": None, "hardware": None, one.key: one.value}
            if one.value == "unknown":
                told[one.key] = None
            folders = partition(**told, time_ns=0).split("/")
            part = folders[0 if one.key == "pipeline" else 1]
            names = [name for name in names if f"/{part}/" in name]
    return list(names)


def _check_one_stage(name: MetricName, found: pl.DataFrame) -> None:
    if not name.any_stage or found["stage"].n_unique() < 2:
        return
    stages = sorted(stage or "" for stage in found["stage"].unique())
    raise InputError(
        f"{name.text}: {name.submodule} is in several stages: write "
        + " or ".join(f"{stage}.{name.text}" for stage in stages)
    )
