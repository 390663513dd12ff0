"""Storage of a data set: local folder or object store, its file names, run filters.

    storage = open_storage("s3://bucket/fleet")
    storage.create("generations/00000002.json", data)     # False: the file exists already
    conditions(["hardware~MI300X", "steps>=20", "label.branch=main"])

Files never change. `create` writes a complete file, and only if none exists. The rules are in
`docs/fleet-data-set.md`.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import polars as pl
from msgspec import Meta, field

from profiler.errors import InputError, OutputError, needing
from profiler.files import create_atomically, decoded, folder_mode, not_writable, read_file
from profiler.text import check_utf8
from profiler.tools.metrics import RUNS, SCHEMA_VERSION

# --- `--where KEY=VALUE`: select runs of a data set.
#
# conditions(["hardware~MI300X", "steps>=20", "label.branch=main"])


_FORM = re.compile(r"(?P<key>[\w.-]+?)\s*(?P<sign>!=|<=|>=|=|<|>|~)(?P<value>.*)", re.DOTALL)
_SIGNS = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_UNKNOWN_CONDITION = "unknown"
_HIDDEN = ("batch", "schema_version")
_COLUMNS = {column.name: column for column in RUNS if column.name not in _HIDDEN}
_PERIOD = re.compile(r"(?P<number>\d{1,6})(?P<unit>[hdwy])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class Condition(NamedTuple):
    """One condition: its parts; `matches` selects the runs that meet it."""

    key: str
    sign: str
    value: str
    matches: pl.Expr


def conditions(texts: Sequence[str] | str) -> list[Condition]:
    """Parse each of `texts`; a single text is one condition. Raises InputError if invalid."""
    return [condition(text) for text in ([texts] if isinstance(texts, str) else texts)]


def condition(text: str) -> Condition:
    """Parse one condition. Raises InputError if it is invalid."""
    check_utf8(text, "--where")
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise InputError(
            f"--where {text!r:.120} is no condition: write KEY=VALUE, such as hardware~MI300X "
            "(=, !=, <, <=, >, >=, ~ for contains)"
        )
    key, sign, value = found["key"], found["sign"], found["value"].strip()
    column, typed = _typed(text, key, value)
    if value == _UNKNOWN_CONDITION and sign in ("=", "!="):
        matches = column.is_null() if sign == "=" else column.is_not_null()
    elif sign == "~":
        matches = column.cast(pl.String).str.contains(value, literal=True)
    else:
        matches = _SIGNS[sign](column, typed)
    return Condition(key, sign, value, matches.fill_null(value=False))


def period(text: str) -> timedelta:
    """Parse `90d`, `12h`, `6w` or `1y`. Raises InputError for other texts."""
    found = _PERIOD.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r:.40} is no age: write 12h, 90d, 6w or 1y")
    unit = _UNITS.get(found["unit"], timedelta(days=365))
    try:
        return int(found["number"]) * unit
    except OverflowError:
        raise InputError(f"{text!r:.40} is longer than any run is old: give less") from None


def _typed(text: str, key: str, value: str) -> tuple[pl.Expr, Any]:
    """Return the column of a key, and the value in the column's type."""
    if key.startswith("label."):
        name = key.removeprefix("label.").replace('"', "")
        return pl.col("labels").str.json_path_match(f'$["{name}"]'), value
    if key == "time":
        return pl.col("time_ns"), _moment(text, value)
    if key not in _COLUMNS:
        names = ", ".join(_COLUMNS)
        raise InputError(
            f"--where {text!r:.120}: runs have no {key!r:.40}: there is {names}, "
            "time and label.NAME"
        )
    dtype = _COLUMNS[key].dtype
    if value == _UNKNOWN_CONDITION or dtype == pl.String:
        return pl.col(key), value
    try:
        return pl.col(key), float(value) if dtype == pl.Float64 else int(value)
    except ValueError:
        raise InputError(
            f"--where {text!r:.120}: {key} is a number, {value!r:.40} is none"
        ) from None


def _moment(text: str, value: str) -> int:
    """Parse an ISO 8601 date or time into ns since 1970; UTC if no zone is given."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InputError(
            f"--where {text!r:.120}: write a time as 2026-11-24 or 2026-11-24T09:30"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1e9)


# --- The place of a data set: a local folder, or an object store through fsspec.
#
#     storage = open_storage("s3://bucket/fleet")
#     storage.create("generations/00000002.json", data)     # False: it exists already
#
# Files never change. `create` makes a complete one, and only if there is none: in local folders a
# temporary file that is linked to its name, elsewhere one PUT on the condition that none exists.


_ATTEMPTS = 5  # for a PUT that conflicts with another one of the same name


def is_url(place: str) -> bool:
    """Whether `place` is an fsspec URL rather than a path."""
    return "://" in place


def why_not_here(place: str, run_id: str) -> str:
    """Why the bundle of a run cannot be read at the place that its row has; "" if it can."""
    if not place:
        return (
            f"where the bundle of {run_id} is was not kept: remove the run and add it again with "
            "`fleet add --keep-paths`"
        )
    if is_url(place) or not Path(place).exists():
        return f"the bundle of {run_id} is not at {place}: bring it back, or leave it out"
    return ""


@contextmanager
def _reading(place: str, name: str = "") -> Iterator[None]:
    """Raise InputError if the block cannot read a file, FileNotFoundError if it is gone."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        where = f"{place}/{name}"
        raise InputError(
            f"cannot read {where} ({_reason(error)}): check access and address"
        ) from error


def open_storage(place: str) -> Storage:
    """Open the storage at a path or a URL. Raises InputError for an unsupported kind of URL,
    MissingPackageError without fsspec."""
    check_utf8(place, "the data set")  # Parquet readers accept no other names
    if not is_url(place):
        return LocalStorage(Path(place))
    with needing("fleet", f"the data set {place}", "fsspec"):
        import fsspec
    try:
        filesystem, path = fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"cannot open {place} ({error}): install what fsspec needs, or give a folder"
        ) from error
    protocols = filesystem.protocol
    if "file" in ((protocols,) if isinstance(protocols, str) else protocols):
        return LocalStorage(Path(path))
    # Whether it supports creating a file only if there is none: older ones ignore that option.
    function = getattr(filesystem, "_pipe_file", filesystem.pipe_file)
    if "mode" not in inspect.signature(function).parameters:
        package = type(filesystem).__module__.partition(".")[0]
        raise InputError(
            f"{place}: this version of {package} would write over what is there: update it"
        )
    return RemoteStorage(filesystem, path.rstrip("/"), place)


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A data set in a local folder. Names of files are relative to it, with `/` between parts."""

    folder: Path

    @property
    def place(self) -> str:
        """The folder or URL for messages."""
        return str(self.folder)

    def create(self, name: str, data: bytes) -> bool:
        """Create a file; return False if there is one of that name. Raises OutputError."""
        path = self.folder / name
        try:
            self._make_folder(path.parent)
        except OSError as error:
            raise not_writable(path, error) from error
        return create_atomically(path, data)

    def read(self, name: str) -> bytes:
        """Read a file. Raises FileNotFoundError if it is gone, InputError for other reasons."""
        with _reading(self.place, name):
            return read_file(self.folder / name)

    def names(self, prefix: str) -> list[str]:
        """List all files below the folder `prefix`, sorted; empty if it does not exist."""
        found = []
        for folder, _, files in os.walk(self.folder / prefix):
            below = os.path.relpath(folder, self.folder).replace(os.sep, "/")
            found += [f"{below}/{file}" for file in files if not file.startswith(".")]
        return sorted(found)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; a missing one is no error."""
        for name in names:
            try:
                (self.folder / name).unlink(missing_ok=True)
            except OSError as error:
                raise not_writable(self.folder / name, error) from error

    def size(self, name: str) -> int:
        """Bytes of a file. Raises FileNotFoundError."""
        return (self.folder / name).stat().st_size

    def is_empty(self) -> bool:
        """Whether the place has no files, or does not exist."""
        with suppress(FileNotFoundError), _reading(self.place):
            return all(entry.name.startswith(".") for entry in self.folder.iterdir())
        return True

    def input(self, name: str) -> str:
        """Return what Polars can read a Parquet file from. Raises FileNotFoundError."""
        return str(self.folder / name)

    def files(self, names: Sequence[str]) -> tuple[Any, list[str]]:
        """Return a file system of pyarrow, and the paths of these files in it."""
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), [str(self.folder.absolute() / name) for name in names]

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(folder_mode(), exist_ok=True)


@dataclass(frozen=True, slots=True)
class RemoteStorage:
    """A data set in an object store, through fsspec; `root` is its path there."""

    filesystem: Any
    root: str
    place: str

    def create(self, name: str, data: bytes) -> bool:
        for _ in range(_ATTEMPTS):
            try:
                self.filesystem.pipe_file(self._path(name), data, mode="create")
            except Exception as error:
                # 409 does not say whether the file exists: another request for the name is in
                # progress, so that this one must be repeated (Amazon S3 API reference, PutObject);
                # 412 says that it exists.
                if _says(error, "ConditionalRequestConflict", "409"):
                    continue
                if isinstance(error, FileExistsError) or _says(error, "PreconditionFailed", "412"):
                    return self._is_own(name, data)
                raise OutputError(
                    f"cannot write {self.place}/{name} ({_reason(error)}): check access and address"
                ) from error
            return True
        raise OutputError(f"cannot write {self.place}/{name}: others write it, too: try again")

    def _is_own(self, name: str, data: bytes) -> bool:
        """Whether the existing file is the one to be written: if the answer to a PUT is lost, the
        client repeats it and finds the first one."""
        try:
            return self.size(name) == len(data) and self.read(name) == data
        except FileNotFoundError:
            return False

    def read(self, name: str) -> bytes:
        with _reading(self.place, name):
            data: bytes = self.filesystem.cat_file(self._path(name))
        return data

    def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        with suppress(FileNotFoundError), _reading(self.place, prefix):
            self.filesystem.invalidate_cache()
            found = self.filesystem.find(self._path(prefix))
        root = PurePosixPath(self.root)
        return sorted(str(PurePosixPath(path).relative_to(root)) for path in found)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self.filesystem.rm_file(self._path(name))

    def size(self, name: str) -> int:
        return int(self.filesystem.size(self._path(name)))

    def is_empty(self) -> bool:
        with suppress(FileNotFoundError), _reading(self.place):
            return not self.filesystem.ls(self.root, detail=False)
        return True

    def input(self, name: str) -> io.BytesIO:
        return io.BytesIO(self.read(name))

    def files(self, names: Sequence[str]) -> tuple[Any, list[str]]:
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        return PyFileSystem(FSSpecHandler(self.filesystem)), [self._path(name) for name in names]

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


Storage = LocalStorage | RemoteStorage


def _says(error: Exception, word: str, status: str) -> bool:
    """Whether a conditional PUT failed with this code."""
    responses = [getattr(one, "response", None) for one in (error, error.__cause__)]
    codes = [str(one.get("Error", {}).get("Code")) for one in responses if isinstance(one, dict)]
    return word in codes or status in codes or word in str(error)


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


# --- The names of a data set's files, and which files are valid.
#
#     found = snapshot(storage)
#     found.runs, found.metrics        # names of the files to read
#     found.removed                    # pairs of run and batch that no longer count
#
# The rules are in `docs/fleet-data-set.md`.


DATASET = "dataset.json"
GENERATIONS = "generations"
REMOVED = "removed"
TABLES = ("runs", "metrics")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_LONGEST = 120  # bytes of a value in a folder's name
_BATCH = re.compile(r"b[0-9a-f]{32}")
_MERGED = re.compile(r"g(\d{8})-[0-9a-f]{16}")
_GENERATION = re.compile(r"(\d{8})\.json")

_Name = Annotated[str, Meta(max_length=1000)]
_Document = TypeVar("_Document")


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction: the merged `files`, when (s since 1970) each batch file in them
    was `replaced`, and the removals that were `applied` to them."""

    number: int
    files: tuple[_Name, ...] = ()
    replaced: dict[_Name, int] = field(default_factory=dict)
    applied: dict[_Name, int] = field(default_factory=dict)


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs of run and batch that no longer count."""

    removed: tuple[tuple[str, str], ...]


class _Dataset(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The valid files of a data set at one moment. `loose` counts those that were not compacted."""

    generation: Generation
    runs: tuple[str, ...]
    metrics: tuple[str, ...]
    removed: frozenset[tuple[str, str]]
    removals: tuple[str, ...]
    orphans: tuple[str, ...]

    @property
    def loose(self) -> int:
        """Count the files of runs that were not compacted."""
        merged = set(self.generation.files)
        return sum(name not in merged for name in self.runs)


def batch_name() -> str:
    """A name for a batch that no other has; earlier ones sort first."""
    return f"b{time.time_ns():016x}{os.urandom(8).hex()}"


def partition(pipeline: str | None, hardware: str | None, time_ns: int) -> str:
    """The folder of a run's files below `runs` and `metrics`."""
    month = datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m")
    return f"pipeline={_value(pipeline)}/hardware={_value(hardware)}/month={month}"


def file_name(table: str, folder: str, stem: str) -> str:
    """The name of a Parquet file."""
    return f"{table}/{folder}/{stem}.parquet"


def generation_name(number: int) -> str:
    """Return the name of the file that describes generation `number`."""
    return f"{GENERATIONS}/{number:08d}.json"


def make_dataset(storage: Storage) -> None:
    """Make an empty data set if there is none. Raises InputError for one of another version."""
    try:
        storage.size(DATASET)
    except FileNotFoundError:
        if not storage.is_empty():
            raise InputError(
                f"{storage.place} holds other things and is no data set of runs: name a folder "
                "that is empty or not there, before the runs"
            ) from None
        storage.create(
            DATASET, msgspec.json.encode(_Dataset(schema_version=SCHEMA_VERSION)) + b"\n"
        )
    check_dataset(storage)


def check_dataset(storage: Storage) -> None:
    """Raise InputError if there is no data set, or one that this version does not read."""
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
        newer = found.schema_version > SCHEMA_VERSION
        raise InputError(
            f"{storage.place} has version {found.schema_version} of the data set, this "
            f"profile-sd3 reads {SCHEMA_VERSION}: "
            f"{'update it' if newer else 'add its runs to a new one'}"
        )


def snapshot(storage: Storage) -> Snapshot:
    """List the valid files. Loose files are listed before the generation is read: files that a
    compaction merges meanwhile are in the generation, so that none is missed. Raises
    FileNotFoundError like `newest_generation`: then ask again."""
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
    unnamed = {name for names in listed.values() for name in names} - merged - {*replaced}
    return Snapshot(
        generation=generation,
        **counted,
        removed=frozenset(
            pair for one in read_documents(storage, removals, Removal) for pair in one.removed
        ),
        removals=tuple(removals),
        orphans=tuple(sorted(name for name in unnamed if _is(_MERGED, name))),
    )


def newest_generation(storage: Storage) -> Generation:
    """Read the newest generation; number 0, without a file, before the first compaction. Raises
    InputError if it is damaged, FileNotFoundError if several newer ones were made meanwhile."""
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


def read_documents(
    storage: Storage, names: Iterable[str], kind: type[_Document]
) -> Iterator[_Document]:
    """Read the JSON files of these names, without those that are gone, such as removals that a
    compaction has applied. Raises InputError for a damaged one."""
    for name in names:
        try:
            yield decoded(storage.read(name), kind)
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            raise InputError(f"{storage.place}/{name} is damaged ({error}): remove it") from error


def _is(pattern: re.Pattern[str], name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".parquet" and pattern.fullmatch(path.stem) is not None


def last_part(name: str) -> str:
    """Return a name without its folders."""
    return name.rpartition("/")[2]


def _value(text: str | None) -> str:
    """A value as part of a folder's name: percent-encoded, as Hive, DuckDB and Polars read it."""
    if not text:
        return _HIVE_NULL
    encoded = quote(text, safe="")
    return encoded if len(encoded) <= _LONGEST else quote(text[: _LONGEST // 9], safe="")


def grouped(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Files by their partition."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.partition("/")[2].rpartition("/")[0], []).append(name)
    return found
