"""Names of a data set's files, and which of them count.

    found = snapshot(storage)
    found.runs, found.metrics        # names of files that readers read
    found.removed                    # pairs of run and batch that do not count any more

The rules are those of `docs/decisions/0084-fleet-data-set.md`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta, field

from profiler.errors import InputError
from profiler.files import decoded
from profiler.fleet.storage import Storage
from profiler.metrics import SCHEMA_VERSION

__all__ = [
    "DATASET",
    "GENERATIONS",
    "REMOVED",
    "TABLES",
    "Generation",
    "Removal",
    "Snapshot",
    "batch_name",
    "check_dataset",
    "file_name",
    "generation_name",
    "grouped",
    "last_part",
    "make_dataset",
    "merged_number",
    "newest_generation",
    "partition",
    "snapshot",
]

DATASET = "dataset.json"
GENERATIONS = "generations"
REMOVED = "removed"
TABLES = ("runs", "metrics")
_UNKNOWN = "__HIVE_DEFAULT_PARTITION__"
_LONGEST = 120  # bytes of a value in a folder's name
_BATCH = re.compile(r"b[0-9a-f]{32}")
_MERGED = re.compile(r"g(\d{8})-[0-9a-f]{16}")
_GENERATION = re.compile(r"(\d{8})\.json")

_Name = Annotated[str, Meta(max_length=1000)]


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction merged: the `files` that hold it, when (s since 1970) each batch file that
    they stand for was `replaced`, and the removals that were `applied` to them."""

    number: int
    files: tuple[_Name, ...] = ()
    replaced: dict[_Name, int] = field(default_factory=dict)
    applied: dict[_Name, int] = field(default_factory=dict)


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of run and batch that do not count any more."""

    removed: tuple[tuple[str, str], ...]


class _Dataset(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a data set that count, in the moment in which they were listed. `loose` are
    those that no compaction has merged."""

    generation: Generation
    runs: tuple[str, ...]
    metrics: tuple[str, ...]
    removed: frozenset[tuple[str, str]]
    removals: tuple[str, ...]
    orphans: tuple[str, ...]

    @property
    def loose(self) -> int:
        """How many files of runs no compaction has merged."""
        merged = set(self.generation.files)
        return sum(name not in merged for name in self.runs)


def batch_name(clock: Callable[[], int] = time.time_ns) -> str:
    """A name for a batch that no other has; earlier ones sort first."""
    return f"b{clock():016x}{os.urandom(8).hex()}"


def partition(pipeline: str | None, hardware: str | None, time_ns: int) -> str:
    """The folder of a run's files below `runs` and `metrics`."""
    month = datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m")
    return f"pipeline={_value(pipeline)}/hardware={_value(hardware)}/month={month}"


def file_name(table: str, folder: str, stem: str) -> str:
    """The name of a Parquet file."""
    return f"{table}/{folder}/{stem}.parquet"


def generation_name(number: int) -> str:
    """The name of the file that says what generation `number` is."""
    return f"{GENERATIONS}/{number:08d}.json"


def make_dataset(storage: Storage) -> None:
    """Make an empty data set where there is none. Raises InputError where one of another version
    is there."""
    if not _has(storage, DATASET):
        if not storage.is_empty():
            raise InputError(
                f"{storage.place} holds other things and is no data set of runs: name a folder "
                "that is empty or not there, before the runs"
            )
        storage.create(
            DATASET, msgspec.json.encode(_Dataset(schema_version=SCHEMA_VERSION)) + b"\n"
        )
    check_dataset(storage)


def check_dataset(storage: Storage) -> None:
    """Raises InputError where no data set is there, or one that this version does not read."""
    try:
        found = decoded(storage.read(DATASET), _Dataset)
    except FileNotFoundError:
        raise InputError(
            f"{storage.place} is no data set of runs: make one with `profile-sd3 fleet add "
            f"{storage.place} BUNDLE`"
        ) from None
    except msgspec.MsgspecError as error:
        raise InputError(
            f'{storage.place}/{DATASET} is damaged ({error}): write {{"schema_version": '
            f"{SCHEMA_VERSION}}} into it, or add the runs to a new data set"
        ) from error
    if found.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{storage.place} has version {found.schema_version} of the data set, this "
            f"profile-sd3 reads {SCHEMA_VERSION}: "
            + (
                "update it"
                if found.schema_version > SCHEMA_VERSION
                else "add its runs to a new one"
            )
        )


def snapshot(storage: Storage) -> Snapshot:
    """What counts now. Loose files are listed before the generation is read: what a compaction
    merges meanwhile is in the generation, and no file is in neither. Raises FileNotFoundError as
    `newest_generation` does: ask again."""
    listed = {table: storage.names(table) for table in TABLES}
    removals = [name for name in storage.names(REMOVED) if name.endswith(".json")]
    generation = newest_generation(storage)
    merged, replaced = set(generation.files), generation.replaced
    loose = {
        table: [name for name in names if _is(_BATCH, name) and name not in replaced]
        for table, names in listed.items()
    }
    counted = {
        table: (*(name for name in generation.files if name.startswith(f"{table}/")), *loose[table])
        for table in TABLES
    }
    orphans = [
        name
        for names in listed.values()
        for name in names
        if _is(_MERGED, name) and name not in merged and name not in replaced
    ]
    return Snapshot(
        generation=generation,
        runs=counted["runs"],
        metrics=counted["metrics"],
        removed=frozenset(_removed(storage, removals)),
        removals=tuple(removals),
        orphans=tuple(orphans),
    )


def newest_generation(storage: Storage) -> Generation:
    """The generation that counts; number 0, without a file, before the first compaction. Raises
    InputError where it is damaged, FileNotFoundError where several newer ones came meanwhile."""
    names = [name for name in storage.names(GENERATIONS) if _GENERATION.fullmatch(last_part(name))]
    if not names:
        return Generation(number=0)
    try:
        return decoded(storage.read(names[-1]), Generation)
    except msgspec.MsgspecError as error:
        raise InputError(f"{storage.place}/{names[-1]} is damaged ({error}): restore it") from error


def merged_number(name: str) -> int | None:
    """The generation for which a merged file was written."""
    found = _MERGED.fullmatch(PurePosixPath(name).stem)
    return int(found[1]) if found else None


def _removed(storage: Storage, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield from decoded(storage.read(name), Removal).removed
        except FileNotFoundError:  # a compaction has applied and removed it
            continue
        except msgspec.MsgspecError as error:
            raise InputError(f"{storage.place}/{name} is damaged ({error}): remove it") from error


def _has(storage: Storage, name: str) -> bool:
    try:
        storage.size(name)
    except FileNotFoundError:
        return False
    return True


def _is(pattern: re.Pattern[str], name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".parquet" and pattern.fullmatch(path.stem) is not None


def last_part(name: str) -> str:
    """A name without the folders that it is in."""
    return name.rpartition("/")[2]


def _value(text: str | None) -> str:
    """A value as part of a folder's name: percent-encoded, as Hive, DuckDB and Polars read it."""
    if not text:
        return _UNKNOWN
    encoded = quote(text, safe="")
    return encoded if len(encoded) <= _LONGEST else quote(text[: _LONGEST // 9], safe="")


def grouped(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Files by their partition."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.partition("/")[2].rpartition("/")[0], []).append(name)
    return found
