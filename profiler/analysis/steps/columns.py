"""The columns of denoising steps."""

from __future__ import annotations

import polars as pl

from profiler.analysis.axis_columns import ON_AXIS
from profiler.run.columns import BOOL, DATA_ONLY, INT64, STRING, Column, column_of

__all__ = ["STEPS"]


STEPS: tuple[Column, ...] = (
    column_of(ON_AXIS, "pipeline"),
    column_of(ON_AXIS, "step"),
    Column("start_ns", INT64, "ns", "begin of its first call's tile", importance=4),
    Column(
        "elapsed_ns",
        INT64,
        "ns",
        "from there to the end of its last call's tile, minus time that was not recorded",
    ),
    Column(
        "between_ns",
        INT64,
        "ns",
        "from the end of the previous step to its begin, minus the profiler's own work; null for "
        "the first step of a pipeline call",
        True,
        label="after the step before",
        importance=5,
    ),
    Column(
        "between_host_ns",
        INT64,
        "ns",
        "part of between_ns in which the host worked, without its waits for devices",
        True,
        label="host work before",
        importance=DATA_ONLY,
    ),
    Column(
        "duration_ns",
        INT64,
        "ns",
        "length of its span on the host, as recorded; null without one",
        True,
        label="host range",
        importance=16,
    ),
    Column("calls", INT64, "", "calls in the step"),
    Column("branches", STRING, "", 'branches of these calls in order of time: "cond, uncond"'),
    Column(
        "skipped_share",
        pl.Float64(),
        "ratio",
        "share of the blocks that a step cache may skip in these calls which it did skip; null "
        "without a step cache",
        True,
        label="skipped blocks",
        kind="share",
        importance=1,
    ),
    column_of(ON_AXIS, "calls_ns", importance=1),
    column_of(ON_AXIS, "host_ns", importance=2),
    column_of(ON_AXIS, "idle_ns", importance=2),
    Column(
        "busy_ns",
        INT64,
        "ns",
        "union of its kernels and copies: commands of every category except host and sync",
        label="device time",
        importance=3,
    ),
    Column("outlier", BOOL, "", "whether it is an outlier by the rule in the summary"),
)
