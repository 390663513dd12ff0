"""A file of SQLite as columns of numbers and texts.

Tables and columns that are not there are no error: a missing column has its default in every row.
Nothing of the file is executed: it is opened read-only and immutable, virtual tables and views are
not read, texts are cut at 64 KiB. Tables of plain values are read from their pages by the core,
which takes a tenth of the time of SQLite's rows as objects.
"""

from __future__ import annotations

import gzip
import mmap
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from profiler.errors import InputError
from profiler.files import opened, size_of
from profiler.importers.importer import GZIP
from profiler.trace import _core
from profiler.trace.columns import Int32s, Int64s
from profiler.trace.compression import may_unpack_to, too_small

_SIZE_LIMIT = 16 << 30  # bytes of an unpacked file
_TEXT_LIMIT = 1 << 16  # characters
_CHUNK = 1 << 20
_ASKED = 500  # ids in one question
_BATCH = 1 << 15  # rows that are Python objects at once
_BROKEN = (  # the last is SQLite's own message, with what it could not read in it
    *(sqlite3.DatabaseError, sqlite3.DataError, OverflowError, MemoryError),
    UnicodeDecodeError,
)


class Lead(NamedTuple):
    """A column of another table, found by the id that `key` has; `missing` for those that lead
    nowhere."""

    key: str
    table: str
    column: str
    missing: int


class SqliteFile:
    """An open file; `path` is its name in errors, `again` the command that wrote it, `tables` the
    names of its tables, `data` its bytes."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, data: bytes | mmap.mmap, again: str
    ) -> None:
        self.path = path
        self._connection = connection
        self._data = data
        self._again = again
        self._columns: dict[str, tuple[str, ...]] = {}
        self._keyed: set[str] = set()
        self._roots: dict[str, int] = {}
        asked = (
            "SELECT name, rootpage FROM sqlite_master "
            "WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        with self._reading():
            for name, root in list(connection.execute(asked)):
                table = str(name)
                quoted = table.replace('"', '""')
                columns = list(connection.execute(f'PRAGMA table_xinfo("{quoted}")'))
                self._columns[table] = tuple(str(one[1]) for one in columns if not one[6])
                key = [(one[1], one[2].upper()) for one in columns if one[5]]
                if key == [("id", "INTEGER")]:
                    self._keyed.add(table)
                # rows hold no column that is computed, nor an integer key, which is their number
                if len(self._columns[table]) == len(columns) and (not key or table in self._keyed):
                    self._roots[table] = root
        self.tables = [*self._columns]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            raise InputError(
                f"{self.path} is damaged or was cut ({error}): write it again with {self._again}"
            ) from error

    def columns_of(self, table: str) -> frozenset[str]:
        """The names of a table's columns, none if it does not exist."""
        return frozenset(self._columns.get(table, ()))

    def keyed(self, table: str) -> bool:
        """Whether rows are found by `id` at once, and each id is one row's."""
        return table in self._keyed

    def numbers(
        self,
        table: str,
        columns: Mapping[str, int],
        leads: Mapping[str, Lead] = MappingProxyType({}),
    ) -> dict[str, Int64s]:
        """Columns of a table in the order of its rows, int64 each; the mapping has what stands for
        a missing column and for null. No rows where the table does not exist. `leads` are columns
        of other tables, which are `keyed`."""
        there = self._there(table, columns)
        if not there:
            return {name: np.zeros(0, dtype=np.int64) for name in (*columns, *leads)}
        led = {
            name: lead
            for name, lead in leads.items()
            if lead.key in there and lead.column in self.columns_of(lead.table)
        }
        missing = {**columns, **{name: lead.missing for name, lead in leads.items()}}
        if led or (plain := self._plain(table, {name: columns[name] for name in there})) is None:
            found = self._asked(table, columns, there, led)
        else:
            found = dict(zip(there, plain[0], strict=True))
        return _filled(found, missing, len(found[there[0]]))

    def with_texts(
        self, table: str, columns: Mapping[str, int], text: str
    ) -> tuple[dict[str, Int64s], list[str], Int32s]:
        """Columns of numbers as `numbers` has them, and one of texts: some texts, and which of them
        each row has, -1 for none. Texts may lack the numbers that torch gives operators."""
        there = self._there(table, columns)
        if not self._columns.get(table):
            return self.numbers(table, columns), [], np.zeros(0, dtype=np.int32)
        plain = self._plain(table, {name: columns[name] for name in there}, text)
        if plain is not None:
            numbers, found, place = plain
            texts = [one.decode("utf-8", "replace") for one in found]
        else:
            numbers, texts, place = self._asked_texts(table, {n: columns[n] for n in there}, text)
        return _filled(dict(zip(there, numbers, strict=True)), columns, len(place)), texts, place

    def _there(self, table: str, columns: Iterable[str]) -> list[str]:
        """Those of some columns that a table has."""
        return [name for name in columns if name in self.columns_of(table)]

    def _plain(
        self, table: str, columns: Mapping[str, int], text: str = ""
    ) -> tuple[list[Int64s], list[bytes], Int32s] | None:
        """Columns that a table has, read from its pages; None for a table that is not plain."""
        places = self._columns[table]
        root = self._roots.get(table, 0)
        if root < 1 or (text and text not in places):
            return None
        asked = [(places.index(name), missing) for name, missing in columns.items()]
        key = places.index("id") if table in self._keyed else -1
        with self._reading():
            at = places.index(text) if text else -1
            return _core.sqlite_columns(self._data, root, asked, at, key, self._give_up)

    def _give_up(self) -> None:
        """Let the system take back what was mapped of the file: it counts as memory in use."""
        if isinstance(self._data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED)

    def _asked(
        self, table: str, columns: Mapping[str, int], there: list[str], led: Mapping[str, Lead]
    ) -> dict[str, Int64s]:
        """Columns that are there, and those of other tables, as SQLite reads them."""
        asked = [f'CAST(ifnull(r."{name}", {columns[name]}) AS INTEGER)' for name in there]
        joins = ""
        for at, lead in enumerate(led.values()):
            asked.append(f'CAST(ifnull(j{at}."{lead.column}", {lead.missing}) AS INTEGER)')
            joins += f' LEFT JOIN "{lead.table}" AS j{at} ON j{at}."id" = r."{lead.key}"'
        question = f'SELECT {", ".join(asked)} FROM "{table}" AS r{joins}'  # noqa: S608
        return dict(zip((*there, *led), self._numbers(question, len(asked)), strict=True))

    def _asked_texts(
        self, table: str, columns: Mapping[str, int], text: str
    ) -> tuple[list[Int64s], list[str], Int32s]:
        """Columns that are there and one of texts, if it is, as SQLite reads them."""
        asked = [
            f'CAST(ifnull("{name}", {missing}) AS INTEGER)' for name, missing in columns.items()
        ]
        asked.append(_value(text, "") if text in self._columns[table] else "NULL")
        parts: list[list[Int64s]] = [[np.zeros(0, dtype=np.int64)] for _ in columns]
        places: list[Int32s] = [np.zeros(0, dtype=np.int32)]
        codes: dict[str | None, int] = {None: -1}
        with self._reading():
            rows = self._connection.execute(f'SELECT {", ".join(asked)} FROM "{table}"')  # noqa: S608
            while some := rows.fetchmany(_BATCH):
                *numbers, texts = zip(*some, strict=True)
                for part, column in zip(parts, numbers, strict=True):
                    part.append(np.array(column, dtype=np.int64))
                code = [codes.setdefault(one, len(codes) - 1) for one in texts]
                places.append(np.array(code, dtype=np.int32))
        found = [one for one in codes if one is not None]
        return [*map(np.concatenate, parts)], found, np.concatenate(places)

    def rows(self, table: str, columns: Iterable[str]) -> Iterator[tuple[object, ...]]:
        """The rows of a table, with None for a column that is not there; none without the table."""
        there = self.columns_of(table)
        if not there:
            return
        others = "WHEN 'blob' THEN NULL ELSE \"{}\""
        asked = ", ".join(
            _value(name, others.format(name)) if name in there else "NULL" for name in columns
        )
        with self._reading():
            yield from self._connection.execute(f'SELECT {asked} FROM "{table}"')  # noqa: S608

    def texts(self, table: str, column: str, ids: Iterable[int]) -> dict[int, str]:
        """The texts that a table has for these ids (`id`); those that it lacks are left out."""
        wanted = sorted(set(ids))
        if not wanted or not self.columns_of(table) >= {"id", column}:
            return {}
        found: dict[int, str] = {}
        for first in range(0, len(wanted), _ASKED):
            some = wanted[first : first + _ASKED]
            asked = (
                f'SELECT id, substr("{column}", 1, {_TEXT_LIMIT}) FROM "{table}" '  # noqa: S608
                f"WHERE id IN ({','.join('?' * len(some))})"
            )
            with self._reading():
                rows = self._connection.execute(asked, some)
                found.update((key, text) for key, text in rows if isinstance(text, str))
        return found

    def _numbers(self, question: str, width: int) -> list[Int64s]:
        """Rows of `width` numbers as columns; what is in memory beside them is one column."""
        parts: list[list[Int64s]] = [[np.zeros(0, dtype=np.int64)] for _ in range(width)]
        with self._reading():
            rows = self._connection.execute(question)
            while len(
                flat := np.fromiter(chain.from_iterable(islice(rows, _BATCH)), dtype=np.int64)
            ):
                for at, column in enumerate(parts):
                    column.append(flat[at::width].copy())
        parts.reverse()
        return [np.concatenate(parts.pop()) for _ in range(width)]


def _filled(
    found: Mapping[str, Int64s], missing: Mapping[str, int], count: int
) -> dict[str, Int64s]:
    """All columns, those that were not found with what stands for them in each row."""
    return {
        name: found[name] if name in found else np.full(count, default, dtype=np.int64)
        for name, default in missing.items()
    }


def _value(column: str, others: str) -> str:
    """What is asked for a column: texts, cut, and of `others` what SQL says."""
    text = f'substr("{column}", 1, {_TEXT_LIMIT})'
    return f"CASE typeof(\"{column}\") WHEN 'text' THEN {text} {others} END"


@contextmanager
def open_sqlite(path: Path, again: str) -> Iterator[SqliteFile]:
    """The file at `path`, plain or gzip. Raises InputError, naming the command `again`, if it
    cannot be read."""
    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        plain = _unpacked(path, Path(folder) / "plain.sqlite", again)
        name = f"file:{quote(os.fsencode(plain.absolute()))}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(name, uri=True)
        except sqlite3.Error as error:
            raise InputError(
                f"cannot read {path} ({error}): write it again with {again}"
            ) from error
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        try:
            with _mapped(plain) as data:
                yield SqliteFile(path, connection, data, again)
        finally:
            connection.close()


@contextmanager
def _mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    """The bytes of a file, which is not copied."""
    with opened(path) as file:
        if not size_of(file):
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _unpacked(path: Path, place: Path, again: str) -> Path:
    """The file itself, or what is in it where it is gzip, written to `place`."""
    try:
        with opened(path) as file:
            if file.read(2) != GZIP:
                return path
            file.seek(0)
            bound = may_unpack_to(size_of(file))
            with gzip.GzipFile(fileobj=file) as packed, place.open("xb") as plain:
                while chunk := packed.read(_CHUNK):
                    if plain.tell() + len(chunk) > bound:
                        raise too_small(str(path))
                    if plain.tell() + len(chunk) > _SIZE_LIMIT:
                        raise InputError(
                            f"{path} holds more than {_SIZE_LIMIT >> 30} GiB: unpack it and give "
                            "the file"
                        )
                    plain.write(chunk)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path} is damaged or was cut ({error}): write it again with {again}"
        ) from error
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"cannot read {path} ({why}): write it again with {again}") from error
    return place
