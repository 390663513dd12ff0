"""The columns of denoising steps."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["STEPS"]

_TEXT = pl.String()
_FLAG = pl.Boolean()
_INT32 = pl.Int32()
_INT64 = pl.Int64()

STEPS: tuple[Column, ...] = (
    Column(
        "pipeline",
        _INT32,
        "",
        "number of the pipeline call in the run, from 0",
        label="pipeline call",
    ),
    Column("step", _INT32, "", "denoising step from the scheduler", kind="step"),
    Column("start_ns", _INT64, "ns", "begin of the step", importance=4),
    Column("duration_ns", _INT64, "ns", "wall time of the step"),
    Column("calls", _INT64, "", "calls in the step"),
    Column("branches", _TEXT, "", 'branches of these calls in order of time: "cond, uncond"'),
    Column(
        "calls_ns", _INT64, "ns", "wall union of the step's calls", label="in calls", importance=1
    ),
    Column(
        "host_ns",
        _INT64,
        "ns",
        "wall union of the step's work in no call, less calls",
        label="host work",
        importance=2,
    ),
    Column(
        "idle_ns", _INT64, "ns", "time inside the step where nothing was recorded", importance=2
    ),
    Column(
        "busy_ns",
        _INT64,
        "ns",
        "wall union of the step's commands that are not host",
        label="device time",
        importance=3,
    ),
    Column("outlier", _FLAG, "", "whether it took longer than the rule of the summary allows"),
)
