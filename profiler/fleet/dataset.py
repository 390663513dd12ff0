"""A data set of runs: read, query with SQL, remove and compact.

    data = Dataset("fleet/")
    data.runs(where=("hardware~MI300X", "steps=28"))
    data.history("denoise.step", where=())
    with open_database(Dataset("fleet/"), timeout_s=60) as database:
        database.ask("select hardware, count(*) from runs group by all")

Readers take no lock. Each query takes a snapshot of the valid files, and starts over if a
compaction has removed one of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
import polars as pl
from msgspec import Struct

from profiler.errors import InputError, OutputError
from profiler.fleet.storage import (
    REMOVED,
    TABLES,
    Condition,
    Generation,
    Removal,
    Snapshot,
    Storage,
    batch_name,
    check_dataset,
    condition,
    conditions,
    file_name,
    generation_name,
    grouped,
    last_part,
    merged_number,
    open_storage,
    partition,
    snapshot,
    why_not_here,
)
from profiler.run.columns import schema
from profiler.run.run import Run
from profiler.tools.metrics import (
    DISTINGUISHING,
    IDENTITY,
    METRICS,
    RUNS,
    SCHEMA_VERSION,
    VALUE_COLUMNS,
    Summary,
    full_name,
    metric_name,
)
from profiler.tools.query import Database
from profiler.tools.sources import load

# --- A data set of runs as it is read.
#
#     data = Dataset("fleet/")
#     data.runs(where=("hardware~MI300X", "steps=28"))
#     data.history("denoise.step", where=())
#
# Readers take no lock: each question takes a snapshot of the files that count, and starts over if a
# compaction has removed one of them meanwhile.


_Answer = TypeVar("_Answer")
_ATTEMPTS = 5  # snapshots, until no compaction removes a file of one
_INTERNAL = ("batch", "schema_version")
_SHOWN = tuple(column.name for column in RUNS if column.name not in _INTERNAL)
_OF_RUNS = ("run", "batch", "run_id", "time_ns", "commit", "place", "quality")
_HISTORY = (
    *("run", "run_id", "time_ns", "commit", "value", "low", "high", "unit", "place", "quality"),
)
_SCHEMAS = {"runs": schema(RUNS), "metrics": schema(METRICS)}

Where = Sequence[str] | str


class Dataset:
    """The data set at a folder or an fsspec URL. Raises InputError if there is none."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.storage: Storage = open_storage(os.fspath(place))
        check_dataset(self.storage)

    def __repr__(self) -> str:
        return f"Dataset({self.storage.place!r})"

    def runs(self, where: Where = (), columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The runs that meet all conditions, as `columns.RUNS` has them but for `batch` and
        `schema_version`, ordered by time; with these `columns` alone if some are named, which
        of many runs takes far less time. Raises InputError for a condition that is none."""
        wanted = conditions(where)
        named = _SHOWN if columns is None else columns
        return asked(self.storage, lambda files: self._runs(files, wanted, named))

    def some_runs(self, where: Where = (), columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The same. Raises InputError if there is none."""
        found = self.runs(where, columns)
        if found.is_empty():
            raise InputError(f"{self.storage.place} has no run that meets --where: change it")
        return found

    def history(self, metric: str, where: Where = (), *, quality: bool = False) -> pl.DataFrame:
        """A metric over time: `run, run_id, time_ns, commit, value, low, high, unit, place,
        quality`, a row a run that has it, ordered by time.

        Runs of bad quality are left out unless `quality` is set. Raises InputError if the name
        is none, or names a submodule that has several stages.
        """
        return self.metrics([metric], where, quality=quality).drop("name")

    def metrics(
        self, names: Sequence[str], where: Where = (), *, quality: bool = False
    ) -> pl.DataFrame:
        """Several metrics: the columns of `history` with `name` in front, a row a run and name,
        ordered by name as given, then by time."""
        wanted, parsed = conditions(where), [metric_name(name) for name in names]

        def question(files: Snapshot) -> pl.DataFrame:
            runs = self._runs(files, wanted, _OF_RUNS)
            runs = runs if quality else runs.filter(pl.col("quality") == "")
            rows = scan(self.storage, "metrics", _pruned(files.metrics, wanted))
            read = rows.filter(pl.any_horizontal([name.matches() for name in parsed])).collect()
            parts = [
                read.filter(one.matches()).with_columns(name=pl.lit(one.text)) for one in parsed
            ]
            joined = [part.join(runs, on=["run", "batch"]).sort("time_ns", "run") for part in parts]
            return pl.concat(joined)

        found = asked(self.storage, question)
        for name in parsed:
            stages = found.filter(pl.col("name") == name.text)["stage"].unique()
            if name.any_stage and len(stages) > 1:
                texts = (f"{stage}.{name.text}" for stage in sorted(one or "" for one in stages))
                raise InputError(
                    f"{name.text}: {name.submodule} is in several stages: write "
                    + " or ".join(texts)
                )
        return found.select("name", *_HISTORY)

    def metric_rows(self, where: Where = ()) -> tuple[pl.DataFrame, Any]:
        """Every row of metrics, as a `pyarrow.dataset.Dataset`, which reads its files when it is
        read; and the `run` and `batch` of the runs that meet the conditions: other rows do not
        count."""
        import pyarrow.dataset

        wanted = conditions(where)

        def question(files: Snapshot) -> tuple[pl.DataFrame, Sequence[str]]:
            return self._runs(files, wanted, ("run", "batch")), _pruned(files.metrics, wanted)

        counted, names = asked(self.storage, question)
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

        def question(files: Snapshot) -> pl.DataFrame:
            chosen = self._runs(files, wanted, ("run", "batch")).lazy()
            rows = scan(self.storage, "metrics", _pruned(files.metrics, wanted))
            known = rows.join(chosen, on=["run", "batch"], how="semi")
            return known.select(*DISTINGUISHING, "metric").unique().collect()

        return sorted(map(full_name, asked(self.storage, question).iter_rows(named=True)))

    def _runs(
        self, files: Snapshot, wanted: Sequence[Condition], columns: Sequence[str]
    ) -> pl.DataFrame:
        found = _all_runs(self.storage, files, wanted)
        for one in wanted:
            found = found.filter(one.matches)
        return found.select(columns).collect()


def asked(storage: Storage, question: Callable[[Snapshot], _Answer]) -> _Answer:
    """The answer of one snapshot."""
    for _ in range(_ATTEMPTS):
        try:
            return question(snapshot(storage))
        except FileNotFoundError:
            continue
        except pl.exceptions.PolarsError as error:
            said = " ".join(str(error).split())[:200]
            raise InputError(
                f"a file of {storage.place} cannot be read ({said}): restore it, or remove it and "
                "add its runs again"
            ) from error
    raise InputError(
        f"files of {storage.place} go while they are read: ask again, and compact less often, or "
        "leave replaced files there for longer"
    )


def counted_runs(
    rows: pl.LazyFrame, removed: Iterable[tuple[str, str]] = frozenset()
) -> pl.LazyFrame:
    """Each run once, as the earliest batch that was not removed has it, ordered by time."""
    pairs = list(removed)
    if pairs:
        gone = pl.LazyFrame(pairs, schema=["run", "batch"], orient="row")
        rows = rows.join(gone, on=["run", "batch"], how="anti")
    return rows.sort("batch").unique("run", keep="first").sort("time_ns", "run")


def _all_runs(storage: Storage, files: Snapshot, wanted: Sequence[Condition] = ()) -> pl.LazyFrame:
    """All runs that count, of the files that can hold those wanted."""
    return counted_runs(scan(storage, "runs", _pruned(files.runs, wanted)), files.removed)


def scan(storage: Storage, table: str, names: Sequence[str]) -> pl.LazyFrame:
    """The rows of these files of a table. Raises FileNotFoundError if one is gone, InputError
    for one that is no Parquet file of that table."""
    if not names:
        return pl.LazyFrame(schema=_SCHEMAS[table])
    return pl.scan_parquet(
        [storage.input(name) for name in names],  # type: ignore[arg-type]
        schema=_SCHEMAS[table],
        hive_partitioning=False,
        glob=False,
    )


def _pruned(names: Sequence[str], wanted: Sequence[Condition]) -> list[str]:
    """The files that can hold runs which meet the conditions, by the names of their folders."""
    for one in wanted:
        if one.sign == "=" and one.key in ("pipeline", "hardware"):
            values = {"pipeline": None, "hardware": None, one.key: one.value}
            if one.value == "unknown":
                values[one.key] = None
            folders = partition(**values, time_ns=0).split("/")
            part = folders[0 if one.key == "pipeline" else 1]
            names = [name for name in names if f"/{part}/" in name]
    return list(names)


# --- Which runs are comparable: those whose workload, variant, recipe, hardware and software agree.
#
#     differences(one, other)          # why two runs are not: steps 28 ≠ 20
#     groups(runs)                     # a column `group`, the same for comparable runs
#
# A field that nobody recorded is unknown, and unknown equals nothing, itself included, unless the
# caller takes that field to agree.


FIELDS: tuple[str, ...] = tuple(field for fields in IDENTITY.values() for field in fields)
"""The columns of `runs` that must agree."""
IDENTIFYING = ("run", "run_id", "time_ns", "quality", *FIELDS)
"""The columns of `runs` that tell a run and what it is comparable with."""
_UNKNOWN = "\x00unknown"
_SEPARATOR = "\x1f"
_DIGITS = 16


class Why(StrEnum):
    """Why a field does not let two runs be compared."""

    DIFFERENT = "different"
    UNKNOWN = "unknown"  # of one of them, or of both


class Difference(Struct, frozen=True):
    """A field in which two runs do not agree, and its value in each; None is unknown."""

    field: str
    why: Why
    one: Any
    other: Any


def checked_fields(names: Iterable[str] | None, option: str) -> tuple[str, ...]:
    """`names`, each a field of the identity, also by group (`recipe`) or with commas. Raises
    InputError for one that is none."""
    found: list[str] = []
    for name in (part.strip() for text in names or () for part in text.split(",")):
        if name not in FIELDS and name not in IDENTITY:
            known = ", ".join((*FIELDS, *(group for group in IDENTITY if group not in FIELDS)))
            raise InputError(f"{option} {name!r:.60} is no field of the identity: use {known}")
        found += [name] if name in FIELDS else IDENTITY[name]
    return tuple(dict.fromkeys(found))


def differences(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    assume_same: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> tuple[Difference, ...]:
    """Why two rows of `runs` are not comparable; none where they are. A field of `assume_same`
    agrees if either is unknown; one that is `ignored` agrees anyway."""
    found = []
    for field in (field for field in FIELDS if field not in ignored):
        mine, theirs = one[field], other[field]
        unknown = mine is None or theirs is None
        if field not in assume_same if unknown else mine != theirs:
            why = Why.UNKNOWN if unknown else Why.DIFFERENT
            found.append(Difference(field, why, mine, theirs))
    return tuple(found)


def groups(
    runs: pl.DataFrame, assume_same: Sequence[str] = (), ignored: Sequence[str] = ()
) -> pl.DataFrame:
    """`runs` with a column `group`, String: the same for runs that are comparable, null for a run
    that is comparable to none, itself included, because a field is unknown.

    A run whose field of `assume_same` is unknown joins those that agree otherwise, if they have one
    value of that field; if they have several, nobody can say which, and it stays apart.
    """
    fields = [field for field in FIELDS if field not in ignored]
    if not fields:
        return runs.with_columns(group=pl.lit("all"))
    texts = runs.select(pl.col(field).cast(pl.String) for field in fields)
    for field in (field for field in fields if field in assume_same):
        texts = _filled(texts, field, [other for other in fields if other != field])
    joined = pl.concat_str(
        [pl.col(field) for field in fields], separator=_SEPARATOR
    )  # null if any is
    keys = texts.select(joined.alias("group"))["group"]
    names = {
        key: hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]
        for key in keys.unique().drop_nulls()
    }
    return runs.with_columns(group=keys.replace_strict(names, default=None, return_dtype=pl.String))


def _filled(texts: pl.DataFrame, field: str, others: Sequence[str]) -> pl.DataFrame:
    """`texts` with the unknown values of `field` as the one value of those that agree otherwise."""
    known, number = pl.col(field).drop_nulls().first(), pl.col(field).drop_nulls().n_unique()
    if others:
        known, number = known.over(others), number.over(others)
    filled = pl.when(number == 1).then(known).otherwise(pl.lit(_UNKNOWN))
    return texts.with_columns(pl.coalesce(pl.col(field), filled))


# --- Runs that are compared with none, and why: their quality is bad, or a field of their identity
# is unknown.


class Apart(Struct, frozen=True):
    """Runs that are comparable to no others: how many, one of them, and the fields in which they
    differ from the largest group, or that are unknown; none if their quality is bad. `without`
    is the field that is compared by, if nobody recorded it of them."""

    runs: int
    example: str
    why: tuple[Difference, ...]
    bad_quality: bool = False
    without: str = ""


def comparable_with_none(
    lacking: pl.DataFrame,
    assume_same: Sequence[str] = (),
    ignored: Sequence[str] = (),
    by: str = "",
) -> list[Apart]:
    """The runs `lacking` a group, or a value of the field `by`, by the fields that are unknown."""
    fields = [field for field in FIELDS if field not in ignored and field not in assume_same]
    if lacking.is_empty():
        return []
    lacks = pl.concat_list(
        pl.when(pl.col(field).is_null()).then(pl.lit(field)) for field in fields
    ).list.drop_nulls()
    found = lacking.group_by(lacks.alias("lacks"), maintain_order=True).agg(
        pl.len(), pl.all().first()
    )
    return [
        Apart(
            row["len"],
            row["run_id"],
            tuple(
                one
                for one in differences(row, row, assume_same, ignored)
                if one.field == by or one.field in row["lacks"]
            ),
            without=by if by and row["value"] is None else "",
        )
        for row in found.iter_rows(named=True)
    ]


# --- Removing runs from a data set: they stop to count at once, and go with the next compaction.


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
    found = asked(storage, lambda files: _all_runs(storage, files).collect())
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
    that is added again counts again. Raises OutputError if that cannot be written."""
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


# --- SQL over a data set: the sandbox of `query`, with the tables `runs` and `metrics`.
#
#     with open_database(Dataset("fleet/"), timeout_s=60) as database:
#         database.ask("select hardware, count(*) from runs group by all")
#
# The tables of one run, commands too, are there for runs that were named: read from their
# bundles.


_RUNS_WORD = re.compile(r"\bruns\b", re.IGNORECASE)
_METRICS_WORD = re.compile(r"\bmetrics\b", re.IGNORECASE)
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
    """A database of the runs that meet the conditions and of their metrics, if `sql` names these
    tables, and of the tables of `runs`. Raises InputError for a condition that is none,
    MissingPackageError without DuckDB.

    Metrics are read while a query runs, of their columns those alone that it needs: there may be
    more of them than memory holds.
    """
    tables: dict[str, Any] = {}
    views = {}
    if _METRICS_WORD.search(sql):
        tables["counted_runs"], tables["metric_rows"] = data.metric_rows(where)
        views["metrics"] = _COUNTED_METRICS
    if _RUNS_WORD.search(sql) or not views:
        tables["runs"] = data.runs(where)
    return Database(dict(runs or {}), timeout_s, tables, views)


def bundles_of(data: Dataset, names: Sequence[str]) -> dict[str, Run]:
    """The runs of these names, read where they lie, by key: so their rows join those of `runs`.
    Raises InputError if one is none, or its bundle is not there any more."""
    if len(names) > _MOST_BUNDLES:
        raise InputError(f"{len(names)} bundles are too many to read at once: name {_MOST_BUNDLES}")
    found: dict[str, Run] = {}
    for run, place in selected(data.storage, names).select("run", "place").rows() if names else ():
        if reason := why_not_here(place, run):
            raise InputError(reason)
        found[run] = load(place)
    return found


# --- Summaries of runs → the rows of a batch, and its files.


ORDER = ("metric", "stage", "submodule", "role", "shape", "device", "step", "run")
"""By which the rows of a file of metrics are sorted: a reader skips what it does not ask for."""
_ROW_GROUP = 64_000  # rows


@dataclass(frozen=True, slots=True)
class Addition:
    """A run that is added: its summary, where it lies ("": that is not kept), and what the user
    says of it."""

    summary: Summary
    place: str
    commit: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

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
    return pl.DataFrame(rows, schema=_SCHEMAS["runs"], orient="row").sort("time_ns", "run")


def metrics_frame(additions: Sequence[Addition], batch: str) -> pl.DataFrame:
    """The rows of `metrics`."""
    values: dict[str, list[object]] = {name: [] for name in VALUE_COLUMNS}
    runs: list[str] = []
    for one in additions:
        runs += [one.summary.run["run"]] * len(one.summary.metrics)
        for name, column in values.items():
            column.extend(getattr(measure, name) for measure in one.summary.metrics)
    columns = {"run": runs, "batch": [batch] * len(runs), **values}
    return pl.DataFrame(columns, schema=_SCHEMAS["metrics"]).sort(ORDER)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """A Parquet file of the frame, with statistics by which readers skip rows."""
    file = io.BytesIO()
    frame.write_parquet(file, compression="zstd", statistics=True, row_group_size=_ROW_GROUP)
    return file.getvalue()


# --- Compaction: the many small files of a data set as few large ones, without a moment in which a
# reader misses or counts something twice.


TARGET_BYTES = 256 << 20
GRACE_S = 3600
"""How long replaced files stay for readers that have just listed them."""
_KEPT = 3  # generations, for readers that have just listed them
_ABANDONED_S = 86_400  # after which nobody writes the runs of metrics that are there any more


class Compacted(Struct, frozen=True):
    """What a compaction did: files before and after, and those that it deleted, which earlier ones
    had replaced."""

    before: int
    after: int
    deleted: int
    generation: int


class _Merge(Struct, frozen=True):
    """Files of one partition that become one of each table."""

    folder: str
    runs: tuple[str, ...]
    metrics: tuple[str, ...]


def compact(
    storage: Storage,
    *,
    target_bytes: int = TARGET_BYTES,
    grace_s: int = GRACE_S,
    clock: Callable[[], float] = time.time,
) -> Compacted:
    """Merge the files of each partition into files of about `target_bytes`, leave out what was
    removed, and delete what earlier compactions replaced more than `grace_s` ago.

    Raises InputError if another compaction was faster, which has then done the work, OutputError
    if nothing can be written.
    """
    check_dataset(storage)
    files = snapshot(storage)
    now, before = int(clock()), files.generation
    deleted = _delete_old(storage, files, now, grace_s)
    merges = list(_merges(storage, files, target_bytes))
    applied = {
        name: before.applied.get(name, now) for name in files.removals if name not in deleted
    }
    kept = {name: at for name, at in before.replaced.items() if name not in deleted}
    if not merges and (kept, applied) == (before.replaced, before.applied):
        return Compacted(_number(files), _number(files), len(deleted), before.number)
    number = before.number + 1
    made: list[str] = []
    try:
        for merge in merges:
            made += _merged(storage, merge, files, number)
    except BaseException:
        storage.remove(made)
        raise
    gone = {name for merge in merges for name in (*merge.runs, *merge.metrics)}
    generation = Generation(
        number=number,
        files=(*(name for name in before.files if name not in gone), *made),
        replaced=kept | dict.fromkeys(sorted(gone), now),
        applied=applied,
    )
    if not _commit(storage, generation):
        storage.remove(made)
        raise InputError(
            f"another compaction of {storage.place} has just ended: compact again if there is need"
        )
    storage.remove(generation_name(n) for n in range(max(number - 2 * _KEPT, 1), number - _KEPT))
    return Compacted(_number(files), _number(files) - len(gone) + len(made), len(deleted), number)


def _commit(storage: Storage, generation: Generation) -> bool:
    """Let a generation count; False if there is one of its number. Raises OutputError if
    nobody knows whether it counts: then its files stay, and a later compaction deletes them if it
    does not."""
    return storage.create(generation_name(generation.number), msgspec.json.encode(generation))


def _number(files: Snapshot) -> int:
    return len(files.runs) + len(files.metrics)


def _delete_old(storage: Storage, files: Snapshot, now: int, grace_s: int) -> set[str]:
    """Delete what was replaced long enough ago, before the generation that forgets it: while a file
    is there, a generation says that it does not count. With it goes what killed writers and
    compactions have left. Returns all names."""
    dated = {**files.generation.replaced, **files.generation.applied}
    old = {name for name, at in dated.items() if now - at >= grace_s}
    # Merged files that no generation names, of a generation that another compaction has made: who
    # wrote them cannot let them count any more.
    newest = files.generation.number
    old |= {name for name in files.orphans if (merged_number(name) or newest + 1) <= newest}
    # Metrics whose runs were not written within a day: nobody reads them.
    written = {last_part(name) for name in files.runs}
    lone = (name for name in files.metrics if last_part(name) not in written)
    batches = [name for name in lone if last_part(name).startswith("b")]
    begun = {name: int(last_part(name)[1:17], 16) // 1_000_000_000 for name in batches}
    old |= {name for name, at in begun.items() if now - at >= _ABANDONED_S}
    storage.remove(sorted(old))
    return old


def _merges(storage: Storage, files: Snapshot, target_bytes: int) -> Iterator[_Merge]:
    """Which files of each partition become one: as many as make about `target_bytes`. A file that
    is large enough, or alone, stays as it is, unless a removed run is in it."""
    dirty = _with_removed(storage, files)
    runs, metrics = grouped(files.runs), grouped(files.metrics)
    for folder, names in runs.items():
        by_stem = {last_part(name): name for name in metrics.get(folder, ())}
        chosen: list[tuple[str, str | None]] = []
        size = 0
        for name in names:
            partner = by_stem.get(last_part(name))
            own = storage.size(partner or name)
            if own >= target_bytes and name not in dirty:
                continue
            chosen.append((name, partner))
            size += own
            if size >= target_bytes:
                yield from _merge_of(folder, chosen, dirty)
                chosen, size = [], 0
        yield from _merge_of(folder, chosen, dirty)


def _merge_of(
    folder: str, chosen: Sequence[tuple[str, str | None]], dirty: frozenset[str]
) -> Iterator[_Merge]:
    if len(chosen) < 2 and not any(name in dirty for name, _ in chosen):
        return
    partners = tuple(partner for _, partner in chosen if partner is not None)
    yield _Merge(folder, tuple(name for name, _ in chosen), partners)


def _with_removed(storage: Storage, files: Snapshot) -> frozenset[str]:
    """The files of runs that hold one which was removed."""
    if not files.removed:
        return frozenset()
    gone = pl.DataFrame(list(files.removed), schema=["run", "batch"], orient="row")
    found = []
    for name in files.runs:
        rows = scan(storage, "runs", [name]).select("run", "batch").collect()
        if len(rows.join(gone, on=["run", "batch"], how="semi")):
            found.append(name)
    return frozenset(found)


def _merged(storage: Storage, merge: _Merge, files: Snapshot, number: int) -> list[str]:
    """Write the files of a merge; their names, none if nothing is left of them. A run that
    stands in a file outside of the merge, too, stays in both: readers count it once."""
    runs = counted_runs(scan(storage, "runs", merge.runs), files.removed).collect()
    if runs.is_empty():
        return []
    pairs = runs.select("run", "batch").lazy()
    rows = scan(storage, "metrics", merge.metrics).join(pairs, on=["run", "batch"], how="semi")
    frames: Mapping[str, pl.DataFrame] = {"runs": runs, "metrics": rows.sort(ORDER).collect()}
    stem = f"g{number:08d}-{os.urandom(8).hex()}"
    names = []
    for table in reversed(TABLES):
        name = file_name(table, merge.folder, stem)
        storage.create(name, parquet_bytes(frames[table]))
        names.append(name)
    return names


# --- What groups of comparable runs are of: their identity, and a name that tells each from others.
#
# known = identities(groups(data.runs()))
# names(known)["5f0c…"]          # "sd3.5, steps=28"


_BARE = frozenset({"resolution", "hardware", "software"})  # whose values say what they are
_LONGEST = 60  # characters of a value
_BETWEEN = ", "  # entries of a value that is a list


def identities(grouped: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """The identity of each group of `identity.groups`, in the order of their newest run, newest
    first; of an assumed field the value that some of its runs have."""
    known = grouped.drop_nulls("group")
    found = known.group_by("group").agg(
        *(pl.col(field).drop_nulls().first() for field in FIELDS), pl.col("time_ns").max()
    )
    ordered = found.sort(["time_ns", "group"], descending=[True, False])
    return {row["group"]: {field: row[field] for field in FIELDS} for row in ordered.to_dicts()}


def names(known: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A name by group: its model, and the fields in which groups of that model differ, as `--where`
    takes them."""
    by_lead: dict[str, list[str]] = {}
    for group, identity in known.items():
        lead = identity["model"] or identity["pipeline"] or "runs"
        by_lead.setdefault(_short(lead), []).append(group)
    found = {}
    for lead, members in by_lead.items():
        differ = [f for f in FIELDS if len({known[group][f] for group in members}) > 1]
        every = {field: [known[group][field] for group in members] for field in differ}
        for group in members:
            parts = [lead]
            for field in (field for field in differ if field != "model"):
                value = _apart(known[group][field], every[field])
                bare = field in _BARE and value is not None
                parts.append(_short(value) if bare else f"{field}={_short(value)}")
            found[group] = ", ".join(parts)
    return found


def _apart(value: Any, every: Sequence[Any]) -> Any:
    """Of a list, such as that of the software, the entries that not all have."""
    if not isinstance(value, str) or _BETWEEN not in value:
        return value
    lists = [str(other).split(_BETWEEN) for other in every]
    own = [one for one in value.split(_BETWEEN) if not all(one in other for other in lists)]
    return _BETWEEN.join(own) or value


def _short(value: Any) -> str:
    text = "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
