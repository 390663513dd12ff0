"""Columns packed for the page come back as they were."""

from __future__ import annotations

import base64
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.report.pack import pack

NUMBERS = st.integers(-(2**53), 2**53)


def unpacked(described, packed):
    """What `templates/data.js` does, in Python."""
    data = zlib.decompress(base64.b64decode(packed))
    tables = {}
    for name, table in described.items():
        rows = table["rows"]
        for column, place in table["columns"].items():
            values = [place["base"]] * rows
            for plane in range(place["width"]):
                at = place["at"] + plane * rows
                values = [v + data[at + i] * 256**plane for i, v in enumerate(values)]
            tables[name, column] = values
    return tables


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30), st.lists(NUMBERS, max_size=30))
def test_columns_survive(pairs, single):
    """Any two tables, empty ones included, are read back number by number."""
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    tables = {
        "a": {"left": columns[:, 0], "right": columns[:, 1]},
        "b": {"only": np.array(single, dtype=np.int64)},
    }
    found = unpacked(*pack(tables))
    for name, table in tables.items():
        for column, values in table.items():
            assert found[name, column] == values.tolist()


def test_equal_values_cost_nothing():
    """A column of one value takes no bytes, whatever the value."""
    described, _ = pack({"t": {"same": np.full(1000, 2**40)}})
    assert described["t"]["columns"]["same"] == {"at": 0, "width": 0, "base": 2**40}


def test_width_follows_the_range():
    """A column takes as many bytes a value as its range needs, not as its size."""
    times = 1_800_000_000_000_000_000 + np.arange(0, 60_000, 100)
    described, _ = pack({"t": {"start": times}})
    assert described["t"]["columns"]["start"]["width"] == 2
