"""Read an SQLite file as columns of numbers and texts.

Missing tables and columns are no error: a missing column has its default in every row. Nothing of
the file is executed: it is opened read-only and immutable, virtual tables and views are not read,
texts are cut at 64 KiB. Tables of plain values are read from their pages by the core, 10 × faster
than SQLite's rows as objects.
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
_ASKED = 500  # ids in one query
_BATCH = 1 << 15  # rows that are Python objects at once
_BROKEN = (  # the last is raised for SQLite's own message if it quotes unreadable text
    *(sqlite3.DatabaseError, sqlite3.DataError, OverflowError, MemoryError),
    UnicodeDecodeError,
)


class Lead(NamedTuple):
    """A column of another table, looked up by the id in column `key`; `missing` if the id is not
    there."""

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
        """Whether `id` is a unique key of the table's rows."""
        return table in self._keyed

    def numbers(
        self,
        table: str,
        columns: Mapping[str, int],
        leads: Mapping[str, Lead] = MappingProxyType({}),
    ) -> dict[str, Int64s]:
        """Columns of a table in row order, int64 each; `columns` has the value for null, or for a
        missing column. No rows if the table does not exist. `leads` are columns of other tables,
        which are `keyed`."""
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
        """Columns of numbers as from `numbers`, and one column of texts: some texts, and the index
        of each row's text, -1 for none. Texts may lack the numbers that torch gives operators."""
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
        """The columns among `columns` that a table has."""
        return [name for name in columns if name in self.columns_of(table)]

    def _plain(
        self, table: str, columns: Mapping[str, int], text: str = ""
    ) -> tuple[list[Int64s], list[bytes], Int32s] | None:
        """Existing columns of a table, read from its pages; None if the table is not plain."""
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
        """Let the system reclaim the mapped pages of the file, which count as used memory."""
        if isinstance(self._data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED)

    def _asked(
        self, table: str, columns: Mapping[str, int], there: list[str], led: Mapping[str, Lead]
    ) -> dict[str, Int64s]:
        """Existing columns, and columns of other tables, read by SQLite."""
        asked = [_number(f'r."{name}"', columns[name]) for name in there]
        joins = ""
        for at, lead in enumerate(led.values()):
            asked.append(_number(f'j{at}."{lead.column}"', lead.missing))
            joins += f' LEFT JOIN "{lead.table}" AS j{at} ON j{at}."id" = r."{lead.key}"'
        question = f'SELECT {", ".join(asked)} FROM "{table}" AS r{joins}'  # noqa: S608
        return dict(zip((*there, *led), self._numbers(question, len(asked)), strict=True))

    def _asked_texts(
        self, table: str, columns: Mapping[str, int], text: str
    ) -> tuple[list[Int64s], list[str], Int32s]:
        """Existing columns of numbers and one of texts, if it exists, read by SQLite."""
        asked = [_number(f'"{name}"', missing) for name, missing in columns.items()]
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
        """Yield the rows of a table, with None for missing columns; none if the table does not
        exist."""
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
        """The texts of a table for these ids (`id`), without ids that it lacks."""
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
        """The result of a query, with rows of `width` numbers, as columns. It needs memory for one
        more column only."""
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
    """All columns; missing ones are filled with their default."""
    return {
        name: found[name] if name in found else np.full(count, default, dtype=np.int64)
        for name, default in missing.items()
    }


def _number(column: str, missing: int) -> str:
    """The SQL expression for a column as a number, `missing` for null and for what is none."""
    is_number = f"typeof({column}) IN ('integer', 'real') OR {column} GLOB '[-0-9]*'"
    return f"CASE WHEN {is_number} THEN CAST({column} AS INTEGER) ELSE {missing} END"


def _value(column: str, others: str) -> str:
    """The SQL expression for a column: texts are cut, `others` is for values of other types."""
    text = f'substr("{column}", 1, {_TEXT_LIMIT})'
    return f"CASE typeof(\"{column}\") WHEN 'text' THEN {text} {others} END"


@contextmanager
def open_sqlite(path: Path, again: str) -> Iterator[SqliteFile]:
    """Open the file at `path`, plain or gzip. Raises InputError, with the command `again` that
    writes it, if it cannot be read."""
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
    """The bytes of a file, mapped without a copy."""
    with opened(path) as file:
        if not size_of(file):
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _unpacked(path: Path, place: Path, again: str) -> Path:
    """The path itself, or, for gzip, `place` with the unpacked content."""
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
