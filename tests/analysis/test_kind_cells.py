"""Commands by kind, device, track and kernel."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from profiler.analysis import Inputs, Selection
from profiler.analysis.roles import kind_cells
from profiler.run.intervals import chosen
from tests.runs import tiny_run


def test_cells_add_up_to_the_kinds():
    """Commands and durations of each kind of the tiny run; devices are those of its commands."""
    of = Inputs(tiny_run(), Selection(), (), {})
    cells = kind_cells(of)
    sums = cells.group_by("kind").agg(pl.col("commands", "total_ns").sum()).sort("kind")
    assert sums.equals(of.kinds.table.select("kind", "commands", "total_ns"))
    devices = of.run.commands["device"].cast(pl.String).unique().to_list()
    assert set(cells["device"]) == set(devices)
    ordered = cells.sort("kind", "device", "track", "kernel", nulls_last=True)
    assert cells.equals(ordered)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_chosen_are_the_masked_values(share):
    """More than a batch of values, of either width."""
    which = np.random.default_rng(0).random(300_000) < share
    for dtype in (np.int64, np.int32):
        values = np.arange(len(which), dtype=dtype)
        found = chosen(values, which, int(which.sum()))
        assert found.dtype == dtype
        assert (found == values[which]).all()
