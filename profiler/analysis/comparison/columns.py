"""Every column of the tables of a `Comparison`; `docs/diff.md` documents the same."""

from __future__ import annotations

import polars as pl

from profiler.analysis.comparison.codes import Resampled, Side, Step, Verdict
from profiler.table.columns import Column

__all__ = ["KERNELS", "LEVELS", "METRICS", "NODES", "RUNS", "SHAPES", "TABLES", "WATERFALL"]

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

TABLES: dict[str, tuple[Column, ...]] = {
    "runs": RUNS,
    "metrics": METRICS,
    "shapes": SHAPES,
    "kernels": KERNELS,
    "nodes": NODES,
    "waterfall": WATERFALL,
}
