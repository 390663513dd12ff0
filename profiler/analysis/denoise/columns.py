"""The columns of what is found about denoising steps: the step matrix, guidance, redundancy."""

from __future__ import annotations

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
from profiler.run.columns import (
    BOOL,
    DATA_ONLY,
    FLOAT64,
    INT64,
    STRING,
    Column,
    column_of,
)

__all__ = ["GUIDANCE", "REDUNDANT_WORK", "STEP_OPERATORS", "STEP_OUTLIERS", "STEP_TIMES"]


_PART: tuple[Column, ...] = (
    Column(
        "level",
        STRING,
        "",
        "step, submodule, operator; where there are too many operators, block_and_role or role "
        "instead",
        importance=DATA_ONLY,
        codes=PartLevel,
    ),
    Column(
        "submodule",
        STRING,
        "",
        "submodule to which the part belongs; null for steps",
        True,
        importance=4,
    ),
    Column(
        "layer",
        STRING,
        "",
        "layer of the operator, or the block; null for steps and submodules",
        True,
        importance=DATA_ONLY,
    ),
    Column("role", STRING, "", "role, where the level is by role", True, importance=DATA_ONLY),
)
_STEP: tuple[Column, ...] = (
    column_of(ON_AXIS, "pipeline"),
    column_of(ON_AXIS, "step"),
)

STEP_OPERATORS: tuple[Column, ...] = (
    *_PART,
    Column("steps", INT64, "", "steps in which it was traced and ran", importance=5),
    Column(
        "total_ns",
        INT64,
        "ns",
        "its time in all of these steps; for a step, its wall time",
        importance=8,
    ),
    Column(
        "median_ns", INT64, "ns", "median over these steps of its device time (sum of durations)"
    ),
    Column(
        "spread",
        FLOAT64,
        "ratio",
        "scaled median absolute deviation / median_ns",
        True,
        importance=3,
    ),
    Column(
        "warmup_steps",
        INT64,
        "",
        "first steps of the run that took longer than later ones",
        label="warm-up",
        importance=1,
    ),
    Column(
        "warmup_ns",
        INT64,
        "ns",
        "time of these steps beyond median_ns",
        label="cost",
        importance=2,
    ),
    Column(
        "drift_ns",
        INT64,
        "ns",
        "change from step to step (Theil-Sen slope); null if there are too few steps",
        True,
        importance=DATA_ONLY,
    ),
    Column(
        "drift_low_ns", INT64, "ns", "lower end of its 95 % interval", True, importance=DATA_ONLY
    ),
    Column(
        "drift_high_ns", INT64, "ns", "upper end of its 95 % interval", True, importance=DATA_ONLY
    ),
    Column("outliers", INT64, "", "steps that are outliers by the rule in the summary"),
    Column(
        "outlier_ns",
        INT64,
        "ns",
        "time of these steps beyond median_ns",
        label="cost of these",
        importance=8,
    ),
    Column(
        "hoistable",
        BOOL,
        "",
        "true where its inputs do not change from step to step",
        importance=DATA_ONLY,
    ),
)

STEP_TIMES: tuple[Column, ...] = (
    *_PART,
    *_STEP,
    Column("commands", INT64, "", "its commands in the step; for a step, its calls"),
    Column("total_ns", INT64, "ns", "sum of their durations; for a step, its wall time"),
)

STEP_OUTLIERS: tuple[Column, ...] = (
    *_PART,
    *_STEP,
    Column("total_ns", INT64, "ns", "its time in the step", label="time", importance=2),
    Column(
        "excess_ns",
        INT64,
        "ns",
        "time beyond its median_ns",
        label="too long",
    ),
    Column(
        "cause",
        STRING,
        "",
        ", ".join(OutlierCause) + "; null: nothing explains it",
        True,
        codes=OutlierCause,
    ),
    Column(
        "cause_ns",
        INT64,
        "ns",
        "how much longer the cause took than in usual steps",
        True,
        label="of it",
        importance=1,
    ),
    Column(
        "cause_device", STRING, "", "device of the work that overlapped", True, importance=DATA_ONLY
    ),
    Column(
        "cause_track", STRING, "", "track of the work that overlapped", True, importance=DATA_ONLY
    ),
    Column(
        "cause_layer",
        STRING,
        "",
        "layer that ran longest there at that time",
        True,
        label="running",
        kind="layer",
        importance=1,
    ),
)

GUIDANCE: tuple[Column, ...] = (
    Column(
        "what",
        STRING,
        "",
        ", ".join(GuidanceKind),
        codes=GuidanceKind,
    ),
    Column("submodule", STRING, "", "submodule whose calls it costs"),
    Column("branch", STRING, "", "branch of these calls", importance=1),
    Column("calls", INT64, "", "calls that it adds, or takes part in", importance=2),
    Column(
        "elapsed_ns",
        INT64,
        "ns",
        "sum of elapsed_ns that it costs: all of its own calls; for batched calls, what half the "
        "batch would save",
        label="costs",
    ),
    Column(
        "busy_ns",
        INT64,
        "ns",
        "its device time (union); for batched calls, the part of half the batch",
        label="device time",
        importance=3,
    ),
    Column(
        "corrected_ns",
        INT64,
        "ns",
        "elapsed_ns, with traced calls multiplied by overhead_ratio",
        True,
        label="untraced",
        importance=4,
    ),
    Column("share", FLOAT64, "ratio", "elapsed_ns / end-to-end time", True, kind="share"),
    Column("estimated", BOOL, "", "whether the time of half a batch is an estimate"),
    Column(
        "evidence",
        STRING,
        "",
        "how it was found, as a JSON list of notes",
        importance=15,
        codes=GuidanceEvidence,
    ),
)

REDUNDANT_WORK: tuple[Column, ...] = (
    Column("submodule", STRING, "", "submodule of the operators", importance=2),
    Column("layer", STRING, "", "their layer, with * for the numbers of blocks", kind="layer"),
    Column(
        "op_types",
        STRING,
        "",
        "their op types, longest time first, joined with commas",
        importance=DATA_ONLY,
    ),
    Column(
        "rule",
        STRING,
        "",
        "kind of work: " + ", ".join(RedundancyKind),
        label="what",
        codes=RedundancyKind,
    ),
    Column(
        "same_over",
        STRING,
        "",
        "steps, branches, or both; known_ahead: depends only on the timestep",
        importance=1,
        codes=Over,
    ),
    Column("layers", INT64, "", "operators that the row stands for", importance=DATA_ONLY),
    Column("calls", INT64, "", "calls in which they ran", importance=3),
    Column("minimum_executions", INT64, "", "calls in which they would have to run", importance=4),
    Column("total_ns", INT64, "ns", "their device time", importance=3),
    Column(
        "saved_ns",
        INT64,
        "ns",
        "what hoisting saves: median execution * executions beyond the minimum",
    ),
    Column(
        "estimated",
        BOOL,
        "",
        "whether saved_ns is an upper bound rather than a measurement",
        label="at most",
    ),
    Column(
        "evidence",
        STRING,
        "",
        "the evidence, as a JSON list of notes",
        importance=15,
        codes=RedundancyEvidence,
    ),
)
