"""The columns of folded operators, and of the parts of those that were split."""

from __future__ import annotations

from dataclasses import replace

from profiler.analysis.command_columns import LAYER, OP_TYPES, SUBMODULE
from profiler.analysis.operators.codes import SplitPart
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    FLOAT64,
    INT64,
    STRING,
    Column,
    Distinct,
    Key,
    Names,
    Ratio,
    Scaled,
    Share,
    Sum,
)

__all__ = ["OPERATORS", "PARTITIONING"]

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
        STRING,
        "",
        "submodule of its calls; null for host work in no call",
        True,
        combine=Key(),
    ),
    LAYER,
    Column(
        "host",
        BOOL,
        "",
        "true for commands of the host: work, runtime calls, waits for accelerators",
        importance=DATA_ONLY,
        combine=Key(),
    ),
    replace(OP_TYPES, importance=5),
    Column(
        "devices",
        STRING,
        "",
        "devices it ran on, joined with commas",
        kind="list",
        importance=8,
        combine=Names("device"),
    ),
    Column("tracks", INT64, "", "different tracks it ran on", importance=17),
    Column(
        "track_names", STRING, "", "names of these tracks, joined with commas", importance=DATA_ONLY
    ),
    Column(
        "calls",
        INT64,
        "",
        "calls it ran in; for host work in no call, steps of pipeline calls",
        importance=6,
        combine=Distinct(("group",)),
    ),
    Column("commands", INT64, "", "its commands over all calls", combine=Sum(("commands",))),
    Column("commands_per_call", FLOAT64, "", "commands / calls", importance=DATA_ONLY),
    Column(
        "wall_ns",
        INT64,
        "ns",
        "time in which any of its commands ran, over calls",
        combine=_WALL,
    ),
    Column("total_ns", INT64, "ns", "sum of its commands' durations", combine=_TOTAL),
    Column(
        "self_ns",
        INT64,
        "ns",
        "total_ns; for host commands, without other host commands that ran within them",
        label="self",
        importance=DATA_ONLY,
        combine=Sum(("total_ns", "within_offset_ns")),
    ),
    Column(
        "waited_ns",
        INT64,
        "ns",
        "part of self_ns in which the host waited for a device, in synchronizations and copies",
        label="waited",
        importance=DATA_ONLY,
        combine=Sum(("waited_ns",)),
    ),
    Column(
        "gap_ns",
        INT64,
        "ns",
        "time between its commands of a call in which none of them ran",
        importance=DATA_ONLY,
    ),
    Column(
        "parallelism",
        FLOAT64,
        "ratio",
        _PARALLELISM,
        True,
        kind="factor",
        importance=DATA_ONLY,
        combine=Ratio(_TOTAL, _WALL),
    ),
    Column(
        "parallel_utilization",
        FLOAT64,
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
        FLOAT64,
        "ratio",
        _IMBALANCE,
        True,
        kind="factor",
        importance=13,
        combine=Ratio(Sum(("total_ns", "busiest_offset_ns")), Sum(("total_ns", "even_offset_ns"))),
    ),
    Column(
        "share",
        FLOAT64,
        "ratio",
        "self_ns / self_ns of all rows with the same `host`; where parts were recorded one by "
        "one, of its own part",
        True,
        kind="share",
        combine=Share("self_ns", within=("host",)),
    ),
    Column(
        "first_ns",
        INT64,
        "ns",
        "wall time of the first call in which it ran",
        importance=DATA_ONLY,
    ),
    Column(
        "median_ns",
        INT64,
        "ns",
        "median wall time of later calls; first_ns where there are none",
        label="median a call",
        importance=18,
    ),
    Column(
        "corrected_ns",
        INT64,
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
        STRING,
        "",
        "whole, compute, movement (dma and copy), or device: on one device",
        codes=SplitPart,
    ),
    Column("device", STRING, "", "the device, for a part on one device", True),
    Column("calls", INT64, "", "calls it ran in", importance=15),
    Column("commands", INT64, "", "its commands over all calls", importance=4),
    Column("tracks", INT64, "", "most tracks it ran on in a call"),
    Column("wall_ns", INT64, "ns", "time in which any of its commands ran, over calls"),
    Column("total_ns", INT64, "ns", "sum of its commands' durations"),
    Column(
        "gap_ns",
        INT64,
        "ns",
        "time between its commands of a call in which none ran",
        label="gaps",
        importance=1,
    ),
    Column("parallelism", FLOAT64, "ratio", _PARALLELISM, True, kind="factor", importance=5),
    Column("parallel_utilization", FLOAT64, "ratio", _UTILIZATION, True, label="par. util."),
    Column("imbalance", FLOAT64, "ratio", _IMBALANCE, True, kind="factor"),
    Column(
        "device_imbalance",
        FLOAT64,
        "ratio",
        "for the whole: busiest device / mean of the devices",
        True,
        label="of devices",
        kind="factor",
        importance=2,
    ),
)
