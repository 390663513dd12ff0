"""Columns that tables of pipeline calls, stages and steps have in common: how their time on the
device's axis is made up."""

from __future__ import annotations

import polars as pl

from profiler.run.columns import INT64, Column

__all__ = ["ON_AXIS"]


ON_AXIS: tuple[Column, ...] = (
    Column(
        "pipeline",
        pl.Int32(),
        "",
        "number of the pipeline call in the run, from 0",
        label="pipeline call",
    ),
    Column("step", pl.Int32(), "", "denoising step from the scheduler", kind="step"),
    Column("calls_ns", INT64, "ns", "union of the tiles inside", label="in calls"),
    Column(
        "host_ns",
        INT64,
        "ns",
        "time outside of tiles in which the host worked, without its waits for devices",
        label="host work",
    ),
    Column("idle_ns", INT64, "ns", "elapsed_ns - calls_ns - host_ns"),
)
