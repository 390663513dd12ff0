"""CSV files as columns: what Python's own reader of CSV finds in the same text."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.importers.rocprofv3.text_files import read_csv
from tests.examples import examples

TEXTS = st.text(st.sampled_from('ab ,"\n1é'), max_size=12)
NUMBERS = st.integers(-(10**18) + 1, 10**18 - 1)
ROWS = st.lists(st.tuples(NUMBERS, TEXTS, TEXTS), max_size=20)


@settings(max_examples=examples(200))
@given(ROWS, st.sampled_from((csv.QUOTE_ALL, csv.QUOTE_MINIMAL)), st.sampled_from(("\n", "\r\n")))
def test_columns_are_those_of_the_rows(rows, quoting, newline):
    """Numbers and texts of any rows are read back, whatever the texts hold."""
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting, lineterminator=newline).writerows([("n", "a", "b"), *rows])
    found = read_csv(file.getvalue().encode(), ("n", "none"), ("b",))
    assert (found.count, found.damaged) == (len(rows), 0)
    assert found.numbers("n", 0).tolist() == [number for number, _, _ in rows]
    assert found.numbers("none", 7).tolist() == [7] * len(rows)
    texts, place = found.texts("b")
    assert [texts[at] for at in place.tolist()] == [text for _, _, text in rows]
    assert len(set(texts)) == len(texts) or not rows


@pytest.mark.parametrize(
    ("text", "numbers", "damaged"),
    [
        ("1,x\n2,y", [1, 2], 0),  # the last row has no newline
        ("1,x\n\n2,y\n\r\n", [1, 2], 0),  # blank lines
        ("1,x\n2\n12,\n3,4,5\n", [1, 12], 1),
        ('1,x\n2,"y\n3,z\n', [1], 2),  # a quote that stays open
        ("12345678901234567890,x\n-,x\n1 ,x\n,x\n-5,x\n", [-1, -1, -1, -1, -5], 0),
        ("", [], 0),
    ],
)
def test_rows_that_are_none(text, numbers, damaged):
    """Rows with too few or too many fields, or without an end, are counted; a number that is none
    is missing."""
    found = read_csv(f"n,a\n{text}".encode(), ("n",), ("a",))
    assert (found.numbers("n", -1).tolist(), found.damaged) == (numbers, damaged)
