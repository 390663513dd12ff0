"""Every column of the tables of a `Comparison`; `docs/diff.md` documents the same."""

from __future__ import annotations

from profiler.analysis.comparison.codes import Side, Step, TreeNode, Verdict
from profiler.bootstrap import Resampled
from profiler.run.columns import BOOL, FLOAT64, INT32, INT64, STRING, Column

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


RUNS: tuple[Column, ...] = (
    Column("side", STRING, "", "base or new", codes=Side),
    Column("run_id", STRING, "", "name of the run"),
    Column("pipeline", STRING, "", "class of the pipeline, empty where unknown"),
    Column("producer", STRING, "", "what recorded the run"),
    Column("devices", STRING, "", "devices that its calls are placed on, joined with commas"),
    Column("pipelines", INT64, "", "pipeline calls"),
    Column("steps", INT64, "", "denoising steps, over all pipeline calls"),
    Column("calls", INT64, "", "submodule calls"),
    Column("traced_calls", INT64, "", "submodule calls whose commands were recorded"),
)

METRICS: tuple[Column, ...] = (
    Column("metric", STRING, "", "name of what is compared, as `--metric` takes it"),
    Column("level", STRING, "", ", ".join(LEVELS)),
    Column("stage", STRING, "", "phase of the pipeline", True),
    Column("submodule", STRING, "", "named part of the pipeline", True),
    Column("branch", STRING, "", "for whom the calls work", True),
    Column("step", INT32, "", "denoising step of a single step's metric", True),
    Column("role", STRING, "", "what the commands are for in a diffusion model", True),
    Column("module", STRING, "", "module path, the nearest that both sides have", True),
    Column("calls", STRING, "", "steady, first, or all where one side lacks either"),
    Column("base_ns", INT64, "ns", "median over the baseline; null: only in new", True),
    Column("new_ns", INT64, "ns", "median over the new runs; null: only in base", True),
    Column("difference_ns", INT64, "ns", "new_ns - base_ns", True),
    Column("change", FLOAT64, "ratio", "difference_ns / base_ns", True),
    Column(
        "low", FLOAT64, "ratio", "lower end of the change's interval; null: noise not known", True
    ),
    Column("high", FLOAT64, "ratio", "upper end of it", True),
    Column(
        "resampled",
        STRING,
        "",
        ", ".join(Resampled) + ": what the interval is made from",
        True,
        codes=Resampled,
    ),
    Column("base_count", INT64, "", "how many of these the baseline has"),
    Column("new_count", INT64, "", "how many of these the new runs have"),
    Column("corrected", BOOL, "", "whether times are corrected to untraced calls"),
    Column("verdict", STRING, "", ", ".join(Verdict), codes=Verdict),
)

_DIFFERENCE: tuple[Column, ...] = (
    Column("base_ns", INT64, "ns", "mean over the baseline's samples; null: only in new", True),
    Column("new_ns", INT64, "ns", "mean over the new runs' samples; null: only in base", True),
    Column("difference_ns", INT64, "ns", "new_ns - base_ns", True),
    Column("change", FLOAT64, "ratio", "difference_ns / base_ns", True),
)
_EXECUTED: tuple[Column, ...] = (
    Column("base_executions", FLOAT64, "", "how often the baseline runs it in a sample", True),
    Column("new_executions", FLOAT64, "", "how often the new runs do", True),
)

SHAPES: tuple[Column, ...] = (
    Column("submodule", STRING, "", "named part of the pipeline"),
    Column(
        "what",
        STRING,
        "",
        "operation and its dims; its type where both sides have the same",
        label="shape",
    ),
    *_DIFFERENCE,
    *_EXECUTED,
    Column(
        "base_teraflops_per_s",
        FLOAT64,
        "TFLOP/s",
        "FLOPs / time in the baseline, where known",
        True,
    ),
    Column("new_teraflops_per_s", FLOAT64, "TFLOP/s", "FLOPs / time in the new runs", True),
    Column("base_kernel", STRING, "", "the kernel with most of the baseline's time", True),
    Column("new_kernel", STRING, "", "the kernel with most of the new runs' time", True),
    Column("base_kernels", INT64, "", "different kernels that it ran in the baseline", True),
    Column("new_kernels", INT64, "", "different kernels that it ran in the new runs", True),
)

KERNELS: tuple[Column, ...] = (
    Column("submodule", STRING, "", "named part of the pipeline"),
    Column("what", STRING, "", "the kernel, without its parameters", label="kernel"),
    *_DIFFERENCE,
    *_EXECUTED,
)

NODES: tuple[Column, ...] = (
    Column("submodule", STRING, "", "named part of the pipeline"),
    Column(
        "what",
        STRING,
        "",
        "the layer with most of the time, as the side calls it that names more nodes",
        label="nodes",
        kind="layer",
    ),
    Column("base_layers", STRING, "", "the baseline's layers that run these nodes", True),
    Column("new_layers", STRING, "", "the new runs' layers that run them", True),
    Column("base_count", INT64, "", "how many layers these are in the baseline"),
    Column("new_count", INT64, "", "how many these are in the new runs"),
    *_DIFFERENCE,
)

WATERFALL: tuple[Column, ...] = (
    Column("level", STRING, "", ", ".join(Step) + ": what a line is of", codes=Step),
    Column("stage", STRING, "", "phase of the pipeline", True),
    Column("submodule", STRING, "", "named part of the pipeline", True),
    Column("role", STRING, "", "what the commands are for, or do", True),
    Column("base_ns", INT64, "ns", "mean over the baseline; 0 where it has none"),
    Column("new_ns", INT64, "ns", "mean over the new runs"),
    Column("difference_ns", INT64, "ns", "new_ns - base_ns"),
)

TREE: tuple[Column, ...] = (
    Column("depth", INT64, "", "how deep it lies: 0 for a submodule"),
    Column("kind", STRING, "", ", ".join(TreeNode) + ": what a node is", codes=TreeNode),
    Column("name", STRING, "", "its name in the node that it lies in", kind="layer"),
    Column("submodule", STRING, "", "named part of the pipeline"),
    Column("module", STRING, "", "dotted path in the submodule; equal blocks are one, `*`", True),
    Column("role", STRING, "", "what its commands are for, where they have one role", True),
    Column("base_ns", INT64, "ns", "mean over the baseline, with all that lies in it"),
    Column("new_ns", INT64, "ns", "mean over the new runs"),
    Column("difference_ns", INT64, "ns", "new_ns - base_ns"),
    Column("change", FLOAT64, "ratio", "difference_ns / base_ns", True),
)

_PLACE: tuple[Column, ...] = (
    Column("stage", STRING, "", "phase of the pipeline"),
    Column("submodule", STRING, "", "named part of the pipeline"),
    Column("branch", STRING, "", "branch of guidance that the call computes", True),
    Column("step", INT32, "", "denoising step; -1 outside", kind="step"),
)

TIMED_CALLS: tuple[Column, ...] = (
    *_PLACE,
    Column("device", STRING, "", "where it executes"),
    Column("start_ns", INT64, "ns", "when its tile begins, from the begin of the pipeline call"),
    Column("elapsed_ns", INT64, "ns", "how long its tile is"),
)

STRETCHES: tuple[Column, ...] = (
    Column("call", INT64, "", "row of the call that the work is of"),
    Column("device", STRING, "", "what executed it"),
    Column("role", STRING, "", "what most of it is for"),
    Column("start_ns", INT64, "ns", "when it begins, from the begin of the pipeline call"),
    Column("duration_ns", INT64, "ns", "how long it is, short gaps included"),
)

PAIRED_CALLS: tuple[Column, ...] = (
    *_PLACE,
    Column("base_call", INT64, "", "row of the baseline's timeline; null: only in new", True),
    Column("new_call", INT64, "", "row of the new run's timeline; null: only in base", True),
    Column("base_start_ns", INT64, "ns", "when it begins in the baseline", True),
    Column("base_ns", INT64, "ns", "how long it takes in the baseline", True),
    Column("new_start_ns", INT64, "ns", "when it begins in the new run", True),
    Column("new_ns", INT64, "ns", "how long it takes in the new run", True),
    Column("difference_ns", INT64, "ns", "new_ns - base_ns", True),
    Column("at_ns", INT64, "ns", "where both begin when calls stand below each other"),
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
