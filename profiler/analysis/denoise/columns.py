"""The columns of what is found about denoising steps: the step matrix, guidance, redundancy."""

from __future__ import annotations

import polars as pl

from profiler.analysis.axis_columns import ON_AXIS
from profiler.analysis.denoise.codes import (
    GuidanceEvidence,
    GuidanceKind,
    OutlierCause,
    Over,
    PartLevel,
    RedundancyEvidence,
    RedundancyKind,
)
from profiler.table.columns import DATA_ONLY, Column, column_of

__all__ = ["GUIDANCE", "REDUNDANT_WORK", "STEP_OPERATORS", "STEP_OUTLIERS", "STEP_TIMES"]

_TEXT, _FLAG = pl.String(), pl.Boolean()
_INT32, _INT64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()

_PART: tuple[Column, ...] = (
    Column(
        "level",
        _TEXT,
        "",
        "step, submodule, operator; instead of operators block_and_role, or role, where they are "
        "too many",
        importance=DATA_ONLY,
        codes=PartLevel,
    ),
    Column(
        "submodule", _TEXT, "", "submodule that it is a part of; null for steps", True, importance=4
    ),
    Column(
        "layer",
        _TEXT,
        "",
        "the operator's layer, or the block; null for whole parts",
        True,
        importance=DATA_ONLY,
    ),
    Column("role", _TEXT, "", "role, where the level is by role", True, importance=DATA_ONLY),
)
_STEP: tuple[Column, ...] = (
    column_of(ON_AXIS, "pipeline"),
    column_of(ON_AXIS, "step"),
)

STEP_OPERATORS: tuple[Column, ...] = (
    *_PART,
    Column("steps", _INT64, "", "steps in which it was traced and ran", importance=5),
    Column(
        "total_ns", _INT64, "ns", "its time in all of them; of a step its wall time", importance=8
    ),
    Column("median_ns", _INT64, "ns", "median over them of its device time: sum of durations"),
    Column(
        "spread", _REAL, "ratio", "scaled median absolute deviation / median_ns", True, importance=3
    ),
    Column(
        "warmup_steps",
        _INT64,
        "",
        "first steps of the run that took longer than the later",
        label="warm-up",
        importance=1,
    ),
    Column(
        "warmup_ns", _INT64, "ns", "what these took beyond median_ns", label="cost", importance=2
    ),
    Column(
        "drift_ns",
        _INT64,
        "ns",
        "change from step to step: Theil-Sen slope; null if few",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "drift_low_ns", _INT64, "ns", "lower end of its 95 % interval", True, importance=DATA_ONLY
    ),
    Column(
        "drift_high_ns", _INT64, "ns", "upper end of its 95 % interval", True, importance=DATA_ONLY
    ),
    Column("outliers", _INT64, "", "steps that stand out by the rule of the summary"),
    Column(
        "outlier_ns",
        _INT64,
        "ns",
        "what these took beyond median_ns",
        label="cost of these",
        importance=8,
    ),
    Column(
        "hoistable",
        _FLAG,
        "",
        "whether its inputs do not change from step to step",
        importance=DATA_ONLY,
    ),
)

STEP_TIMES: tuple[Column, ...] = (
    *_PART,
    *_STEP,
    Column("commands", _INT64, "", "its commands in the step; of a step its calls"),
    Column("total_ns", _INT64, "ns", "sum of their durations; of a step its wall time"),
)

STEP_OUTLIERS: tuple[Column, ...] = (
    *_PART,
    *_STEP,
    Column("total_ns", _INT64, "ns", "its time in the step", label="time", importance=2),
    Column(
        "excess_ns",
        _INT64,
        "ns",
        "beyond its median_ns; the 50 rows with most are here",
        label="too long",
    ),
    Column(
        "cause",
        _TEXT,
        "",
        ", ".join(OutlierCause) + "; null: nothing explains it",
        True,
        codes=OutlierCause,
    ),
    Column(
        "cause_ns",
        _INT64,
        "ns",
        "how much more of that than in usual steps",
        True,
        label="of it",
        importance=1,
    ),
    Column(
        "cause_device", _TEXT, "", "device of the work that overlapped", True, importance=DATA_ONLY
    ),
    Column(
        "cause_track", _TEXT, "", "track of the work that overlapped", True, importance=DATA_ONLY
    ),
    Column(
        "cause_layer",
        _TEXT,
        "",
        "what ran there longest at that time",
        True,
        label="running",
        kind="layer",
        importance=1,
    ),
)

GUIDANCE: tuple[Column, ...] = (
    Column(
        "what",
        _TEXT,
        "",
        ", ".join(GuidanceKind),
        codes=GuidanceKind,
    ),
    Column("submodule", _TEXT, "", "submodule whose calls it costs"),
    Column("branch", _TEXT, "", "branch of these calls", importance=1),
    Column("calls", _INT64, "", "calls that it costs, or takes part in", importance=2),
    Column(
        "elapsed_ns",
        _INT64,
        "ns",
        "sum of elapsed_ns of what it costs: of calls of its own all, of batched calls what half "
        "the batch would save",
        label="costs",
    ),
    Column(
        "busy_ns",
        _INT64,
        "ns",
        "device time of it: the union, of batched calls half's part",
        label="device time",
        importance=3,
    ),
    Column(
        "corrected_ns",
        _INT64,
        "ns",
        "elapsed_ns, traced calls * overhead_ratio",
        True,
        label="untraced",
        importance=4,
    ),
    Column("share", _REAL, "ratio", "elapsed_ns / end-to-end time", True, kind="share"),
    Column("estimated", _FLAG, "", "whether what half a batch takes is an estimate"),
    Column(
        "evidence",
        _TEXT,
        "",
        "what it was found by, a JSON list of notes",
        importance=15,
        codes=GuidanceEvidence,
    ),
)

REDUNDANT_WORK: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of the operators", importance=2),
    Column("layer", _TEXT, "", "their layer, numbers of blocks as *", kind="layer"),
    Column(
        "op_types",
        _TEXT,
        "",
        "their op types, most time first, joined with commas",
        importance=DATA_ONLY,
    ),
    Column(
        "rule",
        _TEXT,
        "",
        "what they are: " + ", ".join(RedundancyKind),
        label="what",
        codes=RedundancyKind,
    ),
    Column(
        "same_over",
        _TEXT,
        "",
        "steps, branches, or both; known_ahead: depends on the timestep alone",
        importance=1,
        codes=Over,
    ),
    Column("layers", _INT64, "", "operators that the row stands for", importance=DATA_ONLY),
    Column("calls", _INT64, "", "calls in which they ran", importance=3),
    Column("minimum_executions", _INT64, "", "calls in which they would have to run", importance=4),
    Column("total_ns", _INT64, "ns", "their device time", importance=3),
    Column(
        "saved_ns",
        _INT64,
        "ns",
        "what hoisting saves: median execution * executions beyond the minimum",
    ),
    Column(
        "estimated",
        _FLAG,
        "",
        "whether saved_ns is an upper bound, not what was measured",
        label="at most",
    ),
    Column(
        "evidence",
        _TEXT,
        "",
        "what speaks for it, a JSON list of notes",
        importance=15,
        codes=RedundancyEvidence,
    ),
)
