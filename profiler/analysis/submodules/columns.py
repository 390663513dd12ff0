"""The columns of submodules, their branches and their calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    Column,
    Distinct,
    First,
    Kept,
    Key,
    Max,
    Median,
    Min,
    Names,
    Sum,
    Union,
    column_of,
)
from profiler.run.device_timeline import TILES
from profiler.trace import events

__all__ = ["BRANCHES", "CALLS", "SUBMODULES"]

_OF_BRANCH = ", ".join(events.BRANCHES)
_STEADY = ("first", False)
_FIRST = First("elapsed_ns", by="start_ns")
_LEAST, _MOST = Min("elapsed_ns", _STEADY), Max("elapsed_ns", _STEADY)
_MEDIAN = Median("elapsed_ns", _STEADY)
_WORKED = Union("busy_ns", "work_begin_ns", "work_end_ns")
_TAKEN = Union("taken_share", "begin_ns", "end_ns")
_OPERATORS = Distinct(("layer",), among="commands", where=("host", False))


def _sum(name: str, **changes: Any) -> Column:
    """A column of tiles, summed over calls."""
    whole = column_of(TILES, name).meaning
    rule = Sum((name,))
    return column_of(TILES, name, meaning=f"sum over its calls: {whole}", combine=rule, **changes)


SUBMODULES: tuple[Column, ...] = (
    Column(
        "submodule",
        STRING,
        "",
        "named part of the pipeline, in order of its first call",
        combine=Key(),
    ),
    Column(
        "stage",
        STRING,
        "",
        "stages that call it, joined with commas",
        importance=15,
        combine=Names("stage", as_they_come=True),
    ),
    Column(
        "device",
        STRING,
        "",
        "devices that its calls are placed on, joined with commas",
        importance=1,
        combine=Names("device"),
    ),
    Column("calls", INT64, "", "its calls", combine=Sum(("calls",))),
    Column(
        "traced_calls",
        INT64,
        "",
        "calls whose commands were recorded",
        importance=DATA_ONLY,
        combine=Sum(("traced_calls",)),
    ),
    Column(
        "elapsed_ns",
        INT64,
        "ns",
        "sum of its calls' elapsed_ns, on the device's axis",
        combine=Sum(("elapsed_ns",)),
    ),
    Column(
        "first_ns", INT64, "ns", "elapsed_ns of its first call", label="first call", combine=_FIRST
    ),
    Column(
        "min_ns",
        INT64,
        "ns",
        "shortest steady call",
        label="shortest",
        importance=12,
        combine=_LEAST,
    ),
    Column("median_ns", INT64, "ns", "median of the steady calls", combine=_MEDIAN),
    Column(
        "max_ns", INT64, "ns", "longest steady call", label="longest", importance=2, combine=_MOST
    ),
    Column(
        "share",
        FLOAT64,
        "ratio",
        "union of its calls' tiles / end-to-end time",
        True,
        kind="share",
        combine=_TAKEN,
    ),
    Column(
        "commands", INT64, "", "commands of its calls", importance=4, combine=Sum(("commands",))
    ),
    Column(
        "operators",
        INT64,
        "",
        "different operators that devices ran in its calls",
        importance=15,
        combine=_OPERATORS,
    ),
    column_of(
        TILES,
        "busy_ns",
        meaning="device time: union of its calls' kernels and copies",
        importance=3,
        combine=_WORKED,
    ),
    _sum("idle_inside_ns", importance=16),
    _sum("launch_bound_ns", importance=4),
    column_of(TILES, "lead_ns", meaning="median lead_ns of its calls", combine=Median("lead_ns")),
    _sum("hidden_ns"),
    _sum("unrecorded_ns"),
    Column(
        "duration_ns",
        INT64,
        "ns",
        "sum of its calls' ranges on the host, in which their callers waited",
        label="host range",
        importance=16,
        combine=Sum(("duration_ns",)),
    ),
    Column(
        "overhead_ratio",
        FLOAT64,
        "ratio",
        "untraced / traced median of steady calls; 1 within noise; null with fewer than 3 of "
        "either kind",
        True,
        kind="overhead_ratio",
        importance=13,
    ),
)

BRANCHES: tuple[Column, ...] = (
    column_of(SUBMODULES, "submodule"),
    Column("branch", STRING, "", _OF_BRANCH, True, combine=Key()),
    column_of(SUBMODULES, "calls", meaning="calls of the submodule for this branch"),
    *(
        column_of(SUBMODULES, name)
        for name in (
            *("elapsed_ns", "first_ns", "min_ns", "median_ns", "max_ns"),
            *("busy_ns", "duration_ns", "share"),
        )
    ),
)
"""A branch's times are those of a submodule, of its own calls."""

_CALLS: tuple[Column, ...] = (
    column_of(TILES, "call", combine=Key()),
    Column(
        "pipeline",
        INT32,
        "",
        "number of its pipeline call; -1 outside every pipeline call, or where unknown",
        label="pipeline call",
        kind="step",
        importance=1,
    ),
    Column("submodule", STRING, "", "named part of the pipeline that was invoked"),
    Column("stage", STRING, "", "phase of the pipeline", importance=4),
    Column("branch", STRING, "", _OF_BRANCH, True),
    Column("step", INT32, "", "denoising step; -1 outside denoise", kind="step"),
    Column(
        "iteration",
        INT32,
        "",
        "pass of a loop other than denoising (a token, a profiler step), from 0; -1 outside of "
        "such loops",
        kind="step",
    ),
    Column(
        "rank",
        INT32,
        "",
        "process of the job, from 0; -1 in a run of a single process",
        kind="step",
    ),
    Column("device", STRING, "", "where the submodule is placed", importance=2),
    Column("start_ns", INT64, "ns", "begin, on the run's clock", importance=3),
    column_of(TILES, "elapsed_ns"),
    Column("share", FLOAT64, "ratio", "elapsed_ns / end-to-end time", True, kind="share"),
    Column("commands", INT64, "", "commands of the call", importance=4, combine=Sum(("commands",))),
    Column(
        "operators",
        INT64,
        "",
        "operators that devices ran in the call",
        importance=5,
        combine=_OPERATORS,
    ),
    column_of(TILES, "busy_ns"),
    column_of(TILES, "idle_inside_ns"),
    column_of(TILES, "launch_bound_ns"),
    Column(
        "before_kernel_ns",
        INT64,
        "ns",
        "part of launch_bound_ns before its first kernel; null where the work of its device is "
        "not known",
        True,
        label="before first kernel",
        importance=13,
    ),
    column_of(TILES, "lead_ns"),
    column_of(TILES, "hidden_ns"),
    column_of(TILES, "unrecorded_ns"),
    Column(
        "duration_ns",
        INT64,
        "ns",
        "wall time, as the caller saw it; 0 where unknown",
        label="host range",
        importance=16,
    ),
    column_of(TILES, "begin_ns"),
    column_of(TILES, "end_ns"),
    Column(
        "first",
        BOOL,
        "",
        "true for a call that is not steady: the first of its submodule in the run, one that "
        "overlapped with that, or one that compiled",
        importance=15,
    ),
    Column(
        "ops_traced",
        BOOL,
        "",
        "whether commands were recorded for it",
        label="traced",
        importance=15,
    ),
)

CALLS = tuple(
    column if column.combine is not None else replace(column, combine=Kept()) for column in _CALLS
)
"""What a call took is no matter of a selection; how many of its commands were selected is."""
