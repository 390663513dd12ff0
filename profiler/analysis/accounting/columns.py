"""The columns of stages and pipeline calls."""

from __future__ import annotations

from profiler.analysis.axis_columns import ON_AXIS
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    FLOAT64,
    INT64,
    STRING,
    Column,
    column_of,
)

__all__ = ["PIPELINES", "STAGES"]


PIPELINES: tuple[Column, ...] = (
    column_of(ON_AXIS, "pipeline"),
    Column("name", STRING, "", "class of the pipeline", label="pipeline"),
    Column("start_ns", INT64, "ns", "begin, on the run's clock", importance=2),
    Column(
        "elapsed_ns",
        INT64,
        "ns",
        "from its begin to its end, or to the end of the last command launched for it, minus "
        "unrecorded_ns",
    ),
    Column(
        "duration_ns",
        INT64,
        "ns",
        "length of its span on the host, as recorded",
        label="host range",
        importance=16,
    ),
    Column(
        "overlapping",
        BOOL,
        "",
        "whether another pipeline call ran at the same time",
        label="at once",
        importance=8,
    ),
    Column("steps", INT64, "", "its denoising steps", importance=4),
    Column("calls", INT64, "", "its submodule calls", importance=3),
    column_of(ON_AXIS, "calls_ns", nullable=True, meaning="union of its calls' tiles"),
    column_of(ON_AXIS, "host_ns", nullable=True),
    column_of(ON_AXIS, "idle_ns", nullable=True),
    Column(
        "unrecorded_ns",
        INT64,
        "ns",
        "time in which work waited but nothing was recorded, or only work from before the "
        "recording ran",
        True,
        label="not recorded",
        importance=9,
    ),
    Column(
        "residual_ns",
        INT64,
        "ns",
        "elapsed_ns - calls_ns - host_ns - idle_ns",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "residual_share",
        FLOAT64,
        "ratio",
        "(residual_ns and tiles outside of the pipeline call) / elapsed_ns",
        True,
        label="unaccounted",
        kind="share",
        importance=1,
    ),
)

STAGES: tuple[Column, ...] = (
    Column("stage", STRING, "", "phase of the pipeline, in order of its first start"),
    Column(
        "start_ns",
        INT64,
        "ns",
        "begin of the first span of the stage, or of its first call where it has no span",
        importance=DATA_ONLY,
    ),
    Column(
        "elapsed_ns",
        INT64,
        "ns",
        "from the end of the previous stage to the end of its last tile; the stages add up to "
        "the end-to-end time",
        True,
    ),
    Column(
        "duration_ns",
        INT64,
        "ns",
        "union of the stage's spans on the host, as recorded",
        True,
        label="host range",
        importance=16,
    ),
    Column("calls", INT64, "", "calls in the stage", importance=1),
    column_of(ON_AXIS, "calls_ns"),
    column_of(ON_AXIS, "host_ns", nullable=True),
    column_of(ON_AXIS, "idle_ns", nullable=True),
    Column(
        "share", FLOAT64, "ratio", "elapsed_ns / end-to-end time", True, kind="share", importance=2
    ),
)
