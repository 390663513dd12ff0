"""The columns of devices."""

from __future__ import annotations

import polars as pl

from profiler.run.columns import DATA_ONLY, FLOAT64, INT64, STRING, Column, Kept, Key, Sum

__all__ = ["DEVICES"]


DEVICES: tuple[Column, ...] = (
    Column("device", STRING, "", "a place that executes commands", combine=Key()),
    Column(
        "rank",
        pl.Int32(),
        "",
        "process of the job to which it belongs, from 0; -1 in a run of a single process",
        kind="step",
        importance=DATA_ONLY,
        combine=Kept(),
    ),
    Column(
        "hardware",
        STRING,
        "",
        "name of the hardware, where the run knows it",
        True,
        importance=8,
        combine=Kept(),
    ),
    Column("calls", INT64, "", "calls placed there", importance=9, combine=Sum(("calls",))),
    Column("commands", INT64, "", "commands executed there", combine=Sum(("commands",))),
    Column("calls_ns", INT64, "ns", "union of the tiles of calls on it", importance=8),
    Column("busy_ns", INT64, "ns", "union of its commands of every category except host and sync"),
    Column("compute_ns", INT64, "ns", "union of its compute commands", importance=1),
    Column("dma_ns", INT64, "ns", "union of its dma commands", importance=2),
    Column("copy_ns", INT64, "ns", "union of its copy commands", importance=5),
    Column("collective_ns", INT64, "ns", "union of its collectives between ranks", importance=5),
    Column("sync_ns", INT64, "ns", "union of its sync commands", importance=6),
    Column("other_ns", INT64, "ns", "union of its commands of category other", importance=17),
    Column("host_ns", INT64, "ns", "union of its host commands", importance=3),
    Column(
        "span_ns",
        INT64,
        "ns",
        "from its first command or tile to the end of the last one, minus the profiler's own work",
        importance=9,
    ),
    Column(
        "idle_ns",
        INT64,
        "ns",
        "span_ns - busy_ns - unrecorded_ns; null where calls are untraced, or only host work ran",
        True,
        importance=4,
    ),
    Column(
        "unrecorded_ns",
        INT64,
        "ns",
        "time in its span in which nothing was recorded although work or the host waited, or a "
        "drop says so; not idle",
        label="not recorded",
        importance=7,
    ),
    Column(
        "carried_over_ns",
        INT64,
        "ns",
        "part of busy_ns that was launched before the recording began",
        label="carried over",
        importance=7,
        combine=Kept(),
    ),
    Column(
        "utilization",
        FLOAT64,
        "ratio",
        "busy_ns / (span_ns - unrecorded_ns), over the device's own span; null where idle_ns is",
        True,
        label="busy of its span",
        kind="share",
    ),
    Column(
        "idle_share",
        FLOAT64,
        "ratio",
        "share of the end-to-end time in which nothing ran on it; null where idle_ns is",
        True,
        label="idle of end to end",
        kind="share",
        importance=3,
    ),
    Column(
        "calls_share",
        FLOAT64,
        "ratio",
        "share of the end-to-end time in the tiles of calls placed there",
        True,
        label="in calls of end to end",
        kind="share",
        importance=14,
    ),
    Column(
        "weight_bytes",
        INT64,
        "bytes",
        "largest amount of weights of the submodules placed there at one time; null where one of "
        "them is unknown",
        True,
        importance=5,
        combine=Kept(),
    ),
)
