"""The columns of devices."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["DEVICES"]

_TEXT = pl.String()
_INT64 = pl.Int64()
_REAL = pl.Float64()

DEVICES: tuple[Column, ...] = (
    Column("device", _TEXT, "", "a place that executes commands"),
    Column("hardware", _TEXT, "", "name of the hardware, where the run knows it", True),
    Column("calls", _INT64, "", "calls placed there"),
    Column("commands", _INT64, "", "commands executed there"),
    Column("calls_ns", _INT64, "ns", "wall union of the calls placed there"),
    Column("busy_ns", _INT64, "ns", "wall union of its commands of every category but host"),
    Column("compute_ns", _INT64, "ns", "wall union of its compute commands"),
    Column("dma_ns", _INT64, "ns", "wall union of its dma commands"),
    Column("copy_ns", _INT64, "ns", "wall union of its copy commands"),
    Column("sync_ns", _INT64, "ns", "wall union of its sync commands"),
    Column("other_ns", _INT64, "ns", "wall union of its commands of category other"),
    Column("host_ns", _INT64, "ns", "wall union of its host commands"),
    Column("span_ns", _INT64, "ns", "from its first command or call to the end of its last"),
    Column(
        "idle_ns",
        _INT64,
        "ns",
        "span_ns - busy_ns; null where calls were not traced, or nothing but host work ran",
        True,
    ),
    Column(
        "utilization",
        _REAL,
        "ratio",
        "busy_ns / span_ns, of the device's own span, not of the run; null as idle_ns",
        True,
    ),
    Column(
        "weight_bytes",
        _INT64,
        "bytes",
        "weights of the submodules placed there, the most at once; null where one does not tell",
        True,
    ),
)
