"""The columns of folded operators, and of the parts of those that were split."""

from __future__ import annotations

import polars as pl

from profiler.analysis.operators.codes import SplitPart
from profiler.table.columns import Column

__all__ = ["GEOMETRY", "OPERATORS"]

_TEXT, _FLAG = pl.String(), pl.Boolean()
_INT64, _REAL = pl.Int64(), pl.Float64()
_EFFICIENCY = "of the tracks that compute, else of all: busy sum / (wall union * tracks)"
_IMBALANCE = "of the tracks that compute, else of all: busiest track / mean of the tracks"

OPERATORS: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of its calls; null for host work in no call", True),
    Column("layer", _TEXT, "", "tensor-level operation: module path or node name"),
    Column("host", _FLAG, "", "whether these are the layer's commands of category host"),
    Column("op_types", _TEXT, "", "op types, most time first, joined with commas"),
    Column("devices", _TEXT, "", "devices it ran on, joined with commas"),
    Column("tracks", _INT64, "", "different tracks it ran on"),
    Column("track_names", _TEXT, "", "names of these tracks, joined with commas"),
    Column(
        "calls", _INT64, "", "calls it ran in; for host work in no call, steps of pipeline calls"
    ),
    Column("commands", _INT64, "", "its commands over all calls"),
    Column("commands_per_call", _REAL, "", "commands / calls"),
    Column("wall_union_ns", _INT64, "ns", "time in which any of its commands ran, over calls"),
    Column("busy_sum_ns", _INT64, "ns", "sum of its commands' durations"),
    Column("gap_ns", _INT64, "ns", "time between its commands of a call, where none of them ran"),
    Column("parallel_efficiency", _REAL, "ratio", _EFFICIENCY, True),
    Column("imbalance", _REAL, "ratio", _IMBALANCE, True),
    Column("share", _REAL, "ratio", "busy_sum_ns / that of all with the same `host`", True),
    Column("first_ns", _INT64, "ns", "wall union in the first call it ran in"),
    Column("median_ns", _INT64, "ns", "median wall union of the later calls, else first_ns"),
    Column("calibrated_ns", _INT64, "ns", "busy_sum_ns * calibration of its submodule", True),
)

GEOMETRY: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of its calls; null for work in no call", True),
    Column("layer", _TEXT, "", "tensor-level operation: module path or node name"),
    Column(
        "part",
        _TEXT,
        "",
        "whole, compute, movement (dma and copy), or device: on one device",
        codes=SplitPart,
    ),
    Column("device", _TEXT, "", "the device, where the part is that on one", True),
    Column("calls", _INT64, "", "calls it ran in"),
    Column("commands", _INT64, "", "its commands over all calls"),
    Column("tracks", _INT64, "", "most tracks it ran on in a call"),
    Column("wall_union_ns", _INT64, "ns", "time in which any of its commands ran, over calls"),
    Column("busy_sum_ns", _INT64, "ns", "sum of its commands' durations"),
    Column("gap_ns", _INT64, "ns", "time between its commands of a call, where none ran"),
    Column("parallel_efficiency", _REAL, "ratio", _EFFICIENCY, True),
    Column("imbalance", _REAL, "ratio", _IMBALANCE, True),
    Column("device_imbalance", _REAL, "ratio", "of the whole: busiest device / mean of them", True),
)
