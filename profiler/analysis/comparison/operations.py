"""What two sides did, by shape, by kernel, by node of a graph: times, rates and kernels of each.

    matmul 8944×1024×2816 bf16   4.02 → 5.61 ms   617 → 441 TFLOP/s   sm90_xmma… → Cijk_Alik…

Times are means: sums over the steady calls of all runs of a side, divided by how many steps,
pipeline calls or single calls these were (`details.samples`).
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.analysis.comparison.codes import Side
from profiler.analysis.comparison.columns import KERNELS, NODES, SHAPES
from profiler.analysis.comparison.measure import Measurement
from profiler.analysis.comparison.nodes import TimedLayer, node_groups
from profiler.analysis.shapes.labels import short_type
from profiler.run.columns import Column, schema

__all__ = ["by_kernel", "by_node", "by_shape", "sums_of"]

_SIDES = tuple(Side)
_KEY = ("submodule", "what")
_SUMS = ("executions", "total_ns", "flops", "rated_ns")


def sums_of(side: Sequence[Measurement]) -> pl.DataFrame:
    """The operations of a side's runs (`details.OPERATIONS`), of a sample each."""
    parts = []
    for run in side:
        samples = run.details.samples
        counts = {
            name: sum(other.details.samples.get(name, 0) for other in side) for name in samples
        }
        share = pl.col("submodule").replace_strict(counts, default=0, return_dtype=pl.Float64)
        parts.append(
            run.details.operations.filter(share > 0).with_columns(
                pl.col(name).cast(pl.Float64) / share for name in _SUMS
            )
        )
    return pl.concat(parts)


def by_shape(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Operations whose shapes are known (`columns.SHAPES`), those that differ most first. Types
    are told apart where both sides have the same ones of a shape."""
    sides = [side.filter(pl.col("label") != "") for side in (base, new)]
    types = [
        side.group_by("submodule", "label").agg(pl.col("dtype").unique().sort()) for side in sides
    ]
    alike = (
        types[0]
        .join(types[1], on=["submodule", "label"], how="full", coalesce=True)
        .select(
            "submodule",
            "label",
            apart=pl.col("dtype").eq(pl.col("dtype_right")).fill_null(value=True),
        )
    )
    named = [
        side.join(alike, on=["submodule", "label"], how="left").with_columns(
            what=pl.when("apart").then(_typed()).otherwise("label")
        )
        for side in sides
    ]
    return _compared(named, SHAPES)


def by_kernel(base: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """The same by the kernels' names (`columns.KERNELS`)."""
    named = [
        side.filter(pl.col("kernel") != "").with_columns(what="kernel") for side in (base, new)
    ]
    return _compared(named, KERNELS)


def by_node(base: Sequence[Measurement], new: Sequence[Measurement]) -> pl.DataFrame:
    """Groups of layers by the nodes that they have in common (`columns.NODES`), those that differ
    most first, then what one side has alone."""
    sides = (base, new)
    producers = (base[0].info.producer, new[0].info.producer)
    names = dict.fromkeys(name for side in sides for run in side for name in run.details.samples)
    rows = []
    for submodule in names:
        layers = [_layers(side, submodule) for side in sides]
        for group in node_groups(layers[0], layers[1], producers):
            both = (group.base, group.new)
            times = [sum(one.ns for one in found) if found else None for found in both]
            known = [", ".join(dict.fromkeys(one.name for one in found)) or None for found in both]
            rows.append((submodule, _name(*both), *known, *map(len, both), *times))
    columns = ("submodule", "what", "base_layers", "new_layers", "base_count", "new_count")
    dtypes: dict[str, pl.DataType] = {name: schema(NODES)[name] for name in columns}
    dtypes |= {"base_ns": pl.Float64(), "new_ns": pl.Float64()}
    return _ranked(pl.DataFrame(rows, schema=dtypes, orient="row"), NODES)


def _name(base: Sequence[TimedLayer], new: Sequence[TimedLayer]) -> str:
    """The layer with most of the time, as the side calls it that has the longer name for it: it
    names more nodes."""
    longest = [max(side, key=lambda layer: layer.ns).name for side in (base, new) if side]
    return max(longest, key=len)


def _layers(side: Sequence[Measurement], submodule: str) -> list[TimedLayer]:
    """The layers of a submodule in the order of the run that has most of them, of a sample each."""
    samples = sum(run.details.samples.get(submodule, 0) for run in side)
    if not samples:
        return []
    frames = [run.details.layers.filter(pl.col("submodule") == submodule) for run in side]
    frames.sort(key=len, reverse=True)
    summed = pl.concat(frames).group_by("layer", maintain_order=True).agg(pl.col("total_ns").sum())
    return [TimedLayer(name, total / samples) for name, total in summed.iter_rows()]


def _typed() -> pl.Expr:
    """The label with the type of the arithmetic."""
    short = pl.col("dtype").map_elements(short_type, return_dtype=pl.String)
    return pl.concat_str("label", short, separator=" ").str.strip_chars_end()


def _compared(named: Sequence[pl.DataFrame], columns: tuple[Column, ...]) -> pl.DataFrame:
    sides = [_side(frame, side) for frame, side in zip(named, _SIDES, strict=True)]
    return _ranked(sides[0].join(sides[1], on=_KEY, how="full", coalesce=True), columns)


def _side(named: pl.DataFrame, side: Side) -> pl.DataFrame:
    """Sums of a side by submodule and `what`, with the kernel that took most of it."""
    longest = pl.col("kernel").sort_by("total_ns", descending=True).first()
    rate = pl.when(pl.col("rated_ns") > 0).then(pl.col("flops") / pl.col("rated_ns") / 1e3)
    return (
        named.group_by(*_KEY, "kernel", maintain_order=True)
        .agg(pl.col(*_SUMS).sum(), pl.col("dtype").first())
        .group_by(*_KEY, maintain_order=True)
        .agg(
            pl.col(*_SUMS).sum(),
            pl.when(longest != "").then(longest).alias("kernel"),
            kernels=(pl.col("kernel") != "").sum().cast(pl.Int64),
        )
        .with_columns(rate=pl.when(rate > 0).then(rate))
        .select(
            *_KEY,
            pl.col("total_ns").alias(f"{side}_ns"),
            pl.col("executions").alias(f"{side}_executions"),
            pl.col("rate").alias(f"{side}_teraflops_per_s"),
            pl.col("kernel").alias(f"{side}_kernel"),
            pl.col("kernels").alias(f"{side}_kernels"),
        )
    )


def _ranked(found: pl.DataFrame, columns: tuple[Column, ...]) -> pl.DataFrame:
    """The rows with their difference, of both sides first, in the order of its size."""
    difference = pl.col("new_ns") - pl.col("base_ns")
    change = pl.when(pl.col("base_ns") > 0).then(difference / pl.col("base_ns"))
    longest = pl.max_horizontal("base_ns", "new_ns")
    return (
        found.with_columns(difference_ns=difference, change=change)
        .sort(
            difference.is_null(),
            difference.abs().fill_null(0),
            longest,
            descending=[False, True, True],
            maintain_order=True,
        )
        .select(
            pl.col(name).round().cast(dtype) if name.endswith("_ns") else pl.col(name).cast(dtype)
            for name, dtype in schema(columns).items()
        )
    )
