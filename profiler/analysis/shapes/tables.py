"""The table of operators by shape."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs
from profiler.analysis.kind_cells import kind_cells
from profiler.analysis.roofline.tables import kind_bounds, profiles, works
from profiler.analysis.shapes.columns import SHAPES
from profiler.analysis.shapes.rows import find_rows
from profiler.analysis.shapes.shape_table import shape_table
from profiler.analysis.table import Table
from profiler.analysis.timelines import timelines_of

__all__ = ["TABLES"]


def _shapes(of: Inputs) -> pl.DataFrame:
    timelines = timelines_of(of.run.calls, of.run.drops)
    rows = find_rows(of.kinds, kind_cells(of), timelines)
    bandwidths = {device: one.memory_bandwidth for device, one in profiles(of).items()}
    return shape_table(rows, of.kinds, works(of), kind_bounds(of), bandwidths)


TABLES = (
    Table(
        name="shapes",
        row="one operation of one shape in a submodule, over all of its layers",
        section="shapes",
        columns=SHAPES,
        make=_shapes,
        title="Operators by shape",
        about="Operators of the same type with inputs of the same dims and types are one row, "
        "however many layers have them, longest `total_ns` first. Collectives are rows by name; "
        "copies and dma are left out, and count in `share`. What ran in no call (launched before "
        "the recording began, say) has no share and counts in none. Where nobody knows the "
        "operator of a "
        "kernel, the row is that kernel's. What was faster than a peak of its device has no part "
        "of it: data came from a cache, or less than whole tensors was read. "
        "[roofline.md](roofline.md) has the formulas.",
        rank=("-total_ns",),
        shown=15,
    ),
)
