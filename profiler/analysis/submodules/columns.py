"""The columns of submodules, their branches and their calls."""

from __future__ import annotations

import polars as pl

from profiler import events
from profiler.table.columns import DATA_ONLY, Column

__all__ = ["BRANCHES", "CALLS", "SUBMODULES"]

_TEXT = pl.String()
_FLAG = pl.Boolean()
_INT32 = pl.Int32()
_INT64 = pl.Int64()
_REAL = pl.Float64()
_OF_BRANCH = ", ".join(events.BRANCHES)

SUBMODULES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "named part of the pipeline, in order of its first call"),
    Column("stage", _TEXT, "", "stages that call it, joined with commas", importance=15),
    Column(
        "device",
        _TEXT,
        "",
        "devices that its calls are placed on, joined with commas",
        importance=1,
    ),
    Column("calls", _INT64, "", "calls of it"),
    Column("traced_calls", _INT64, "", "calls whose commands were recorded", importance=DATA_ONLY),
    Column("total_ns", _INT64, "ns", "sum of its calls' durations"),
    Column("first_ns", _INT64, "ns", "duration of its first call", label="first call"),
    Column("min_ns", _INT64, "ns", "shortest steady call", label="shortest", importance=12),
    Column("median_ns", _INT64, "ns", "median of the steady calls"),
    Column("max_ns", _INT64, "ns", "longest steady call", label="longest", importance=2),
    Column("share", _REAL, "ratio", "total_ns / end-to-end time", True, kind="share"),
    Column("commands", _INT64, "", "commands of its calls", importance=4),
    Column("operators", _INT64, "", "different operators in its calls", importance=15),
    Column(
        "busy_ns",
        _INT64,
        "ns",
        "device time: sum over its calls of their busy_ns",
        label="device time",
        importance=3,
    ),
    Column(
        "calibration",
        _REAL,
        "ratio",
        "untraced / traced median of steady calls; 1 within noise, null below 3 of either kind",
        True,
        kind="calibration",
        importance=13,
    ),
)

BRANCHES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "named part of the pipeline, in order of its first call"),
    Column("branch", _TEXT, "", _OF_BRANCH, True),
    Column("calls", _INT64, "", "calls of the submodule for this branch"),
    Column("total_ns", _INT64, "ns", "sum of these calls' durations"),
    Column("first_ns", _INT64, "ns", "duration of the first of them", label="first call"),
    Column("min_ns", _INT64, "ns", "shortest steady one", label="shortest", importance=12),
    Column("median_ns", _INT64, "ns", "median of the steady ones"),
    Column("max_ns", _INT64, "ns", "longest steady one", label="longest", importance=2),
    Column(
        "busy_ns",
        _INT64,
        "ns",
        "device time: sum of their busy_ns",
        label="device time",
        importance=3,
    ),
    Column("share", _REAL, "ratio", "total_ns / end-to-end time", True, kind="share"),
)

CALLS: tuple[Column, ...] = (
    Column("call", _INT32, "", "number of the call in its run"),
    Column(
        "pipeline",
        _INT32,
        "",
        "number of its pipeline call; -1 outside every one, or not known",
        label="pipeline call",
        kind="step",
        importance=1,
    ),
    Column("submodule", _TEXT, "", "named part of the pipeline that was invoked"),
    Column("stage", _TEXT, "", "phase of the pipeline", importance=4),
    Column("branch", _TEXT, "", _OF_BRANCH, True),
    Column("step", _INT32, "", "denoising step; -1 outside denoise", kind="step"),
    Column("device", _TEXT, "", "where the submodule is placed", importance=2),
    Column("start_ns", _INT64, "ns", "begin, on the run's clock", importance=3),
    Column("duration_ns", _INT64, "ns", "wall time, as the caller saw it; 0 where it is not known"),
    Column("commands", _INT64, "", "commands of the call", importance=4),
    Column("operators", _INT64, "", "operators of the call", importance=5),
    Column(
        "busy_ns",
        _INT64,
        "ns",
        "wall union of its commands of every category but host",
        label="device time",
        importance=1,
    ),
    Column(
        "first",
        _FLAG,
        "",
        "whether it is the first call of its submodule in the run, or ran beside it",
        importance=15,
    ),
    Column(
        "ops_traced",
        _FLAG,
        "",
        "whether commands were recorded for it",
        label="traced",
        importance=15,
    ),
)
