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
        about="Operators of the same type, with inputs of the same dims and types, are one row, "
        "however many layers have them; the longest `total_ns` comes first. Collectives have "
        "rows by name. Copies and dma have no rows, but count in the total that `share` refers "
        "to. Work outside every call, such as work launched before the recording began, has no "
        "share and counts in none. Where the operator of a kernel is not known, the row is the "
        "kernel's. A rate above the device's peak is not shown as a part of it: the data came "
        "from a cache, or less than whole tensors was read. [roofline.md](roofline.md) has the "
        "formulas.",
        rank=("-total_ns",),
        shown=15,
    ),
)
