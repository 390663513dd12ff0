"""The columns of folded operators, and of the parts of those that were split."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from profiler.analysis.command_columns import LAYER, OP_TYPES, SUBMODULE
from profiler.analysis.operators.codes import SplitPart
from profiler.table.columns import DATA_ONLY, Column
from profiler.table.combining import Distinct, Key, Names, Ratio, Scaled, Share, Sum

__all__ = ["OPERATORS", "PARTITIONING"]

_TEXT, _FLAG = pl.String(), pl.Boolean()
_INT64, _REAL = pl.Int64(), pl.Float64()
_TOTAL = Sum(("total_ns",))
_WALL = Sum(("total_ns", "wall_offset_ns"))
_PARALLELISM = "how many of its commands ran at a time on average: total_ns / wall_ns"
_UTILIZATION = (
    "working time / (wall time * tracks), over the tracks that compute, else over all tracks"
)
_IMBALANCE = (
    "busiest track / mean of the tracks, over the tracks that compute, else over all tracks"
)

OPERATORS: tuple[Column, ...] = (
    Column(
        "submodule",
        _TEXT,
        "",
        "submodule of its calls; null for host work in no call",
        True,
        combine=Key(),
    ),
    LAYER,
    Column(
        "host",
        _FLAG,
        "",
        "true for commands of the host: work, runtime calls, waits for accelerators",
        importance=DATA_ONLY,
        combine=Key(),
    ),
    replace(OP_TYPES, importance=5),
    Column(
        "devices",
        _TEXT,
        "",
        "devices it ran on, joined with commas",
        kind="list",
        importance=8,
        combine=Names("device"),
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
        combine=Distinct(("group",)),
    ),
    Column("commands", _INT64, "", "its commands over all calls", combine=Sum(("commands",))),
    Column("commands_per_call", _REAL, "", "commands / calls", importance=DATA_ONLY),
    Column(
        "wall_ns",
        _INT64,
        "ns",
        "time in which any of its commands ran, over calls",
        combine=_WALL,
    ),
    Column("total_ns", _INT64, "ns", "sum of its commands' durations", combine=_TOTAL),
    Column(
        "self_ns",
        _INT64,
        "ns",
        "total_ns; for host commands, without other host commands that ran within them",
        label="self",
        importance=DATA_ONLY,
        combine=Sum(("total_ns", "within_offset_ns")),
    ),
    Column(
        "waited_ns",
        _INT64,
        "ns",
        "part of self_ns in which the host waited for a device, in synchronizations and copies",
        label="waited",
        importance=DATA_ONLY,
        combine=Sum(("waited_ns",)),
    ),
    Column(
        "gap_ns",
        _INT64,
        "ns",
        "time between its commands of a call in which none of them ran",
        importance=DATA_ONLY,
    ),
    Column(
        "parallelism",
        _REAL,
        "ratio",
        _PARALLELISM,
        True,
        kind="factor",
        importance=DATA_ONLY,
        combine=Ratio(_TOTAL, _WALL),
    ),
    Column(
        "parallel_utilization",
        _REAL,
        "ratio",
        _UTILIZATION,
        True,
        label="par. util.",
        combine=Ratio(
            Sum(("total_ns", "working_offset_ns")), Sum(("total_ns", "possible_offset_ns"))
        ),
    ),
    Column(
        "imbalance",
        _REAL,
        "ratio",
        _IMBALANCE,
        True,
        kind="factor",
        importance=13,
        combine=Ratio(Sum(("total_ns", "busiest_offset_ns")), Sum(("total_ns", "even_offset_ns"))),
    ),
    Column(
        "share",
        _REAL,
        "ratio",
        "self_ns / self_ns of all rows with the same `host`; where parts were recorded one by "
        "one, of its own part",
        True,
        kind="share",
        combine=Share("self_ns", within=("host",)),
    ),
    Column(
        "first_ns",
        _INT64,
        "ns",
        "wall time of the first call in which it ran",
        importance=DATA_ONLY,
    ),
    Column(
        "median_ns",
        _INT64,
        "ns",
        "median wall time of later calls; first_ns where there are none",
        label="median a call",
        importance=18,
    ),
    Column(
        "corrected_ns",
        _INT64,
        "ns",
        "total_ns * overhead_ratio of its submodule",
        True,
        importance=2,
        combine=Scaled("total_ns", by="overhead_ratio"),
    ),
)

PARTITIONING: tuple[Column, ...] = (
    replace(SUBMODULE, importance=3, combine=None),
    replace(LAYER, label="operator", combine=None),
    Column(
        "part",
        _TEXT,
        "",
        "whole, compute, movement (dma and copy), or device: on one device",
        codes=SplitPart,
    ),
    Column("device", _TEXT, "", "the device, for a part on one device", True),
    Column("calls", _INT64, "", "calls it ran in", importance=15),
    Column("commands", _INT64, "", "its commands over all calls", importance=4),
    Column("tracks", _INT64, "", "most tracks it ran on in a call"),
    Column("wall_ns", _INT64, "ns", "time in which any of its commands ran, over calls"),
    Column("total_ns", _INT64, "ns", "sum of its commands' durations"),
    Column(
        "gap_ns",
        _INT64,
        "ns",
        "time between its commands of a call in which none ran",
        label="gaps",
        importance=1,
    ),
    Column("parallelism", _REAL, "ratio", _PARALLELISM, True, kind="factor", importance=5),
    Column("parallel_utilization", _REAL, "ratio", _UTILIZATION, True, label="par. util."),
    Column("imbalance", _REAL, "ratio", _IMBALANCE, True, kind="factor"),
    Column(
        "device_imbalance",
        _REAL,
        "ratio",
        "for the whole: busiest device / mean of the devices",
        True,
        label="of devices",
        kind="factor",
        importance=2,
    ),
)
