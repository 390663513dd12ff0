"""The columns of tiles and of devices' axes."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import DATA_ONLY, INT32, INT64, Column

__all__ = ["DEVICE_AXES", "TILES"]


TILES: tuple[Column, ...] = (
    Column("call", INT32, "", "number of the call in its run"),
    Column("tile_device", pl.String(), "", "the device that its tile is of: most of its work ran"),
    Column("begin_ns", INT64, "ns", "begin of its tile, on the run's clock", importance=DATA_ONLY),
    Column("end_ns", INT64, "ns", "end of its tile", importance=DATA_ONLY),
    Column(
        "elapsed_ns",
        INT64,
        "ns",
        "what it adds to the end-to-end time: length of its tile minus unrecorded_ns",
    ),
    Column(
        "busy_ns",
        INT64,
        "ns",
        "union of its kernels and copies on all devices: commands of every category except host "
        "and sync",
        label="device time",
        importance=1,
    ),
    Column(
        "idle_inside_ns",
        INT64,
        "ns",
        "time in its tile in which nothing ran on the device",
        label="idle inside",
        importance=13,
    ),
    Column(
        "launch_bound_ns",
        INT64,
        "ns",
        "part of idle_inside_ns in which the host launched too late, or had nothing more to launch",
        label="launch-bound",
        importance=2,
    ),
    Column(
        "lead_ns",
        INT64,
        "ns",
        "from the launch of its first kernel to its begin; null where no launch is known",
        True,
        label="lead",
        importance=17,
    ),
    Column(
        "hidden_ns",
        INT64,
        "ns",
        "part of busy_ns outside of its tile, hidden beneath other calls",
        label="hidden",
        importance=16,
    ),
    Column(
        "unrecorded_ns",
        INT64,
        "ns",
        "time in its tile in which work waited but nothing was recorded; in no other column",
        label="not recorded",
        importance=11,
    ),
)

DEVICE_AXES: tuple[Column, ...] = (
    Column("device", pl.String(), "", "a device that worked"),
    Column("first_ns", INT64, "ns", "begin of its first work, on the run's clock"),
    Column("last_ns", INT64, "ns", "end of its last work"),
    Column("idle_ns", INT64, "ns", "nothing ran between these, less unrecorded_ns"),
    Column("unrecorded_ns", INT64, "ns", "nothing was recorded though work waited, between these"),
    Column("carried_over_ns", INT64, "ns", "union of work launched before the recording began"),
    Column("carried_over", INT64, "", "how many commands that were"),
    Column("latency_ns", INT64, "ns", "from a launch to its work, the median on the dry device"),
)
