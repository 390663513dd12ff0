"""Tables of SQLite as columns: what SQLite itself says of the same rows."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.importers.sqlite_file import open_sqlite
from profiler.trace import _core
from tests.examples import examples

NUMBERS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from((0, 1, -1, 127, 128))
ODD = st.sampled_from((1.5, 2.0, "17", "x", b"\x00\x01"))
TORCHS = st.sampled_from(
    ("aten::mm, seq = 1", "a, op_id = 2, sizes = [[1]]", "b, seq = 3, op_id = 4")
)
TEXTS = st.none() | st.text(max_size=9) | TORCHS | st.integers(400, 9000).map("é".__mul__)
KEYS = st.integers(-(1 << 40), 1 << 40)


def tables(odd):
    """Rows of an id, two numbers and a text."""
    number = NUMBERS | ODD if odd else NUMBERS
    rows = st.lists(st.tuples(KEYS, number, TEXTS, number), max_size=60, unique_by=lambda r: r[0])
    return rows | rows.map(lambda some: [(n, *row[1:]) for n, row in enumerate(some * 20)])


def written(path, rows, page, more, key="id"):
    """A file with these rows by a `key`; `more` is a column that was added when they were there."""
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA page_size = {page}")
    database.execute(f"CREATE TABLE odd ({key} INTEGER PRIMARY KEY, a INTEGER, t TEXT, b)")
    database.executemany("INSERT INTO odd VALUES (?, ?, ?, ?)", rows)
    database.execute(f"DELETE FROM odd WHERE {key} % 7 = 3")
    if more:
        database.execute("ALTER TABLE odd ADD COLUMN c INTEGER DEFAULT 5")
    database.commit()
    a, b = (
        f"CASE WHEN typeof({name}) IN ('integer', 'real') THEN CAST({name} AS INTEGER) "
        f"WHEN substr({name}, 1, 1) IN ('-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9') "
        f"THEN CAST({name} AS INTEGER) ELSE {missing} END"
        for name, missing in (("a", -7), ("b", -8))
    )
    found = database.execute(
        f"SELECT {key}, {a}, {b}, "
        "CASE typeof(t) WHEN 'text' THEN substr(t, 1, 65536) END FROM odd ORDER BY rowid"
    ).fetchall()
    database.close()
    return found


@settings(max_examples=examples(150), deadline=None)
@given(
    st.booleans().flatmap(tables),
    st.sampled_from((512, 4096, 65536)),
    st.booleans(),
    st.sampled_from(("id", "event")),
)
def test_columns_are_those_that_sqlite_has(rows, page, more, key):
    """Numbers, keys of any name and texts of any rows are those of SQLite, on pages of any size;
    texts lack at most torch's numbers of operators."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        told = written(path, rows, page, more, key)
        columns = {key: -1, "a": -7, "b": -8, "none": 3} | ({"c": -9} if more else {})
        with open_sqlite(path, "") as file:
            numbers = file.numbers("odd", columns)
            same, texts, place = file.with_texts("odd", columns, "t")
    for name, column in numbers.items():
        assert column.dtype == np.int64
        assert column.tolist() == same[name].tolist()
    known = [numbers[name].tolist() for name in (key, "a", "b")]
    assert [*zip(*known, strict=True)] == [row[:3] for row in told]
    assert numbers["none"].tolist() == [3] * len(told)
    if more:
        assert numbers["c"].tolist() == [5] * len(told)
    for (*_, text), at in zip(told, place.tolist(), strict=True):
        assert (text is None) == (at < 0)
        if text is not None and texts[at] != text:
            assert (texts[at], text) in {
                ("aten::mm", "aten::mm, seq = 1"),
                ("a, sizes = [[1]]", "a, op_id = 2, sizes = [[1]]"),
                ("b", "b, seq = 3, op_id = 4"),
            }


@pytest.mark.parametrize("cut", [0, 15, 16, 99, 511, 512, 600, 4095, 4096, 8191])
def test_pages_that_are_not_there(tmp_path, cut):
    """The core reads a plain table from its pages, and none from a file that was cut."""
    rows = [(n, n, "text", n) for n in range(2000)]
    path = tmp_path / "a.sqlite"
    told = written(path, rows, 4096, False)
    data, root = path.read_bytes(), 2
    (numbers,), texts, place = _core.sqlite_columns(data, root, [(1, -7)], 2, 0, lambda: None)
    assert numbers.tolist() == [row[1] for row in told]
    assert {texts[at] for at in place.tolist()} == {b"text"}
    assert _core.sqlite_columns(data[:cut], root, [(1, -7)], 2, 0, lambda: None) is None
    assert _core.sqlite_columns(data, 1 << 30, [(1, -7)], 2, 0, lambda: None) is None


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_damaged_pages(data):
    """Bytes that were changed make another table or none, and never more rows than bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        written(path, [(n, n, "x" * (n % 900), n) for n in range(60)], 512, False)
        changed = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        changed[data.draw(st.integers(16, len(changed) - 1))] = data.draw(st.integers(0, 255))
    found = _core.sqlite_columns(bytes(changed), 2, [(0, -1), (1, -7), (3, -8)], 2, 0, lambda: None)
    if found is not None:
        numbers, texts, place = found
        assert {len(column) for column in numbers} == {len(place)}
        assert len(place) <= len(changed)
        assert not len(place) or place.max() < len(texts)
