"""`Run`: its columns are declared, its frames checked, and pandas gets exact numbers."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from profiler.run import Run, columns
from profiler.tools.sources import load
from profiler.trace import HOST_NAME
from tests.trace.samples import EPOCH_NS, small_bundle

_REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load(small_bundle(tmp_path))


def test_page_of_columns() -> None:
    """docs/columns.md is what the declarations say."""
    page = (_REPOSITORY / "docs" / "columns.md").read_text(encoding="utf-8")
    assert page == columns.markdown(), "run python -m profiler.run.columns > docs/columns.md"


def test_frames_have_the_declared_columns(run: Run) -> None:
    """Each frame has its declared columns, in order and with their types."""
    for name, declared in columns.TABLES.items():
        assert getattr(run, name).schema == columns.schema(declared)


def test_declarations_are_complete() -> None:
    """Every column has a meaning, no name stands twice, and what is in ns is an integer."""
    for declared in columns.TABLES.values():
        names = [column.name for column in declared]
        assert len(set(names)) == len(names)
        for column in declared:
            assert column.meaning
            assert (column.unit == "ns") == column.name.endswith("_ns")
            assert column.unit != "ns" or column.dtype == pl.Int64


@pytest.mark.parametrize("name", columns.TABLES)
def test_undeclared_columns_are_refused(run: Run, name: str) -> None:
    """A frame that lacks a column, or has one of another type, is refused; an additional one is
    left out."""
    frame = getattr(run, name)
    first = frame.columns[0]
    with pytest.raises(ValueError, match="differ from their declaration"):
        replace(run, **{name: frame.drop(first)})
    with pytest.raises(ValueError, match="differ from their declaration"):
        replace(run, **{name: frame.with_columns(pl.lit(1.5).alias(first))})
    more = replace(run, **{name: frame.with_columns(undeclared=1)})
    assert getattr(more, name).equals(frame)


def test_undeclared_nulls_are_refused(run: Run) -> None:
    """A null in a column that is declared without is refused, with the column's name."""
    empty = pl.lit(None, dtype=pl.Int64).alias("start_ns")
    with pytest.raises(ValueError, match="start_ns holds nulls"):
        replace(run, calls=run.calls.with_columns(empty))


def test_run_does_not_change(run: Run) -> None:
    """The fields of a run cannot be set."""
    with pytest.raises(FrozenInstanceError):
        run.calls = run.calls  # type: ignore[misc]


def test_repr_is_one_line(run: Run) -> None:
    """A run shows itself with the sizes of its frames, not their content."""
    assert repr(run) == "Run('small': 5 calls, 21 commands, 10 counter samples, 10 flows)"


def test_pandas_keeps_nanoseconds(run: Run) -> None:
    """No number of the commands passes through a float: times come back to the nanosecond."""
    frame = run.to_pandas()
    floats = [name for name in frame if pd.api.types.is_float_dtype(frame[name])]
    assert floats == []
    assert frame["start_ns"].tolist() == run.commands["start_ns"].to_list()
    assert EPOCH_NS % 512 != 0, "a time that a float64 would round proves the point"
    calls = frame.loc[frame["call"] == 0, "call_start_ns"]
    assert calls.unique().tolist() == [EPOCH_NS]


def test_pandas_types(run: Run) -> None:
    """Text is categorical; integers with nulls are Int64, without int64; truth values boolean."""
    frame = run.to_pandas()
    assert len(frame) == len(run.commands)
    for name in ("layer", "op_type", "role", "submodule", "branch", "call_device", "track"):
        assert isinstance(frame[name].dtype, pd.CategoricalDtype)
    expected = {
        "start_ns": "int64",
        "duration_ns": "int64",
        "flops": "Int64",
        "bytes_read": "Int64",
        "call_start_ns": "Int64",
        "call_duration_ns": "Int64",
        "command_index": "int32",
        "ops_traced": "boolean",
    }
    assert {name: str(frame[name].dtype) for name in expected} == expected


def test_pandas_joins_each_command_with_its_call(run: Run) -> None:
    """Each command has its call's submodule and times; host work has none."""
    frame = run.to_pandas()
    assert set(frame.loc[frame["call"] == 2, "submodule"]) == {"transformer"}
    host = frame[frame["call"] == -1]
    assert host["submodule"].isna().all()
    assert host["call_start_ns"].isna().all()
    assert frame["call_duration_ns"].dropna().gt(0).all()


def test_pandas_of_a_run_without_nulls(tmp_path: Path) -> None:
    """Where no command lacks a call, its times are plain int64."""
    bundle = small_bundle(tmp_path)
    (bundle / HOST_NAME).unlink()
    frame = load(bundle).to_pandas()
    assert str(frame["call_start_ns"].dtype) == "int64"
    assert str(frame["ops_traced"].dtype) == "bool"


def test_pandas_example_of_the_readme(run: Run) -> None:
    """The first thing that a notebook does, a sum by layer, works."""
    sums = run.to_pandas().groupby("layer", observed=True)["duration_ns"].sum()
    assert sums["attn.sdpa"] == 800


def test_another_role_leaves_the_tiles(run: Run) -> None:
    """What is made of the times of commands is not made again for their roles."""
    dtype = run.commands["role"].dtype
    other = run.with_role(pl.Series(["norm"] * len(run.commands), dtype=dtype))
    assert set(other.commands["role"]) == {"norm"}
    assert other.tiles.calls.equals(run.tiles.calls)
    assert run.with_role(other.commands["role"]).tiles is run.tiles
