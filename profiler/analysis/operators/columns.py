"""The columns of folded operators, and of the parts of those that were split."""

from __future__ import annotations

import polars as pl

from profiler.analysis.operators.codes import SplitPart
from profiler.table.columns import DATA_ONLY, Column

__all__ = ["GEOMETRY", "OPERATORS"]

_TEXT, _FLAG = pl.String(), pl.Boolean()
_INT64, _REAL = pl.Int64(), pl.Float64()
_EFFICIENCY = "of the tracks that compute, else of all: busy sum / (wall union * tracks)"
_IMBALANCE = "of the tracks that compute, else of all: busiest track / mean of the tracks"

OPERATORS: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of its calls; null for host work in no call", True),
    Column("layer", _TEXT, "", "tensor-level operation: module path or node name", kind="layer"),
    Column(
        "host",
        _FLAG,
        "",
        "whether these are the layer's commands of category host",
        importance=DATA_ONLY,
    ),
    Column(
        "op_types",
        _TEXT,
        "",
        "op types, most time first, joined with commas",
        kind="list",
        importance=5,
    ),
    Column(
        "devices", _TEXT, "", "devices it ran on, joined with commas", kind="list", importance=8
    ),
    Column("tracks", _INT64, "", "different tracks it ran on", importance=17),
    Column(
        "track_names", _TEXT, "", "names of these tracks, joined with commas", importance=DATA_ONLY
    ),
    Column(
        "calls",
        _INT64,
        "",
        "calls it ran in; for host work in no call, steps of pipeline calls",
        importance=6,
    ),
    Column("commands", _INT64, "", "its commands over all calls"),
    Column("commands_per_call", _REAL, "", "commands / calls", importance=DATA_ONLY),
    Column("wall_union_ns", _INT64, "ns", "time in which any of its commands ran, over calls"),
    Column("busy_sum_ns", _INT64, "ns", "sum of its commands' durations"),
    Column(
        "gap_ns",
        _INT64,
        "ns",
        "time between its commands of a call, where none of them ran",
        importance=DATA_ONLY,
    ),
    Column("parallel_efficiency", _REAL, "ratio", _EFFICIENCY, True, label="par. eff."),
    Column("imbalance", _REAL, "ratio", _IMBALANCE, True, kind="factor", importance=13),
    Column(
        "share",
        _REAL,
        "ratio",
        "busy_sum_ns / that of all with the same `host`",
        True,
        kind="share",
    ),
    Column(
        "first_ns", _INT64, "ns", "wall union in the first call it ran in", importance=DATA_ONLY
    ),
    Column(
        "median_ns",
        _INT64,
        "ns",
        "median wall union of the later calls, else first_ns",
        label="median a call",
        importance=18,
    ),
    Column(
        "calibrated_ns",
        _INT64,
        "ns",
        "busy_sum_ns * calibration of its submodule",
        True,
        importance=2,
    ),
)

GEOMETRY: tuple[Column, ...] = (
    Column(
        "submodule",
        _TEXT,
        "",
        "submodule of its calls; null for work in no call",
        True,
        importance=3,
    ),
    Column(
        "layer",
        _TEXT,
        "",
        "tensor-level operation: module path or node name",
        label="operator",
        kind="layer",
    ),
    Column(
        "part",
        _TEXT,
        "",
        "whole, compute, movement (dma and copy), or device: on one device",
        codes=SplitPart,
    ),
    Column("device", _TEXT, "", "the device, where the part is that on one", True),
    Column("calls", _INT64, "", "calls it ran in", importance=15),
    Column("commands", _INT64, "", "its commands over all calls", importance=4),
    Column("tracks", _INT64, "", "most tracks it ran on in a call"),
    Column("wall_union_ns", _INT64, "ns", "time in which any of its commands ran, over calls"),
    Column("busy_sum_ns", _INT64, "ns", "sum of its commands' durations"),
    Column(
        "gap_ns",
        _INT64,
        "ns",
        "time between its commands of a call, where none ran",
        label="gaps",
        importance=1,
    ),
    Column("parallel_efficiency", _REAL, "ratio", _EFFICIENCY, True, label="par. eff."),
    Column("imbalance", _REAL, "ratio", _IMBALANCE, True, kind="factor"),
    Column(
        "device_imbalance",
        _REAL,
        "ratio",
        "of the whole: busiest device / mean of them",
        True,
        label="of devices",
        kind="factor",
        importance=2,
    ),
)
