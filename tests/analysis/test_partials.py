"""Partial results: what they hold, and that combining them gives what the analysis has."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import question as module
from profiler.analysis.analyze import analyze, partials_of
from profiler.analysis.question import Partials, partials, table_named, tables
from profiler.analysis.roles import with_roles
from profiler.run.columns import Column
from profiler.run.run import Run
from tests.async_runs import Machine, machines
from tests.examples import examples
from tests.report.combining import combine
from tests.report.selections import analysis_of, split_run
from tests.runs import Command, make_call, make_run, make_span, tiny_run

_TABLES = ("operators", "roles", "blocks", "submodules", "branches", "calls")


def parts_of(run: Run) -> dict[str, tuple[Partials, ...]]:
    return partials_of(analyze(run))


def test_cells_hold_commands_and_time_by_operator_call_and_device() -> None:
    """The tiny run's attention ran twice in each of two calls: two op types, so four cells, each
    with its time."""
    cells, _ = parts_of(tiny_run())["operators"]
    rows = cells.rows
    for column, book in cells.dictionaries.items():
        rows = rows.join(book.with_row_index(column), on=column).drop(column)
    attention = rows.filter(layer="blocks.0.attn").sort("call", "op_type")
    columns = ("call", "step", "op_type", "device", "commands", "total_ns")
    assert attention.select(columns).rows() == [
        (1, 0, "MatMul", "rbln:0", 1, 100),
        (1, 0, "Softmax", "rbln:0", 1, 60),
        (2, 1, "MatMul", "rbln:0", 1, 60),
        (2, 1, "Softmax", "rbln:0", 1, 80),
    ]
    host = rows.filter("host").sort("step")
    assert host.select("layer", "stage", "step", "call", "submodule", "role").rows() == [
        ("tokenizer", "encode", -1, None, None, None),
        ("scheduler.step", "denoise", 0, None, None, None),
        ("scheduler.step", "denoise", 1, None, None, None),
    ]


def test_folds_hold_what_differs_from_the_sum_alone() -> None:
    """Attention overlaps on two tracks: 100 and 60 ns take 100 of wall time, on two tracks 200
    possible, 100 on the busiest, 80 on average. Operators of one track have no fold."""
    _, folds = parts_of(tiny_run())["operators"]
    assert set(folds.dictionaries["operator"]["layer"]) == {"conv", "blocks.0.attn"}
    rows = folds.rows
    for column, book in folds.dictionaries.items():
        rows = rows.join(book.with_row_index(column), on=column).drop(column)
    (first,) = rows.filter(layer="blocks.0.attn", call=1).select(pl.col("^.*offset_ns$")).rows()
    assert first == (100 - 160, 0, 200 - 160, 100 - 160, 80.0 - 160)


@pytest.mark.parametrize("table", _TABLES)
@pytest.mark.parametrize("run", [tiny_run, split_run])
def test_all_parts_together_are_the_table(table: str, run: Any) -> None:
    """Combined from all parts, every column that combines is that of the table."""
    made = with_roles(run())
    analysis = analyze(made)
    declared = table_named(table).columns
    found = combine(partials_of(analysis)[table], declared, {})
    frame = analysis.frames[table]
    keys = [c.name for c in declared if type(c.combine).__name__ == "Key"]
    assert len(found) == len(frame)
    for row in frame.iter_rows(named=True):
        combined = found[tuple(row[name] for name in keys)]
        for name, value in combined.items():
            assert value == pytest.approx(row[name]), (row, name)


_DRAWN = st.fixed_dictionaries(
    {
        "rows": st.lists(
            st.tuples(
                st.integers(0, 2),  # call
                st.sampled_from(["a.0.q", "a.1.q", "b"]),
                st.sampled_from(["rbln:0", "rbln:1"]),
                st.sampled_from(["C0", "C1", "DMA"]),
                st.integers(0, 60),
                st.integers(0, 30),
            ),
            min_size=1,
            max_size=14,
        ),
        "apart": st.sampled_from(["call", "device", "step", "submodule"]),
    }
)


def _drawn_run(rows: list[tuple[Any, ...]]) -> Run:
    calls = [
        make_call(i, ("transformer", "vae")[i % 2], 100 * i, 100 * i + 99, step=i) for i in range(3)
    ]
    commands = [
        Command(
            call,
            device,
            track,
            "dma" if track == "DMA" else "compute",
            layer,
            100 * call + at,
            took,
        )
        for call, layer, device, track, at, took in rows
    ]
    spans = [make_span("pipeline", "P", 0, 300), make_span("stage", "denoise", 0, 300)]
    return with_roles(make_run(calls, commands, spans))


@settings(max_examples=examples(40), deadline=None)
@given(_DRAWN)
def test_any_partition_adds_up_to_the_whole(drawn: dict[str, Any]) -> None:
    """Sums of the parts of any partition by one key add up to those of the whole run, or are not
    told where a part cuts an operator of a call; what is told is never more than the whole."""
    run, apart = _drawn_run(drawn["rows"]), drawn["apart"]
    columns = table_named("operators").columns
    parts = parts_of(run)["operators"]
    whole = combine(parts, columns, {})
    values = {value for part in parts for book in part.dictionaries.values() if apart in book
              for text in book[apart].drop_nulls() for value in str(text).split("\n")}  # fmt: skip
    pieces = [combine(parts, columns, {apart: lambda v, one=one: str(v) == one}) for one in values]
    for key, row in whole.items():
        of_row = [piece[key] for piece in pieces if key in piece]
        for name in ("commands", "total_ns"):
            assert sum(one[name] for one in of_row) == row[name]
        walls = [one["wall_ns"] for one in of_row]
        if None not in walls:
            assert sum(walls) == row["wall_ns"]
        else:
            assert apart == "device"


@settings(max_examples=examples(25), deadline=None)
@given(_DRAWN)
def test_a_part_is_the_analysis_of_it(drawn: dict[str, Any]) -> None:
    """Combined of one call, every value that is told is that of the analysis of its commands."""
    run = _drawn_run(drawn["rows"])
    columns = table_named("operators").columns
    parts = parts_of(run)["operators"]
    keys = ("submodule", "layer", "host")
    for call in run.commands["call"].unique():
        only = replace(run, commands=run.commands.filter(call=call))
        expected = {
            tuple(row[name] for name in keys): row
            for row in analyze(only).operators.iter_rows(named=True)
        }
        found = combine(parts, columns, {"call": lambda v, one=call: v == one})
        assert set(found) == set(expected)
        for key, row in found.items():
            for name, value in row.items():
                assert value == pytest.approx(expected[key][name]), (key, name)


def test_keys_are_left_out_where_parts_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more parts than a page holds the calls go first, then the steps; sums stay."""
    rows = pl.DataFrame(
        {
            "work": pl.Series([0, 0, 1, 1], dtype=pl.UInt32),
            "key": pl.Series([0, 1, 2, 3], dtype=pl.UInt32),
            "total_ns": [1, 2, 4, 8],
        }
    )
    keys = pl.DataFrame(
        {
            "call": [0, 1, 2, 3],
            "group": [0, 1, 2, 3],
            "step": [0, 0, 0, 1],
            "device": ["x", "x", "y", "y"],
        }
    )
    works = pl.DataFrame({"layer": ["a", "b"]})
    monkeypatch.setattr(module, "MOST_PARTS", 3)
    found = partials("cells", rows, {"work": works, "key": keys})
    assert found.dictionaries["key"].rows() == [(0, "x"), (0, "y"), (1, "y")]
    assert found.rows["total_ns"].to_list() == [3, 4, 8]
    monkeypatch.setattr(module, "MOST_PARTS", 2)
    found = partials("cells", rows, {"work": works, "key": keys})
    assert found.dictionaries["key"].rows() == [("x",), ("y",)]
    assert found.rows["total_ns"].to_list() == [3, 12]


def test_rules_name_columns_and_partials_that_there_are() -> None:
    """Every rule of a table with partials names partial columns and attributes that these have."""
    made = parts_of(tiny_run())
    for table in tables():
        assert (table.partials is not None) == (table.name in made)
        if table.partials is None:
            continue
        known = {n for part in made[table.name] for n in part.rows.columns}
        told = {
            n for part in made[table.name] for b in part.dictionaries.values() for n in b.columns
        }
        for column in table.columns:
            rule = column.combine
            sums = [getattr(rule, name, None) for name in ("of", "to")]
            for one in [rule, *sums]:
                if type(one).__name__ == "Sum":
                    assert {*one.of} <= known, column.name
                    assert one.where is None or one.where[0] in told
            if type(rule).__name__ == "Key":
                assert column.name in told
            if type(rule).__name__ in ("Distinct", "Names"):
                assert {*([rule.of] if isinstance(rule.of, str) else rule.of)} <= told
            if type(rule).__name__ in ("Min", "Max", "Median", "First", "Union"):
                named = ("of", "by", "begin", "end")
                assert {getattr(rule, n) for n in named if hasattr(rule, n)} <= known
            if type(rule).__name__ == "Scaled":
                assert rule.by in told


@settings(max_examples=examples(40), deadline=None)
@given(machines(), st.randoms(use_true_random=False))
def test_calls_of_asynchronous_devices_combine(machine: Machine, draw: random.Random) -> None:
    """Submodules of any calls, combined, are the analysis of these calls: sums, steady minima,
    medians and maxima, the first call. Device time and share alone may be untold, where the work or
    the tiles of two calls overlap."""
    run = machine.run()
    chosen = [call for call in run.calls["call"] if draw.random() < 0.6]
    parts, columns = parts_of(run)["submodules"], table_named("submodules").columns
    found = combine(parts[:1], [c for c in columns if _of_calls(c)], {"call": chosen.__contains__})
    expected = analysis_of(run, {"call": chosen}).submodules if chosen else pl.DataFrame()
    assert len(found) == len(expected)
    for row in expected.iter_rows(named=True):
        for name, value in found[(row["submodule"],)].items():
            untold = value is None and name in ("busy_ns", "share")
            assert untold or value == pytest.approx(row[name]), (name, row)


def _of_calls(column: Column) -> bool:
    return column.name not in ("commands", "operators") and column.combine is not None
