"""Columns of several traces become one frame."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from profiler.run import COMMANDS, schema
from profiler.run.columns import CATEGORY, ROLE, TEXT
from profiler.run.load import Part, commands_of, with_calls
from profiler.trace.columns import same

_TABLES = {"category": CATEGORY, "role": ROLE}


def _parts(rows: int, **given: tuple[list[int], list[str | None] | None]):
    """Commands that are `given` (numbers, or codes with the texts that they stand for) and nothing
    else: of the other columns each is one value."""
    found = {}
    for column in COMMANDS:
        table = None
        if not column.dtype.is_integer():
            table = pl.Series(["compute"], dtype=pl.String).cast(
                _TABLES.get(column.name, TEXT), strict=False
            )
        width = np.int64 if column.dtype == pl.Int64() else np.int32
        found[column.name] = Part(same(width(0), rows), table)
    for name, (values, texts) in given.items():
        column = schema(COMMANDS)[name]
        table = None if texts is None else pl.Series(texts, dtype=pl.String).cast(column)
        width = np.int64 if column == pl.Int64() else np.int32
        found[name] = Part(np.array(values, dtype=width), table)
    return found


def test_traces_stand_behind_each_other_whatever_their_tables_are():
    """A text is found by the table of its own trace, a number is taken over, -1 is unknown."""
    first = _parts(
        2, layer=([1, 0], ["a", "b"]), flops=([5, -1], None), shapes=([0, 1], [None, "x"])
    )
    second = _parts(1, layer=([0], ["c"]), flops=([7], None))
    frame = commands_of([first, second])
    assert frame.schema == schema(COMMANDS)
    assert frame["layer"].to_list() == ["b", "a", "c"]
    assert frame["flops"].to_list() == [5, None, 7]
    assert frame["shapes"].to_list() == [None, "x", "compute"]
    assert frame.n_chunks("all") == [1] * len(COMMANDS)
    assert first == second == {}


def test_traces_without_commands_are_no_rows():
    """A trace of no commands adds nothing, and traces of none at all are an empty frame."""
    assert len(commands_of([_parts(0)])) == len(commands_of([])) == 0
    assert commands_of([]).schema == schema(COMMANDS)
    assert len(commands_of([_parts(0), _parts(3)])) == 3


@pytest.mark.parametrize("value", [4, -1])
def test_one_value_of_all_traces_is_that_value(value):
    """What every trace says of every command is said of all, unknown as null."""
    traces = [_parts(2), _parts(3)]
    for parts in traces:
        parts["bytes_read"] = Part(same(np.int64(value), len(parts["call"].values)))
    read = commands_of(traces)["bytes_read"]
    assert read.to_list() == [None if value < 0 else value] * 5


@pytest.mark.parametrize("alone", [True, False])
def test_commands_have_pipeline_stage_and_step_of_their_call(alone):
    """Commands of a known call are given what the call has; those of none keep their own."""
    calls = pl.DataFrame(
        {"call": [3, 5], "pipeline": [8, 9], "stage": ["encode", "decode"], "step": [-1, 12]},
        schema={"call": pl.Int32, "pipeline": pl.Int32, "stage": TEXT, "step": pl.Int32},
    )
    numbers = [5, 5, 5] if alone else [3, 5, -1]
    parts = _parts(3, step=([1, 2, 4], None), stage=([0, 0, 0], ["denoise"]), call=(numbers, None))
    if alone:
        parts["call"] = Part(same(np.int32(5), 3))
    with_calls(parts, calls)
    frame = commands_of([parts]).select("pipeline", "stage", "step").rows()
    own = (
        [(9, "decode", 12)] * 3
        if alone
        else [(8, "encode", -1), (9, "decode", 12), (0, "denoise", 4)]
    )
    assert frame == own
