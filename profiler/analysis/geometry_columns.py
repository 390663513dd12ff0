"""The columns of operators that were split."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["GEOMETRY"]

_TEXT, _INT64, _REAL = pl.String(), pl.Int64(), pl.Float64()

GEOMETRY: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of its calls; null for work in no call", True),
    Column("layer", _TEXT, "", "tensor-level operation: module path or node name"),
    Column("part", _TEXT, "", "whole, compute, movement (dma and copy), or device: on one device"),
    Column("device", _TEXT, "", "the device, where the part is that on one", True),
    Column("calls", _INT64, "", "calls it ran in"),
    Column("commands", _INT64, "", "its commands over all calls"),
    Column("tracks", _INT64, "", "most tracks it ran on in a call"),
    Column("wall_union_ns", _INT64, "ns", "time in which any of its commands ran, over calls"),
    Column("busy_sum_ns", _INT64, "ns", "sum of its commands' durations"),
    Column("gap_ns", _INT64, "ns", "time between its commands of a call, where none ran"),
    Column("parallel_efficiency", _REAL, "ratio", "busy sum / (wall union * tracks)", True),
    Column("imbalance", _REAL, "ratio", "busiest track / mean of the tracks", True),
    Column("device_imbalance", _REAL, "ratio", "of the whole: busiest device / mean of them", True),
)
