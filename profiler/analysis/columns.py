"""Every column of the tables of an `Analysis`, declared once like those of a `Run`.

`docs/json.md` documents the same columns for `--json`; a test holds the two together.
"""

from __future__ import annotations

import polars as pl

from profiler import events
from profiler.analysis.denoise.columns import (
    GUIDANCE,
    INVARIANTS,
    STEP_OPERATORS,
    STEP_OUTLIERS,
    STEP_TIMES,
)
from profiler.analysis.memory.columns import MEMORY, MEMORY_DEVICES, MEMORY_TIMELINE
from profiler.analysis.operators.columns import GEOMETRY, OPERATORS
from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.analysis.roofline.columns import FUSIONS, ROOFLINE, ROOFLINE_ROLES
from profiler.analysis.waiting.columns import BOUNDARIES, CRITICAL_PATH, IDLE, STRANDED
from profiler.table.columns import Column

__all__ = [
    "BRANCHES",
    "CALLS",
    "DEVICES",
    "LOSSES",
    "PIPELINES",
    "STAGES",
    "STEPS",
    "SUBMODULES",
    "TABLES",
]

_TEXT, _FLAG = pl.String(), pl.Boolean()
_INT32, _INT64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()

_OF_BRANCH = ", ".join(events.BRANCHES)

PIPELINES: tuple[Column, ...] = (
    Column("pipeline", _INT32, "", "number of the pipeline call in the run, from 0"),
    Column("name", _TEXT, "", "class of the pipeline"),
    Column("start_ns", _INT64, "ns", "begin, on the run's clock"),
    Column("duration_ns", _INT64, "ns", "wall time of the pipeline call"),
    Column("overlapping", _FLAG, "", "whether another pipeline call ran at the same time"),
    Column("steps", _INT64, "", "its denoising steps"),
    Column("calls", _INT64, "", "its submodule calls"),
    Column("calls_ns", _INT64, "ns", "wall union of its calls, stage by stage", True),
    Column("host_ns", _INT64, "ns", "wall union of its work in no call, less calls", True),
    Column("idle_ns", _INT64, "ns", "time in its stages where nothing was recorded", True),
    Column("residual_ns", _INT64, "ns", "duration_ns - calls_ns - host_ns - idle_ns", True),
    Column(
        "residual_share",
        _REAL,
        "ratio",
        "what does not add up / duration_ns; errors of opposite sign do not cancel",
        True,
    ),
)

STAGES: tuple[Column, ...] = (
    Column("stage", _TEXT, "", "phase of the pipeline, in order of its first start"),
    Column(
        "start_ns", _INT64, "ns", "begin of the first span of the stage, else of its first call"
    ),
    Column(
        "duration_ns",
        _INT64,
        "ns",
        "wall union of the stage's spans, by pipeline call, summed",
        True,
    ),
    Column("calls", _INT64, "", "calls in the stage"),
    Column("calls_ns", _INT64, "ns", "wall union of the stage's calls, likewise"),
    Column("host_ns", _INT64, "ns", "wall union of the stage's work in no call, less calls", True),
    Column(
        "idle_ns", _INT64, "ns", "time inside the stage's spans where nothing was recorded", True
    ),
    Column("share", _REAL, "ratio", "duration_ns / end-to-end time", True),
)

DEVICES: tuple[Column, ...] = (
    Column("device", _TEXT, "", "a place that executes commands"),
    Column("hardware", _TEXT, "", "name of the hardware, where the run knows it", True),
    Column("calls", _INT64, "", "calls placed there"),
    Column("commands", _INT64, "", "commands executed there"),
    Column("calls_ns", _INT64, "ns", "wall union of the calls placed there"),
    Column("busy_ns", _INT64, "ns", "wall union of its commands of every category but host"),
    Column("compute_ns", _INT64, "ns", "wall union of its compute commands"),
    Column("dma_ns", _INT64, "ns", "wall union of its dma commands"),
    Column("copy_ns", _INT64, "ns", "wall union of its copy commands"),
    Column("sync_ns", _INT64, "ns", "wall union of its sync commands"),
    Column("other_ns", _INT64, "ns", "wall union of its commands of category other"),
    Column("host_ns", _INT64, "ns", "wall union of its host commands"),
    Column("span_ns", _INT64, "ns", "from its first command or call to the end of its last"),
    Column(
        "idle_ns",
        _INT64,
        "ns",
        "span_ns - busy_ns; null where calls were not traced, or nothing but host work ran",
        True,
    ),
    Column(
        "utilization",
        _REAL,
        "ratio",
        "busy_ns / span_ns, of the device's own span, not of the run; null as idle_ns",
        True,
    ),
    Column(
        "weight_bytes",
        _INT64,
        "bytes",
        "weights of the submodules placed there, the most at once; null where one does not tell",
        True,
    ),
)

SUBMODULES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "named part of the pipeline, in order of its first call"),
    Column("stage", _TEXT, "", "stages that call it, joined with commas"),
    Column("device", _TEXT, "", "devices that its calls are placed on, joined with commas"),
    Column("calls", _INT64, "", "calls of it"),
    Column("traced_calls", _INT64, "", "calls whose commands were recorded"),
    Column("total_ns", _INT64, "ns", "sum of its calls' durations"),
    Column("first_ns", _INT64, "ns", "duration of its first call"),
    Column("min_ns", _INT64, "ns", "shortest steady call"),
    Column("median_ns", _INT64, "ns", "median of the steady calls"),
    Column("max_ns", _INT64, "ns", "longest steady call"),
    Column("share", _REAL, "ratio", "total_ns / end-to-end time", True),
    Column("commands", _INT64, "", "commands of its calls"),
    Column("operators", _INT64, "", "different operators in its calls"),
    Column("busy_ns", _INT64, "ns", "device time: sum over its calls of their busy_ns"),
    Column(
        "calibration",
        _REAL,
        "ratio",
        "untraced / traced median of steady calls; 1 within noise, null below 3 of either kind",
        True,
    ),
)

BRANCHES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "named part of the pipeline, in order of its first call"),
    Column("branch", _TEXT, "", _OF_BRANCH, True),
    Column("calls", _INT64, "", "calls of the submodule for this branch"),
    Column("total_ns", _INT64, "ns", "sum of these calls' durations"),
    Column("first_ns", _INT64, "ns", "duration of the first of them"),
    Column("min_ns", _INT64, "ns", "shortest steady one"),
    Column("median_ns", _INT64, "ns", "median of the steady ones"),
    Column("max_ns", _INT64, "ns", "longest steady one"),
    Column("busy_ns", _INT64, "ns", "device time: sum of their busy_ns"),
    Column("share", _REAL, "ratio", "total_ns / end-to-end time", True),
)

CALLS: tuple[Column, ...] = (
    Column("call", _INT32, "", "number of the call in its run"),
    Column(
        "pipeline", _INT32, "", "number of its pipeline call; -1 outside every one, or not known"
    ),
    Column("submodule", _TEXT, "", "named part of the pipeline that was invoked"),
    Column("stage", _TEXT, "", "phase of the pipeline"),
    Column("branch", _TEXT, "", _OF_BRANCH, True),
    Column("step", _INT32, "", "denoising step; -1 outside denoise"),
    Column("device", _TEXT, "", "where the submodule is placed"),
    Column("start_ns", _INT64, "ns", "begin, on the run's clock"),
    Column("duration_ns", _INT64, "ns", "wall time, as the caller saw it; 0 where it is not known"),
    Column("commands", _INT64, "", "commands of the call"),
    Column("operators", _INT64, "", "operators of the call"),
    Column("busy_ns", _INT64, "ns", "wall union of its commands of every category but host"),
    Column(
        "first",
        _FLAG,
        "",
        "whether it is the first call of its submodule in the run, or ran beside it",
    ),
    Column("ops_traced", _FLAG, "", "whether commands were recorded for it"),
)

STEPS: tuple[Column, ...] = (
    Column("pipeline", _INT32, "", "number of the pipeline call in the run, from 0"),
    Column("step", _INT32, "", "denoising step from the scheduler"),
    Column("start_ns", _INT64, "ns", "begin of the step"),
    Column("duration_ns", _INT64, "ns", "wall time of the step"),
    Column("calls", _INT64, "", "calls in the step"),
    Column("branches", _TEXT, "", 'branches of these calls in order of time: "cond, uncond"'),
    Column("calls_ns", _INT64, "ns", "wall union of the step's calls"),
    Column("host_ns", _INT64, "ns", "wall union of the step's work in no call, less calls"),
    Column("idle_ns", _INT64, "ns", "time inside the step where nothing was recorded"),
    Column("busy_ns", _INT64, "ns", "wall union of the step's commands that are not host"),
    Column("outlier", _FLAG, "", "whether it took longer than the rule of the summary allows"),
)

LOSSES: tuple[Column, ...] = (
    Column(
        "kind",
        _TEXT,
        "",
        ", ".join(f"`{kind}`" for kind in events.DropKind),
    ),
    Column("where", _TEXT, "", "file or part that lost it"),
    Column("count", _INT64, "", "how much, -1 where nobody can tell"),
    Column("unit", _TEXT, "", "what `count` counts"),
    Column("detail", _TEXT, "", "what happened, in words"),
)
"""Of `Analysis.losses`, which are values and no frame."""

TABLES: dict[str, tuple[Column, ...]] = {
    "pipelines": PIPELINES,
    "stages": STAGES,
    "devices": DEVICES,
    "submodules": SUBMODULES,
    "branches": BRANCHES,
    "calls": CALLS,
    "steps": STEPS,
    "operators": OPERATORS,
    "geometry": GEOMETRY,
    "roles": ROLES,
    "blocks": BLOCKS,
    "roofline": ROOFLINE,
    "roofline_roles": ROOFLINE_ROLES,
    "fusions": FUSIONS,
    "step_operators": STEP_OPERATORS,
    "step_times": STEP_TIMES,
    "step_outliers": STEP_OUTLIERS,
    "guidance": GUIDANCE,
    "invariants": INVARIANTS,
    "memory_devices": MEMORY_DEVICES,
    "memory": MEMORY,
    "memory_timeline": MEMORY_TIMELINE,
    "idle": IDLE,
    "critical_path": CRITICAL_PATH,
    "boundaries": BOUNDARIES,
    "stranded": STRANDED,
}
