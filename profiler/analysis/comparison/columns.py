"""Every column of the tables of a `Comparison`; `docs/diff.md` documents the same."""

from __future__ import annotations

import polars as pl

from profiler.analysis.comparison.codes import Resampled, Side, Step, TreeNode, Verdict
from profiler.table.columns import Column

__all__ = [
    "KERNELS",
    "LEVELS",
    "METRICS",
    "NODES",
    "PAIRED_CALLS",
    "RUNS",
    "SHAPES",
    "STRETCHES",
    "TABLES",
    "TIMED_CALLS",
    "TREE",
    "WATERFALL",
]

LEVELS = (
    "end_to_end",
    "stage",
    "step",
    "submodule",
    "branch",
    "busy",
    "role",
    "modules",
    "module",
)
"""From the whole to the finest. `modules` are the equal modules of repeated blocks taken together,
their numbers replaced by `*`."""

_TEXT, _FLAG = pl.String(), pl.Boolean()
_INT32, _INT64, _REAL = pl.Int32(), pl.Int64(), pl.Float64()

RUNS: tuple[Column, ...] = (
    Column("side", _TEXT, "", "base or new", codes=Side),
    Column("run_id", _TEXT, "", "name of the run"),
    Column("pipeline", _TEXT, "", "class of the pipeline, empty where unknown"),
    Column("producer", _TEXT, "", "what recorded the run"),
    Column("devices", _TEXT, "", "devices that its calls are placed on, joined with commas"),
    Column("pipelines", _INT64, "", "pipeline calls"),
    Column("steps", _INT64, "", "denoising steps, over all pipeline calls"),
    Column("calls", _INT64, "", "submodule calls"),
    Column("traced_calls", _INT64, "", "submodule calls whose commands were recorded"),
)

METRICS: tuple[Column, ...] = (
    Column("metric", _TEXT, "", "name of what is compared, as `--metric` takes it"),
    Column("level", _TEXT, "", ", ".join(LEVELS)),
    Column("stage", _TEXT, "", "phase of the pipeline", True),
    Column("submodule", _TEXT, "", "named part of the pipeline", True),
    Column("branch", _TEXT, "", "for whom the calls work", True),
    Column("step", _INT32, "", "denoising step of a single step's metric", True),
    Column("role", _TEXT, "", "what the commands are for in a diffusion model", True),
    Column("module", _TEXT, "", "module path, the nearest that both sides have", True),
    Column("calls", _TEXT, "", "steady, first, or all where one side lacks either"),
    Column("base_ns", _INT64, "ns", "median over the baseline; null: only in new", True),
    Column("new_ns", _INT64, "ns", "median over the new runs; null: only in base", True),
    Column("difference_ns", _INT64, "ns", "new_ns - base_ns", True),
    Column("change", _REAL, "ratio", "difference_ns / base_ns", True),
    Column(
        "low", _REAL, "ratio", "lower end of the change's interval; null: noise not known", True
    ),
    Column("high", _REAL, "ratio", "upper end of it", True),
    Column(
        "resampled",
        _TEXT,
        "",
        ", ".join(Resampled) + ": what the interval is made from",
        True,
        codes=Resampled,
    ),
    Column("base_count", _INT64, "", "how many of these the baseline has"),
    Column("new_count", _INT64, "", "how many of these the new runs have"),
    Column("corrected", _FLAG, "", "whether times are corrected to untraced calls"),
    Column("verdict", _TEXT, "", ", ".join(Verdict), codes=Verdict),
)

_DIFFERENCE: tuple[Column, ...] = (
    Column("base_ns", _INT64, "ns", "mean over the baseline's samples; null: only in new", True),
    Column("new_ns", _INT64, "ns", "mean over the new runs' samples; null: only in base", True),
    Column("difference_ns", _INT64, "ns", "new_ns - base_ns", True),
    Column("change", _REAL, "ratio", "difference_ns / base_ns", True),
)
_EXECUTED: tuple[Column, ...] = (
    Column("base_executions", _REAL, "", "how often the baseline runs it in a sample", True),
    Column("new_executions", _REAL, "", "how often the new runs do", True),
)

SHAPES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "named part of the pipeline"),
    Column(
        "what",
        _TEXT,
        "",
        "operation and its dims; its type where both sides have the same",
        label="shape",
    ),
    *_DIFFERENCE,
    *_EXECUTED,
    Column(
        "base_teraflops_per_s", _REAL, "TFLOP/s", "FLOPs / time in the baseline, where known", True
    ),
    Column("new_teraflops_per_s", _REAL, "TFLOP/s", "FLOPs / time in the new runs", True),
    Column("base_kernel", _TEXT, "", "the kernel with most of the baseline's time", True),
    Column("new_kernel", _TEXT, "", "the kernel with most of the new runs' time", True),
    Column("base_kernels", _INT64, "", "different kernels that it ran in the baseline", True),
    Column("new_kernels", _INT64, "", "different kernels that it ran in the new runs", True),
)

KERNELS: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "named part of the pipeline"),
    Column("what", _TEXT, "", "the kernel, without its parameters", label="kernel"),
    *_DIFFERENCE,
    *_EXECUTED,
)

NODES: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "named part of the pipeline"),
    Column(
        "what",
        _TEXT,
        "",
        "the layer with most of the time, as the side calls it that names more nodes",
        label="nodes",
        kind="layer",
    ),
    Column("base_layers", _TEXT, "", "the baseline's layers that run these nodes", True),
    Column("new_layers", _TEXT, "", "the new runs' layers that run them", True),
    Column("base_count", _INT64, "", "how many layers these are in the baseline"),
    Column("new_count", _INT64, "", "how many these are in the new runs"),
    *_DIFFERENCE,
)

WATERFALL: tuple[Column, ...] = (
    Column("level", _TEXT, "", ", ".join(Step) + ": what a line is of", codes=Step),
    Column("stage", _TEXT, "", "phase of the pipeline", True),
    Column("submodule", _TEXT, "", "named part of the pipeline", True),
    Column("role", _TEXT, "", "what the commands are for, or do", True),
    Column("base_ns", _INT64, "ns", "mean over the baseline; 0 where it has none"),
    Column("new_ns", _INT64, "ns", "mean over the new runs"),
    Column("difference_ns", _INT64, "ns", "new_ns - base_ns"),
)

TREE: tuple[Column, ...] = (
    Column("depth", _INT64, "", "how deep it lies: 0 for a submodule"),
    Column("kind", _TEXT, "", ", ".join(TreeNode) + ": what a node is", codes=TreeNode),
    Column("name", _TEXT, "", "its name in the node that it lies in", kind="layer"),
    Column("submodule", _TEXT, "", "named part of the pipeline"),
    Column("module", _TEXT, "", "dotted path in the submodule; equal blocks are one, `*`", True),
    Column("role", _TEXT, "", "what its commands are for, where they have one role", True),
    Column("base_ns", _INT64, "ns", "mean over the baseline, with all that lies in it"),
    Column("new_ns", _INT64, "ns", "mean over the new runs"),
    Column("difference_ns", _INT64, "ns", "new_ns - base_ns"),
    Column("change", _REAL, "ratio", "difference_ns / base_ns", True),
)

_PLACE: tuple[Column, ...] = (
    Column("stage", _TEXT, "", "phase of the pipeline"),
    Column("submodule", _TEXT, "", "named part of the pipeline"),
    Column("branch", _TEXT, "", "branch of guidance that the call computes", True),
    Column("step", _INT32, "", "denoising step; -1 outside", kind="step"),
)

TIMED_CALLS: tuple[Column, ...] = (
    *_PLACE,
    Column("device", _TEXT, "", "where it executes"),
    Column("start_ns", _INT64, "ns", "when its tile begins, from the begin of the pipeline call"),
    Column("elapsed_ns", _INT64, "ns", "how long its tile is"),
)

STRETCHES: tuple[Column, ...] = (
    Column("call", _INT64, "", "row of the call that the work is of"),
    Column("device", _TEXT, "", "what executed it"),
    Column("role", _TEXT, "", "what most of it is for"),
    Column("start_ns", _INT64, "ns", "when it begins, from the begin of the pipeline call"),
    Column("duration_ns", _INT64, "ns", "how long it is, short gaps included"),
)

PAIRED_CALLS: tuple[Column, ...] = (
    *_PLACE,
    Column("base_call", _INT64, "", "row of the baseline's timeline; null: only in new", True),
    Column("new_call", _INT64, "", "row of the new run's timeline; null: only in base", True),
    Column("base_start_ns", _INT64, "ns", "when it begins in the baseline", True),
    Column("base_ns", _INT64, "ns", "how long it takes in the baseline", True),
    Column("new_start_ns", _INT64, "ns", "when it begins in the new run", True),
    Column("new_ns", _INT64, "ns", "how long it takes in the new run", True),
    Column("difference_ns", _INT64, "ns", "new_ns - base_ns", True),
    Column("at_ns", _INT64, "ns", "where both begin when calls stand below each other"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "runs": RUNS,
    "metrics": METRICS,
    "shapes": SHAPES,
    "kernels": KERNELS,
    "nodes": NODES,
    "waterfall": WATERFALL,
    "tree": TREE,
}
