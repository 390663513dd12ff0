"""Columns packed for the page come back as they were."""

from __future__ import annotations

import base64
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis.provenance import pack

NUMBERS = st.integers(-(2**53), 2**53)
REALS = st.floats(allow_nan=False) | st.integers(-1000, 1000).map(float)


def unpacked(described, packed):
    """What `templates/data.js` does, in Python."""
    data = zlib.decompress(base64.b64decode(packed))
    tables = {}
    for name, table in described.items():
        rows = table["rows"]
        for column, place in table["columns"].items():
            bits = [place["base"]] * rows
            for plane in range(place["width"]):
                at = place["at"] + plane * rows
                bits = [v + data[at + i] * 256**plane for i, v in enumerate(bits)]
            values = bits
            if "real" in place:
                values = np.array(bits, dtype=np.uint64).view(np.float64).tolist()
            if "plus" in place:
                values = [v + w for v, w in zip(values, tables[name, place["plus"]], strict=True)]
            tables[name, column] = values
        for column, place in table["columns"].items():
            values = tables[name, column]
            for i in range(1, rows if "after" in place else 0):
                values[i] += values[i - 1] + tables[name, place["after"]][i - 1]
    return tables


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans(), REALS), max_size=30),
    st.lists(NUMBERS, max_size=30),
)
def test_columns_survive(rows, single):
    """Any two tables, empty ones included, are read back number by number, whatever their columns
    have in common."""
    left, right, same, real = (np.array([row[i] for row in rows]) for i in range(4))
    tables = {
        "a": {
            "left": left.astype(np.int64),
            "right": right.astype(np.int64),
            "mostly": np.where(same.astype(bool), left, right).astype(np.int64),
            "real": real.astype(np.float64),
        },
        "b": {"only": np.array(single, dtype=np.int64)},
    }
    found = unpacked(*pack(tables, after={"a": {"left": "right"}}))
    for name, table in tables.items():
        for column, values in table.items():
            assert found[name, column] == values.tolist()


def test_differences_are_stored_where_columns_are_mostly_equal():
    """Wall times that mostly are the total cost what differs; reals that are whole numbers are
    stored as such, others as they are; starts that follow on durations as the gaps."""
    total = np.arange(1000, 2000)
    wall = total - (np.arange(1000) == 7)
    table = {"total": total, "wall": wall, "mean": wall.astype(float), "half": wall / 2}
    columns = pack({"t": table})[0]["t"]["columns"]
    assert [columns[name].get("plus") for name in table] == [None, "total", "total", None]
    assert [columns[name]["width"] for name in table] == [2, 1, 1, 8]
    starts = np.cumsum(np.append(0, total[:-1] + 400))
    follow = {"spans": {"start": "total"}}
    spans = pack({"spans": {"start": starts, "total": total}}, after=follow)[0]["spans"]
    assert spans["columns"]["start"]["width"] == 2  # 0, then 400


def test_equal_values_cost_nothing():
    """A column of one value takes no bytes, whatever the value."""
    described, _ = pack({"t": {"same": np.full(1000, 2**40)}})
    assert described["t"]["columns"]["same"] == {"at": 0, "width": 0, "base": 2**40}


def test_width_follows_the_range():
    """A column takes as many bytes a value as its range needs, not as its size."""
    times = 1_800_000_000_000_000_000 + np.arange(0, 60_000, 100)
    described, _ = pack({"t": {"start": times}})
    assert described["t"]["columns"]["start"]["width"] == 2
