"""The columns of kernels."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["KERNELS"]

_TEXT, _INT64, _REAL = pl.String(), pl.Int64(), pl.Float64()

KERNELS: tuple[Column, ...] = (
    Column("kernel", _TEXT, "", "name of the kernel in full", kind="layer"),
    Column("device", _TEXT, "", "device that ran it", True, importance=5),
    Column("executions", _INT64, "", "how often it ran", label="executed"),
    Column("total_ns", _INT64, "ns", "sum of its executions"),
    Column(
        "share",
        _REAL,
        "ratio",
        "total_ns / total_ns of all work of the device except waits; where parts were recorded "
        "one by one, only of the parts in which it ran",
        True,
        kind="share",
    ),
    Column("mean_ns", _INT64, "ns", "mean of its executions", label="mean", importance=2),
    Column("p50_ns", _INT64, "ns", "half of them took no longer", label="p50"),
    Column("p99_ns", _INT64, "ns", "99 of 100 took no longer", label="p99"),
    Column("min_ns", _INT64, "ns", "shortest execution", label="shortest", importance=3),
    Column("max_ns", _INT64, "ns", "longest execution", label="longest", importance=1),
    Column("layers", _INT64, "", "layers that ran it", importance=4),
)
