"""What each shape costs: operators of the same type, dims and dtype as one row over all layers.

Rates are FLOPs and bytes of `profiler.analysis.work` over the time of the commands that have them.
The peaks are those of the device's profile, the terms of the roofline and the rule of the bound
those of `profiler.analysis.roofline.bounds`. What was faster than a peak did not run against it (a
cache, a part of a tensor, a profile that is too low): its part of the peak is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.expressions import ratio
from profiler.analysis.roofline.bounds import as_declared
from profiler.analysis.roofline.codes import Bound
from profiler.analysis.shapes.columns import SHAPES
from profiler.analysis.shapes.labels import dtype_of, label_of
from profiler.analysis.shapes.rows import Rows, executions
from profiler.analysis.work.of_kinds import KindWork
from profiler.analysis.work.shapes import parse_shapes
from profiler.run.columns import schema

__all__ = ["shape_table"]

_KEY = ["row", "device"]


def shape_table(
    rows: Rows,
    kinds: Kinds,
    work: KindWork,
    roofline: pl.DataFrame,
    bandwidths: Mapping[str, float | None],
) -> pl.DataFrame:
    """One row a shape on a device, longest total first (`columns.SHAPES`); `roofline` is what
    `kind_roofline` makes of the same kinds and their `work`, `bandwidths` are those of the memory
    of devices whose profile is known, in bytes/s."""
    named = kinds.table.filter(pl.col("layer") != pl.col("op_type")).select("kind", "layer")
    layers = rows.cells.join(named, on="kind")
    table = (
        rows.cells.group_by(_KEY)
        .agg(pl.col("commands", "total_ns").sum())
        .pipe(_with, layers.group_by(_KEY).agg(layers=pl.col("layer").n_unique()))
        .pipe(_with, executions(rows.cells, kinds))
        .pipe(_with, _kernels(rows.cells))
        .pipe(_with, _against(rows, roofline, bandwidths))
        .join(_named(rows.names, work), on="row")
        .join(rows.busy, on=["device", "timeline"], how="left")
        .with_columns(share=ratio(pl.col("total_ns"), pl.col("busy_ns")))
        .sort(
            ["total_ns", "submodule", "label", "device", "row"],
            descending=[True, False, False, False, False],
            nulls_last=True,
        )
    )
    return table.select(as_declared(name, dtype) for name, dtype in schema(SHAPES).items())


def _with(table: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """`table` with the columns of `other` by row and device; a device may be null."""
    return table.join(other, on=_KEY, how="left", nulls_equal=True)


def _named(names: pl.DataFrame, work: KindWork) -> pl.DataFrame:
    """Each row with its label, family and dtype."""
    shapes = [parse_shapes(text) for text in names["shapes"]]
    works = [work.works[kind] for kind in names["kind"]]
    together = list(zip(names["op_type"], shapes, works, strict=True))
    labels = pl.Series("label", [label_of(*one) for one in together], dtype=pl.String)
    marked = pl.format("collective {}", labels)
    return names.drop("kind").with_columns(
        label=pl.when("collective").then(marked).otherwise(labels),
        family=pl.Series([w.family.value if w else None for w in works], dtype=pl.String),
        dtype=pl.Series([dtype_of(*one[1:]) for one in together], dtype=pl.String),
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


def _against(
    rows: Rows, roofline: pl.DataFrame, bandwidths: Mapping[str, float | None]
) -> pl.DataFrame:
    """The rates of each row, its bound and its time above the roofline."""
    single = rows.cells.select("kind", "row").unique().filter(pl.col("kind").is_unique())
    summed = _terms(roofline.join(single, on="kind"))
    bandwidth = pl.DataFrame(
        {"device": [*bandwidths], "bandwidth": [*bandwidths.values()]},
        schema={"device": pl.String, "bandwidth": pl.Float64},
    )
    total, known = pl.col("total_ns"), pl.col("memory_ns").is_not_null()
    known &= pl.col("compute_ns").is_not_null() | (pl.col("flops").fill_null(0) == 0)
    longest = pl.max_horizontal("compute_ns", "memory_ns", "launch_ns")
    from_memory = pl.col("bytes") / pl.col("bandwidth") * 1e9
    return (
        summed.join(bandwidth, on="device", how="left")
        .with_columns(memory_ns=pl.coalesce("memory_ns", from_memory))
        .with_columns(roofline_ns=pl.when(known & (longest > 0) & (longest <= total)).then(longest))
        .select(
            *_KEY,
            "flops",
            "bytes",
            teraflops_per_s=_part("flops", pl.col("computed_ns")) / 1e3,
            flops_of_peak=_at_most_all(_part("compute_ns", total)),
            gigabytes_per_s=_part("bytes", pl.col("moved_ns")),
            bandwidth_of_peak=_at_most_all(_part("bytes", total) / pl.col("bandwidth") * 1e9),
            above_roofline_ns=(total - pl.col("roofline_ns")).round(),
            bound=_bound(),
        )
    )


def _terms(keyed: pl.DataFrame) -> pl.DataFrame:
    """FLOPs and bytes of each row, the time of commands that have them, and the terms of its
    roofline, null where they are not known of all. The commands of a row have the same work, so
    that the longest term of theirs together is that of each."""
    took = pl.col("total_ns")
    whole = ("compute_ns", "memory_ns", "launch_ns")
    return keyed.group_by(_KEY).agg(
        pl.col("total_ns", "blamed_ns").sum(),
        *(_sum_if(name, pl.col(name).is_not_null().any()) for name in ("flops", "bytes")),
        *(_sum_if(name, pl.col(name).is_not_null().all()) for name in whole),
        computed_ns=took.filter(pl.col("flops").is_not_null()).sum(),
        moved_ns=took.filter(pl.col("bytes").is_not_null()).sum(),
    )


def _sum_if(name: str, known: pl.Expr) -> pl.Expr:
    return pl.when(known).then(pl.col(name).sum()).alias(name)


def _part(name: str, whole: pl.Expr) -> pl.Expr:
    """What is there, if any, of a whole that is."""
    return pl.when((pl.col(name) > 0) & (whole > 0)).then(pl.col(name) / whole)


def _at_most_all(part: pl.Expr) -> pl.Expr:
    """Null where it is more than all: the peak was not what it ran against."""
    return pl.when(part <= 1).then(part)


def _bound() -> pl.Expr:
    """The rule of operators: the host where the device waited longer, else the longest term."""
    longest = pl.max_horizontal("compute_ns", "memory_ns", "launch_ns")
    return (
        pl.when(pl.col("blamed_ns") > pl.col("total_ns"))
        .then(pl.lit(Bound.HOST.value))
        .when(pl.col("roofline_ns").is_null())
        .then(None)
        .when(pl.col("launch_ns") == longest)
        .then(pl.lit(Bound.LAUNCH.value))
        .when(pl.col("memory_ns") == longest)
        .then(pl.lit(Bound.MEMORY.value))
        .otherwise(pl.lit(Bound.COMPUTE.value))
    )
