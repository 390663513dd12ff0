"""Commands by kind, device, track and kernel: against a group-by of the commands themselves."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from profiler.analysis import roles as module
from profiler.analysis.context import Inputs, Selection
from profiler.analysis.roles import kind_cells, sums_of
from profiler.run.intervals import chosen
from tests.runs import tiny_run


@pytest.mark.parametrize(("few", "rows"), [(0, 5), (0, 1000), (1 << 18, 0), (1 << 18, 1000)])
def test_sums_are_those_of_a_group_by(few, rows, monkeypatch):
    """Counted in an array as well as grouped by columns: 7 codes by 3 by 2, of which some do not
    occur."""
    monkeypatch.setattr(module, "_FEW", few)
    generator = np.random.default_rng(rows)
    codes = [generator.integers(size, size=rows) for size in (7, 3, 2)]
    start = generator.integers(1000, size=rows)
    end = start + generator.integers(50, size=rows)
    columns = [(code.__getitem__, size) for code, size in zip(codes, (7, 3, 2), strict=True)]
    found, count, total = sums_of(columns, start, end)
    frame = pl.DataFrame({"a": codes[0], "b": codes[1], "c": codes[2], "took": end - start})
    expected = frame.group_by("a", "b", "c").agg(pl.len(), pl.col("took").sum()).sort("a", "b", "c")
    for name, column in zip("abc", found, strict=True):
        assert column.tolist() == expected[name].to_list()
    assert count.tolist() == expected["len"].to_list()
    assert total.tolist() == expected["took"].to_list()


def test_cells_add_up_to_the_kinds():
    """Commands and durations of each kind of the tiny run; devices are those of its commands."""
    of = Inputs(tiny_run(), Selection(), (), {})
    cells = kind_cells(of)
    sums = cells.group_by("kind").agg(pl.col("commands", "total_ns").sum()).sort("kind")
    assert sums.equals(of.kinds.table.select("kind", "commands", "total_ns"))
    devices = of.run.commands["device"].cast(pl.String).unique().to_list()
    assert set(cells["device"]) == set(devices)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_chosen_are_the_masked_values(share):
    """More than a batch of values, of either width."""
    which = np.random.default_rng(0).random(300_000) < share
    for dtype in (np.int64, np.int32):
        values = np.arange(len(which), dtype=dtype)
        found = chosen(values, which, int(which.sum()))
        assert found.dtype == dtype
        assert (found == values[which]).all()
