"""The columns of stages and pipeline calls."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import DATA_ONLY, Column

__all__ = ["PIPELINES", "STAGES"]

_TEXT = pl.String()
_FLAG = pl.Boolean()
_INT32 = pl.Int32()
_INT64 = pl.Int64()
_REAL = pl.Float64()

PIPELINES: tuple[Column, ...] = (
    Column(
        "pipeline",
        _INT32,
        "",
        "number of the pipeline call in the run, from 0",
        label="pipeline call",
    ),
    Column("name", _TEXT, "", "class of the pipeline", label="pipeline"),
    Column("start_ns", _INT64, "ns", "begin, on the run's clock", importance=2),
    Column("duration_ns", _INT64, "ns", "wall time of the pipeline call"),
    Column(
        "overlapping",
        _FLAG,
        "",
        "whether another pipeline call ran at the same time",
        label="at once",
        importance=8,
    ),
    Column("steps", _INT64, "", "its denoising steps", importance=4),
    Column("calls", _INT64, "", "its submodule calls", importance=3),
    Column(
        "calls_ns", _INT64, "ns", "wall union of its calls, stage by stage", True, label="in calls"
    ),
    Column(
        "host_ns",
        _INT64,
        "ns",
        "wall union of its work in no call, less calls",
        True,
        label="host work",
    ),
    Column("idle_ns", _INT64, "ns", "time in its stages where nothing was recorded", True),
    Column(
        "residual_ns",
        _INT64,
        "ns",
        "duration_ns - calls_ns - host_ns - idle_ns",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "residual_share",
        _REAL,
        "ratio",
        "what does not add up / duration_ns; errors of opposite sign do not cancel",
        True,
        label="unaccounted",
        kind="share",
        importance=1,
    ),
)

STAGES: tuple[Column, ...] = (
    Column("stage", _TEXT, "", "phase of the pipeline, in order of its first start"),
    Column(
        "start_ns",
        _INT64,
        "ns",
        "begin of the first span of the stage, else of its first call",
        importance=DATA_ONLY,
    ),
    Column(
        "duration_ns",
        _INT64,
        "ns",
        "wall union of the stage's spans, by pipeline call, summed",
        True,
    ),
    Column("calls", _INT64, "", "calls in the stage", importance=1),
    Column("calls_ns", _INT64, "ns", "wall union of the stage's calls, likewise", label="in calls"),
    Column(
        "host_ns",
        _INT64,
        "ns",
        "wall union of the stage's work in no call, less calls",
        True,
        label="host work",
    ),
    Column(
        "idle_ns", _INT64, "ns", "time inside the stage's spans where nothing was recorded", True
    ),
    Column(
        "share", _REAL, "ratio", "duration_ns / end-to-end time", True, kind="share", importance=2
    ),
)
