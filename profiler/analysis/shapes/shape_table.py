"""What each shape costs: operators of the same type, dims and dtype as one row over all layers.

Rates are FLOPs and bytes of `profiler.analysis.work` over the time of the commands that have them,
parts of a peak those of the device's profile. Roofline and bound are those of
`profiler.analysis.roofline.bounds`.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.expressions import ratio
from profiler.analysis.roofline.bounds import operator_roofline
from profiler.analysis.shapes.columns import SHAPES
from profiler.analysis.shapes.labels import dtype_of, label_of
from profiler.analysis.shapes.rows import Rows, executions
from profiler.analysis.work.of_kinds import KindWork
from profiler.analysis.work.shapes import parse_shapes
from profiler.table.columns import schema

__all__ = ["shape_table"]

_KEY = ["row", "device"]


def shape_table(rows: Rows, kinds: Kinds, work: KindWork, roofline: pl.DataFrame) -> pl.DataFrame:
    """One row a shape on a device, longest total first (`columns.SHAPES`); `roofline` is what
    `kind_roofline` makes of the same kinds and their `work`."""
    named = kinds.table.filter(pl.col("layer") != pl.col("op_type")).select("kind", "layer")
    layers = rows.cells.join(named, on="kind")
    table = (
        rows.cells.group_by(_KEY)
        .agg(pl.col("commands", "total_ns").sum())
        .pipe(_with, layers.group_by(_KEY).agg(layers=pl.col("layer").n_unique()))
        .pipe(_with, executions(rows.cells, kinds))
        .pipe(_with, _kernels(rows.cells))
        .pipe(_with, _against(rows, kinds, roofline))
        .join(_named(rows.names, work), on="row")
        .join(rows.busy, on="device", how="left", nulls_equal=True)
        .with_columns(share=ratio(pl.col("total_ns"), pl.col("busy_ns")))
        .sort(
            ["total_ns", "submodule", "label", "device", "row"],
            descending=[True, False, False, False, False],
            nulls_last=True,
        )
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(SHAPES).items())


def _with(table: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """`table` with the columns of `other` by row and device; a device may be null."""
    return table.join(other, on=_KEY, how="left", nulls_equal=True)


def _named(names: pl.DataFrame, work: KindWork) -> pl.DataFrame:
    """Each row with its label, family and dtype."""
    shapes = [parse_shapes(text) for text in names["shapes"]]
    works = [work.works[kind] for kind in names["kind"]]
    together = list(zip(names["op_type"], shapes, works, strict=True))
    return names.drop("kind").with_columns(
        pl.Series("label", [label_of(*one) for one in together], dtype=pl.String),
        pl.Series("family", [w.family.value if w else None for w in works], dtype=pl.String),
        pl.Series("dtype", [dtype_of(*one[1:]) for one in together], dtype=pl.String),
    )


def _kernels(cells: pl.DataFrame) -> pl.DataFrame:
    """The kernels of each row: how many, and the one with most time with how many others."""
    named = (
        cells.drop_nulls("kernel")
        .group_by(*_KEY, "kernel")
        .agg(pl.col("total_ns").sum())
        .sort(["total_ns", "kernel"], descending=[True, False])
    )
    found = named.group_by(_KEY, maintain_order=True).agg(
        pl.col("kernel").first(), kernels=pl.len()
    )
    others = pl.format("{} +{}", "kernel", pl.col("kernels") - 1)
    kernel = pl.when(pl.col("kernels") > 1).then(others).otherwise("kernel")
    every = _with(cells.select(_KEY).unique(), found)
    return every.with_columns(kernel=kernel, kernels=pl.col("kernels").fill_null(0))


def _against(rows: Rows, kinds: Kinds, roofline: pl.DataFrame) -> pl.DataFrame:
    """The rates of each row, its bound and its time above the roofline."""
    single = rows.cells.select("kind", "row").unique().filter(pl.col("kind").is_unique())
    keyed = roofline.join(single, on="kind")
    flops, nbytes = pl.col("flops").is_not_null(), pl.col("bytes").is_not_null()
    known = pl.col("roofline_ns").is_not_null()
    took = pl.col("total_ns")
    sums = keyed.group_by(_KEY).agg(
        flops=pl.col("flops").filter(flops).sum(),
        bytes=pl.col("bytes").filter(nbytes).sum(),
        computed_ns=took.filter(flops).sum(),
        moved_ns=took.filter(nbytes).sum(),
        peak_ns=pl.col("compute_ns").sum(),
        peaked_ns=took.filter(pl.col("compute_ns").is_not_null()).sum(),
        memory_ns=pl.col("memory_ns").sum(),
        remembered_ns=took.filter(pl.col("memory_ns").is_not_null()).sum(),
        above_roofline_ns=pl.when(known.any()).then(
            (took - pl.col("roofline_ns")).filter(known).sum().round()
        ),
    )
    rated = sums.select(
        *_KEY,
        "above_roofline_ns",
        flops=pl.when(pl.col("computed_ns") > 0).then(pl.col("flops").round()),
        bytes=pl.when(pl.col("moved_ns") > 0).then(pl.col("bytes").round()),
        teraflops_per_s=ratio(pl.col("flops"), pl.col("computed_ns")) / 1e3,
        flops_of_peak=ratio(pl.col("peak_ns"), pl.col("peaked_ns")),
        gigabytes_per_s=ratio(pl.col("bytes"), pl.col("moved_ns")),
        bandwidth_of_peak=ratio(pl.col("memory_ns"), pl.col("remembered_ns")),
    )
    return _with(rated, _bounds(single, kinds, roofline))


def _bounds(single: pl.DataFrame, kinds: Kinds, roofline: pl.DataFrame) -> pl.DataFrame:
    """What bounds each row: the rule of operators, of rows in the place of layers."""
    named = kinds.table.join(single, on="kind", how="left", maintain_order="left")
    as_layers = replace(kinds, table=named.with_columns(layer=pl.col("row").cast(pl.String)))
    kept = roofline.join(single.select("kind"), on="kind", how="semi", maintain_order="left")
    found = operator_roofline(kept, as_layers)
    return found.select("device", "bound", row=pl.col("layer").cast(pl.Int64))
