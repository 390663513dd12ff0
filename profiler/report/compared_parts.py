"""How two sides differ, as parts of a report whose tables hold numbers: for a page, which sorts
them.

A comparison in a terminal has a unit for each value (`comparing`); both show the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.comparison.aligned import aligned_calls
from profiler.analysis.comparison.codes import Side, TreeNode
from profiler.analysis.comparison.columns import (
    KERNELS,
    METRICS,
    NODES,
    PAIRED_CALLS,
    RUNS,
    SHAPES,
    TREE,
)
from profiler.analysis.comparison.compare import Comparison
from profiler.bootstrap import CONFIDENCE
from profiler.report.changed_rows import with_blocks_together
from profiler.report.model import Part, TableView
from profiler.report.sentences.worded import label
from profiler.report.views import inwards, renamed, table
from profiler.run.columns import MINOR, Column
from profiler.text import Said, said

__all__ = [
    "calls_part",
    "metric_parts",
    "operation_parts",
    "rule",
    "runs_part",
    "times_table",
    "tree_part",
]

_Columns = tuple[str | Column, ...]
_ROWS = 200  # of a table


def _times_of(declared: tuple[Column, ...]) -> tuple[Column, ...]:
    """Time on both sides, the difference, the change."""
    return (
        renamed(declared, "base_ns", label="baseline"),
        renamed(declared, "new_ns", label="new"),
        renamed(declared, "difference_ns", label="difference"),
        renamed(declared, "change", kind="change"),
    )


_ONLY = tuple(side.alone.value for side in Side)
_TIMES = (
    renamed(METRICS, "base_ns", label="baseline"),
    renamed(METRICS, "new_ns", label="new"),
    renamed(METRICS, "difference_ns", importance=MINOR),
    renamed(METRICS, "change", kind="change"),
    renamed(METRICS, "low", label="from", kind="change", importance=MINOR),
    renamed(METRICS, "high", label="to", kind="change", importance=MINOR),
    "verdict",
)
_WHOLE = (
    renamed(METRICS, "metric", label="part", kind="layer"),
    *_TIMES,
    renamed(METRICS, "calls", importance=MINOR),
)
_STEPS = (renamed(METRICS, "step", kind="step"), *_TIMES)
_ROLES = ("submodule", "role", *_TIMES)
_MODULES = (
    renamed(METRICS, "module", kind="layer"),
    "submodule",
    "role",
    *_TIMES,
)
_RUNS = (
    "side",
    renamed(RUNS, "run_id", label="run"),
    "pipeline",
    renamed(RUNS, "devices", kind="list"),
    renamed(RUNS, "pipelines", label="pipeline calls"),
    "steps",
    "calls",
    renamed(RUNS, "traced_calls", label="traced"),
)
_RATES = (
    renamed(SHAPES, "base_teraflops_per_s", label="rate, baseline", kind="flop_rate"),
    renamed(SHAPES, "new_teraflops_per_s", label="rate, new", kind="flop_rate"),
)
_SHAPE_KERNELS: _Columns = (
    renamed(SHAPES, "base_kernel", label="kernel, baseline", kind="text"),
    renamed(SHAPES, "new_kernel", label="kernel, new", kind="text"),
)
_EXECUTIONS = (
    renamed(SHAPES, "base_executions", label="executions, baseline", kind="number"),
    renamed(SHAPES, "new_executions", label="executions, new", kind="number", importance=MINOR),
)
_SHAPES: _Columns = (
    renamed(SHAPES, "what", kind="layer"),
    *_times_of(SHAPES),
    *_RATES,
    *_SHAPE_KERNELS,
    *_EXECUTIONS,
    "submodule",
)
_KERNELS: _Columns = (
    renamed(KERNELS, "what", kind="layer"),
    *_times_of(KERNELS),
    *_EXECUTIONS,
    "submodule",
)
_NODES: _Columns = ("what", *_times_of(NODES), "base_count", "new_count", "submodule")
_LABEL = Column("label", pl.String(), "", "submodule, module or role", label="node", kind="layer")
_TREE: _Columns = (_LABEL, *_times_of(TREE), "role", "kind")
_CALLS = (
    "submodule",
    "stage",
    "branch",
    "step",
    renamed(PAIRED_CALLS, "base_ns", label="baseline"),
    renamed(PAIRED_CALLS, "new_ns", label="new"),
    renamed(PAIRED_CALLS, "difference_ns", label="difference"),
)


def times_table(comparison: Comparison) -> TableView | None:
    """The whole, stages, steps, submodules, with the interval that noise leaves each change."""
    metrics, single = comparison.metrics, pl.col("step").is_not_null()
    work = pl.col("level").is_in(("role", "modules", "module")).fill_null(value=False)
    return table(
        "comparison", "parts", _WHOLE, METRICS, metrics.filter(~single & ~work), search=True
    )


def rule() -> Said:
    """When a change is called one."""
    return said(
        "A change is called slower or faster where its {confidence} interval excludes zero.",
        confidence=f"{CONFIDENCE:.0%}",
    )


def metric_parts(comparison: Comparison, shown: int) -> Iterator[Part]:
    """Single steps in their order, roles and modules by difference."""
    metrics = comparison.metrics
    named = pl.col("module").is_not_null() & (pl.col("module") != "")
    modules = with_blocks_together(metrics.filter(named), pl.col("verdict").is_in(_ONLY))
    steps = metrics.filter(pl.col("step").is_not_null())
    roles = metrics.filter(pl.col("level") == "role")
    for title, name, rows, columns in (
        (said("Steps"), said("steps"), steps, _STEPS),
        (said("Roles, by difference"), said("roles"), roles, _ROLES),
        (said("Operators by module, by difference"), said("modules"), modules, _MODULES),
    ):
        ordered = rows
        if name != "steps":
            size = pl.col("difference_ns").abs().fill_null(-1)
            ordered = rows.sort(size, descending=True, maintain_order=True)
        made = table(
            f"comparison_{name}",
            name,
            columns,
            METRICS,
            ordered,
            shown=shown,
            held=_ROWS,
            search=len(ordered) > 10,
        )
        yield Part(title, table=made)


def runs_part(comparison: Comparison) -> Part:
    """The runs of both sides."""
    runs = table("comparison_runs", "runs", _RUNS, RUNS, comparison.runs, shown=20)
    return Part(said("Runs"), table=runs)


def tree_part(comparison: Comparison, shown: int) -> Part:
    """Submodules, modules and roles, each with all that lies in it."""
    tree = comparison.tree
    if tree.filter(pl.col("depth") > 0).is_empty():
        return Part()
    idle = pl.col("kind") == TreeNode.IDLE.value
    named = tree.with_columns(
        label=pl.when(idle).then(pl.lit(str(label(TreeNode.IDLE)))).otherwise("name")
    )
    view = table(
        "comparison_tree",
        "module tree",
        _TREE,
        TREE,
        named.with_columns(name=pl.lit(None, pl.String)),
        shown=shown,
        search=True,
        nested=True,
        paper=named.with_columns(label=inwards(pl.col("depth")) + pl.col("label")),
    )
    return Part(said("Module tree: where the difference lies"), table=view)


def operation_parts(comparison: Comparison, shown: int) -> Iterator[Part]:
    """Shapes with rates and kernels of both sides, kernels, ONNX nodes: those that differ most
    first."""
    shapes = table(
        "comparison_shapes",
        "shapes",
        _SHAPES,
        SHAPES,
        comparison.shapes,
        shown=shown,
        held=_ROWS,
        search=True,
    )
    yield Part(said("Shapes, by difference"), table=shapes)
    kernels = table(
        "comparison_kernels",
        "kernels",
        _KERNELS,
        KERNELS,
        comparison.kernels,
        shown=shown,
        held=_ROWS,
        search=True,
    )
    yield Part(said("Kernels, by difference"), table=kernels)
    nodes = table(
        "comparison_nodes",
        "nodes",
        _NODES,
        NODES,
        comparison.nodes,
        shown=shown,
        held=_ROWS,
        search=True,
    )
    yield Part(said("ONNX nodes, by difference"), table=nodes)


def calls_part(comparison: Comparison, shown: int) -> Part:
    """The calls of both timelines, those that differ most first; nothing without timelines."""
    if comparison.timelines is None:
        return Part()
    pairs = aligned_calls(*comparison.timelines)
    size = pl.col("difference_ns").abs().fill_null(-1)
    view = table(
        "comparison_calls",
        "calls",
        _CALLS,
        PAIRED_CALLS,
        pairs.sort(size, descending=True, maintain_order=True),
        shown=shown,
        held=_ROWS,
    )
    return Part(said("Calls, by difference"), table=view)
