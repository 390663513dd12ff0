"""The table of kernels."""

from __future__ import annotations

import polars as pl

from profiler.analysis.kernels.columns import KERNELS
from profiler.analysis.table import Table
from profiler.analysis.timelines import are_apart
from profiler.run.columns import schema

__all__ = ["TABLES", "kernel_table"]

_NO_WORK = ("host", "sync")
_NO_KERNELS = ("dma", "copy")  # what copies and fills is no function that ran


def kernel_table(commands: pl.DataFrame, *, apart: bool = False) -> pl.DataFrame:
    """One row a kernel and device (`KERNELS`), of commands whose producer tells their kernel. A
    quantile is the time of an execution; a command that never closed took none. `apart`: pipeline
    calls are parts that were recorded one by one (`analysis.timelines`)."""
    took = pl.col("duration_ns").clip(0)
    work = commands.lazy().filter(~pl.col("category").is_in(_NO_WORK))
    ran = work.filter(pl.col("kernel").is_not_null(), ~pl.col("category").is_in(_NO_KERNELS))
    keys = ["device", "kernel"] if apart else ["device"]
    if apart:
        parts = work.group_by("device", "pipeline").agg(whole_ns=took.sum())
        places = ran.select("device", "kernel", "pipeline").unique()
        ran_in = places.join(parts, on=["device", "pipeline"], nulls_equal=True)
        whole = ran_in.group_by(keys).agg(pl.col("whole_ns").sum())
    else:
        whole = work.group_by(keys).agg(whole_ns=took.sum())
    rows = (
        ran.group_by("device", "kernel")
        .agg(
            executions=pl.len(),
            total_ns=took.sum(),
            mean_ns=took.mean().round(),
            p50_ns=took.quantile(0.5, "higher"),
            p99_ns=took.quantile(0.99, "higher"),
            min_ns=took.min(),
            max_ns=took.max(),
            layers=pl.col("layer").n_unique(),
        )
        .join(whole, on=keys, how="left", nulls_equal=True)
        .with_columns(
            pl.col("device", "kernel").cast(pl.String),
            share=pl.when(pl.col("whole_ns") > 0).then(pl.col("total_ns") / pl.col("whole_ns")),
        )
        .sort(["total_ns", "kernel", "device"], descending=[True, False, False], nulls_last=True)
    )
    declared = schema(KERNELS)
    return rows.select(pl.col(name).cast(dtype) for name, dtype in declared.items()).collect()


TABLES = (
    Table(
        name="kernels",
        row="one kernel on a device",
        section="kernels",
        columns=KERNELS,
        make=lambda of: kernel_table(of.frame, apart=are_apart(of.run.drops)),
        title="Kernels",
        about="Kernels of all operators and submodules are listed by their full names, longest "
        "`total_ns` first. Only some producers record kernels: those of GPUs do, but nodes of "
        "ONNX Runtime are not kernels. [shapes](#shapes) and [operators](#operators) show what "
        "the kernels belong to.",
        rank=("-total_ns",),
        shown=15,
    ),
)
