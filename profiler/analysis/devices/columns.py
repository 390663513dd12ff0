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
    Column(
        "hardware", _TEXT, "", "name of the hardware, where the run knows it", True, importance=8
    ),
    Column("calls", _INT64, "", "calls placed there", importance=9),
    Column("commands", _INT64, "", "commands executed there"),
    Column("calls_ns", _INT64, "ns", "wall union of the calls placed there", importance=8),
    Column("busy_ns", _INT64, "ns", "wall union of its commands of every category but host"),
    Column("compute_ns", _INT64, "ns", "wall union of its compute commands", importance=1),
    Column("dma_ns", _INT64, "ns", "wall union of its dma commands", importance=2),
    Column("copy_ns", _INT64, "ns", "wall union of its copy commands", importance=5),
    Column("sync_ns", _INT64, "ns", "wall union of its sync commands", importance=6),
    Column("other_ns", _INT64, "ns", "wall union of its commands of category other", importance=17),
    Column("host_ns", _INT64, "ns", "wall union of its host commands", importance=3),
    Column(
        "span_ns",
        _INT64,
        "ns",
        "from its first command or call to the end of its last",
        importance=9,
    ),
    Column(
        "idle_ns",
        _INT64,
        "ns",
        "span_ns - busy_ns; null where calls were not traced, or nothing but host work ran",
        True,
        importance=4,
    ),
    Column(
        "utilization",
        _REAL,
        "ratio",
        "busy_ns / span_ns, of the device's own span, not of the run; null as idle_ns",
        True,
        label="busy of its span",
        kind="share",
    ),
    Column(
        "weight_bytes",
        _INT64,
        "bytes",
        "weights of the submodules placed there, the most at once; null where one does not tell",
        True,
        importance=5,
    ),
)
