"""The columns of kernels."""

from __future__ import annotations

from profiler.run.columns import FLOAT64, INT64, STRING, Column

__all__ = ["KERNELS"]


KERNELS: tuple[Column, ...] = (
    Column("kernel", STRING, "", "name of the kernel in full", kind="layer"),
    Column("device", STRING, "", "device that ran it", True, importance=5),
    Column("executions", INT64, "", "how often it ran", label="executed"),
    Column("total_ns", INT64, "ns", "sum of its executions"),
    Column(
        "share",
        FLOAT64,
        "ratio",
        "total_ns / total_ns of all work of the device except waits; where parts were recorded "
        "one by one, only of the parts in which it ran",
        True,
        kind="share",
    ),
    Column("mean_ns", INT64, "ns", "mean of its executions", label="mean", importance=2),
    Column("p50_ns", INT64, "ns", "half of them took no longer", label="p50"),
    Column("p99_ns", INT64, "ns", "99 of 100 took no longer", label="p99"),
    Column("min_ns", INT64, "ns", "shortest execution", label="shortest", importance=3),
    Column("max_ns", INT64, "ns", "longest execution", label="longest", importance=1),
    Column("layers", INT64, "", "layers that ran it", importance=4),
)
