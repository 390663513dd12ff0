"""A data set of runs: read, query with SQL, and remove.

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
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
import polars as pl
from msgspec import Struct

from profiler.errors import InputError
from profiler.fleet.storage import (
    REMOVED,
    Condition,
    Removal,
    Snapshot,
    Storage,
    batch_name,
    check_dataset,
    condition,
    conditions,
    open_storage,
    partition,
    snapshot,
    why_not_here,
)
from profiler.run.columns import schema
from profiler.run.run import Run
from profiler.tools.metrics import DISTINGUISHING, IDENTITY, METRICS, RUNS
from profiler.tools.query import Database
from profiler.tools.sources import load

# --- A data set of runs as it is read.


_Answer = TypeVar("_Answer")
_ATTEMPTS = 5  # snapshots, until no compaction removes one of their files
_INTERNAL = ("batch", "schema_version")
_SHOWN = tuple(column.name for column in RUNS if column.name not in _INTERNAL)
_OF_RUNS = ("run", "batch", "run_id", "time_ns", "commit", "place", "quality")
_HISTORY = (
    *("run", "run_id", "time_ns", "commit", "value", "low", "high", "unit", "place", "quality"),
)
_SCHEMAS = {"runs": schema(RUNS), "metrics": schema(METRICS)}

Where = Sequence[str] | str


class Dataset:
    """A data set in a folder or at an fsspec URL. Raises InputError if there is none."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.storage: Storage = open_storage(os.fspath(place))
        check_dataset(self.storage)

    def __repr__(self) -> str:
        return f"Dataset({self.storage.place!r})"

    def runs(self, where: Where = (), columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the runs that meet all conditions, ordered by time, with the columns of
        `columns.RUNS` except `batch` and `schema_version`, or only the given `columns`, which is
        much faster for many runs. Raises InputError for an invalid condition."""
        wanted = conditions(where)
        named = _SHOWN if columns is None else columns
        return asked(self.storage, lambda files: self._runs(files, wanted, named))

    def some_runs(self, where: Where = (), columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the runs like `runs`. Raises InputError if there are none."""
        found = self.runs(where, columns)
        if found.is_empty():
            raise InputError(f"{self.storage.place} has no run that meets --where: change it")
        return found

    def history(self, metric: str, where: Where = (), *, quality: bool = False) -> pl.DataFrame:
        """Return a metric over time: `run, run_id, time_ns, commit, value, low, high, unit, place,
        quality`, one row per run that has it, ordered by time.

        Runs of bad quality are left out unless `quality` is set. Raises InputError if the name is
        invalid, or names a submodule that has several stages.
        """
        return self.metrics([metric], where, quality=quality).drop("name")

    def metrics(
        self, names: Sequence[str], where: Where = (), *, quality: bool = False
    ) -> pl.DataFrame:
        """Return several metrics: the columns of `history` after `name`, one row per run and name,
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
        """Return all rows of metrics, as a `pyarrow.dataset.Dataset` that is read lazily, and the
        `run` and `batch` of the runs that meet the conditions; other rows are not valid."""
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
        """Return the names of all metrics of the runs, sorted."""
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
    """Answer a question from one snapshot; take another if a file was removed meanwhile."""
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
    """Return each run once, from its earliest batch that was not removed, ordered by time."""
    pairs = list(removed)
    if pairs:
        gone = pl.LazyFrame(pairs, schema=["run", "batch"], orient="row")
        rows = rows.join(gone, on=["run", "batch"], how="anti")
    return rows.sort("batch").unique("run", keep="first").sort("time_ns", "run")


def _all_runs(storage: Storage, files: Snapshot, wanted: Sequence[Condition] = ()) -> pl.LazyFrame:
    """Return all valid runs, from the files that can contain those wanted."""
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
    """Select the files that can contain runs which meet the conditions, by their folders' names."""
    for one in wanted:
        if one.sign == "=" and one.key in ("pipeline", "hardware"):
            values = {"pipeline": None, "hardware": None, one.key: one.value}
            if one.value == "unknown":
                values[one.key] = None
            folders = partition(**values, time_ns=0).split("/")
            part = folders[0 if one.key == "pipeline" else 1]
            names = [name for name in names if f"/{part}/" in name]
    return list(names)


# --- The names of metrics: `denoise.step`, `transformer.time[role=attention]`.
#
# [SCOPE.]METRIC[[KEY=VALUE,…]]        SCOPE: a stage, a submodule, or STAGE.SUBMODULE


STAGES = ("encode", "denoise", "decode", "run")
METRIC_NAMES: Mapping[str, str] = {
    "elapsed": "time of a pipeline call, of a stage or a submodule in it",
    "first_elapsed": "time of the first pipeline call",
    "host": "host work of a stage",
    "idle": "idle time of a stage",
    "step": "median of steady steps; [step=N]: of that step",
    "first_step": "median of the first steps of pipeline calls",
    "call": "median of a submodule's steady calls",
    "first_call": "a submodule's first call",
    "calls": "calls of a submodule in the run",
    "commands": "commands of a call of a submodule, of those whose operators were recorded",
    "time": "device time of [role=ROLE] or [shape=SHAPE]",
    "busy": "busy time of [device=DEVICE]",
    "utilization": "busy share of [device=DEVICE]",
    "peak_memory": "peak memory of [device=DEVICE]",
    "weight_memory": "bytes of weights on [device=DEVICE]",
}

_KEYS = ("step", "role", "device", "shape")
_BRACKETS = re.compile(r"(?P<path>[^\[]+?)(?:\[(?P<keys>.*)\])?", re.DOTALL)
_ADVICE = (
    "write [STAGE.][SUBMODULE.]METRIC, such as denoise.step or transformer.time[role=attention]"
)


class MetricName(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed metric name. `any_stage`: the submodule's only stage, whichever it is."""

    text: str
    metric: str
    stage: str | None = None
    submodule: str | None = None
    step: int | None = None
    role: str | None = None
    shape: str | None = None
    device: str | None = None
    any_stage: bool = False

    def matches(self) -> pl.Expr:
        """Return an expression that selects the rows of `metrics` with this name."""
        fields = [name for name in DISTINGUISHING if not (name == "stage" and self.any_stage)]
        same = (pl.col(name).eq_missing(getattr(self, name)) for name in fields)
        return pl.all_horizontal(pl.col("metric") == self.metric, *same)


def metric_name(text: str) -> MetricName:
    """Parse the name of a metric. Raises InputError if it is none."""
    found = _BRACKETS.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text!r:.120} is no metric: {_ADVICE}")
    scope, _, metric = found["path"].rpartition(".")
    if metric not in METRIC_NAMES:
        raise InputError(
            f"{text!r:.120} is no metric: there is {', '.join(METRIC_NAMES)}; {_ADVICE}"
        )
    stage, submodule = _scope(scope)
    known: dict[str, Any] = {"stage": stage, "submodule": submodule, **_keys(text, found["keys"])}
    any_stage = submodule is not None and stage is None
    return MetricName(text=text.strip(), metric=metric, any_stage=any_stage, **known)


def full_name(row: Mapping[str, Any]) -> str:
    """The name of a row of `metrics`, with its stage."""
    keys = ",".join(f"{key}={row[key]}" for key in _KEYS if row[key] is not None)
    path = ".".join(part for part in (row["stage"], row["submodule"], row["metric"]) if part)
    return f"{path}[{keys}]" if keys else path


def _scope(scope: str) -> tuple[str | None, str | None]:
    first, _, rest = scope.partition(".")
    return (first, rest or None) if first in STAGES else (None, scope or None)


def _keys(text: str, keys: str | None) -> dict[str, Any]:
    """Parse the keys in brackets; a shape, which must be last, may contain commas."""
    found: dict[str, Any] = {}
    rest = keys or ""
    while rest:
        key, has_value, value = rest.partition("=")
        key = key.strip()
        if key not in _KEYS or not has_value or key in found:
            raise InputError(f"{text!r:.120}: {key!r:.40} is no key: use {', '.join(_KEYS)}")
        rest = ""
        if key != "shape":
            value, _, rest = value.partition(",")
        found[key] = value.strip()
    if "step" in found:
        if not re.fullmatch(r"\d{1,9}", found["step"]):
            raise InputError(f"{text!r:.120}: step={found['step']} is no step: give a number")
        found["step"] = int(found["step"])
    return found


# --- Comparable runs: those whose workload, variant, recipe, hardware and software agree.
#
#     differences(one, other)          # why two runs are not: steps 28 ≠ 20
#     groups(runs)                     # a column `group`, the same for comparable runs
#
# A field that was not recorded is unknown, and unknown equals nothing, itself included, unless the
# caller assumes that the field agrees.


FIELDS: tuple[str, ...] = tuple(field for fields in IDENTITY.values() for field in fields)
"""The columns of `runs` that must agree."""
IDENTIFYING = ("run", "run_id", "time_ns", "quality", *FIELDS)
"""The columns of `runs` that identify a run and what it is comparable with."""
_UNKNOWN = "\x00unknown"
_SEPARATOR = "\x1f"
_DIGITS = 16


class Why(StrEnum):
    """Why a field prevents a comparison of two runs."""

    DIFFERENT = "different"
    UNKNOWN = "unknown"  # in one of them, or in both


class Difference(Struct, frozen=True):
    """A field in which two runs do not agree, and its value in each; None is unknown."""

    field: str
    why: Why
    one: Any
    other: Any


def checked_fields(names: Iterable[str] | None, option: str) -> tuple[str, ...]:
    """Return `names` as fields of the identity; a name may be a group (`recipe`) or a list with
    commas. Raises InputError for another name."""
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
    """Return the fields that make two rows of `runs` not comparable; empty if they are. A field of
    `assume_same` agrees if either is unknown; one that is `ignored` always agrees."""
    found = []
    for field in FIELDS:
        if field in ignored:
            continue
        mine, theirs = one[field], other[field]
        unknown = mine is None or theirs is None
        if field not in assume_same if unknown else mine != theirs:
            why = Why.UNKNOWN if unknown else Why.DIFFERENT
            found.append(Difference(field, why, mine, theirs))
    return tuple(found)


def groups(
    runs: pl.DataFrame, assume_same: Sequence[str] = (), ignored: Sequence[str] = ()
) -> pl.DataFrame:
    """Add a column `group` to `runs`, String: the same for comparable runs, null for a run that is
    comparable to none, itself included, because a field is unknown.

    A run whose field of `assume_same` is unknown joins the runs that agree otherwise if these have
    one value of that field; if they have several, its value is ambiguous and it stays apart.
    """
    fields = [field for field in FIELDS if field not in ignored]
    if not fields:
        return runs.with_columns(group=pl.lit("all"))
    texts = runs.select(pl.col(field).cast(pl.String) for field in fields)
    for field in (field for field in fields if field in assume_same):
        texts = _filled(texts, field, [other for other in fields if other != field])
    joined = pl.concat_str(pl.col(fields), separator=_SEPARATOR)  # null if any is
    keys = texts.select(joined.alias("group"))["group"]
    names = {
        key: hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]
        for key in keys.unique().drop_nulls()
    }
    return runs.with_columns(group=keys.replace_strict(names, default=None, return_dtype=pl.String))


def _filled(texts: pl.DataFrame, field: str, others: Sequence[str]) -> pl.DataFrame:
    """Fill unknown values of `field` with the single value of the runs that agree otherwise."""
    known, number = pl.col(field).drop_nulls().first(), pl.col(field).drop_nulls().n_unique()
    if others:
        known, number = known.over(others), number.over(others)
    filled = pl.when(number == 1).then(known).otherwise(pl.lit(_UNKNOWN))
    return texts.with_columns(pl.coalesce(pl.col(field), filled))


# --- Runs that are compared with none, and why: bad quality, or an unknown field of their identity.


class Apart(Struct, frozen=True):
    """Runs that are comparable with no others: their number, an example, and the fields that are
    unknown or differ from the largest group; none if their quality is bad. `without` is the field
    to compare by, if these runs lack it."""

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
    """Group the runs `lacking` a group, or a value of the field `by`, by their unknown fields."""
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


# --- Remove runs from a data set: they no longer count, and the next compaction deletes them.


_NAMED = 3


def selected(
    storage: Storage,
    runs: Sequence[str] = (),
    where: Sequence[str] = (),
    older_than: timedelta | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> pl.DataFrame:
    """Select the runs that are named by key (at least its first 8 digits) or `run_id`, meet all
    conditions and are older than `older_than`. Raises InputError for a name without a run, or a
    short key of several runs."""
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
    """Remove these rows of `runs`, and all others with the same keys; return the number of runs. A
    run that is added again counts again. Raises OutputError if the removal cannot be written."""
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
    """Open a database of the runs that meet the conditions and of their metrics, if `sql` names
    these tables, and of the tables of `runs`. Raises InputError for an invalid condition,
    MissingPackageError without DuckDB.

    Metrics are read while a query runs, only the columns that it needs: there may be more of them
    than fit into memory.
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
    """Load the runs of these names from their places, by key, so that their rows join those of
    `runs`. Raises InputError if a name has no run, or its bundle is gone."""
    if len(names) > _MOST_BUNDLES:
        raise InputError(f"{len(names)} bundles are too many to read at once: name {_MOST_BUNDLES}")
    found: dict[str, Run] = {}
    for run, place in selected(data.storage, names).select("run", "place").rows() if names else ():
        if reason := why_not_here(place, run):
            raise InputError(reason)
        found[run] = load(place)
    return found


# --- The identities of groups of comparable runs, and names that distinguish them.
#
# known = identities(groups(data.runs()))
# names(known)["5f0c…"]          # "sd3.5, steps=28"


_BARE = frozenset({"resolution", "hardware", "software"})  # their values explain themselves
_LONGEST = 60  # characters of a value
_BETWEEN = ", "  # between entries of a list


def identities(grouped: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the identity of each group of `identity.groups`, newest run first; for an assumed
    field the value that some of its runs have."""
    known = grouped.drop_nulls("group")
    found = known.group_by("group").agg(
        *(pl.col(field).drop_nulls().first() for field in FIELDS), pl.col("time_ns").max()
    )
    ordered = found.sort(["time_ns", "group"], descending=[True, False])
    return {row["group"]: {field: row[field] for field in FIELDS} for row in ordered.to_dicts()}


def names(known: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Name each group by its model, and the fields in which groups of that model differ, in the
    syntax of `--where`."""
    by_lead: dict[str, list[str]] = {}
    for group, identity in known.items():
        lead = identity["model"] or identity["pipeline"] or "runs"
        by_lead.setdefault(short(lead), []).append(group)
    found = {}
    for lead, members in by_lead.items():
        differ = [f for f in FIELDS if len({known[group][f] for group in members}) > 1]
        every = {field: [known[group][field] for group in members] for field in differ}
        for group in members:
            parts = [lead]
            for field in (field for field in differ if field != "model"):
                value = _apart(known[group][field], every[field])
                bare = field in _BARE and value is not None
                parts.append(short(value) if bare else f"{field}={short(value)}")
            found[group] = ", ".join(parts)
    return found


def _apart(value: Any, every: Sequence[Any]) -> Any:
    """Reduce a list, such as software versions, to the entries that not all groups have."""
    if not isinstance(value, str) or _BETWEEN not in value:
        return value
    lists = [str(other).split(_BETWEEN) for other in every]
    own = [one for one in value.split(_BETWEEN) if not all(one in other for other in lists)]
    return _BETWEEN.join(own) or value


def short(value: Any) -> str:
    """Format a value of a field, of which long ones are cut."""
    text = "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
