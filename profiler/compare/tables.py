"""Tables of a `Comparison`: columns, codes and the module paths that both sides share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from profiler.run.columns import (
    BOOL,
    FLOAT64,
    INT32,
    INT64,
    LAYER,
    NS,
    RATIO,
    STEP,
    STRING,
    TFLOPS,
    Column,
    col,
)
from profiler.text import NoteCode
from profiler.trace.bootstrap import Resampled

# --- Codes of comparisons: closed sets.


class Side(StrEnum):
    """The two sides of a comparison."""

    BASE = "base"
    NEW = "new"

    @property
    def other(self) -> Side:
        """The opposite side."""
        return Side.NEW if self is Side.BASE else Side.BASE

    @property
    def alone(self) -> Verdict:
        """The verdict on a metric that only this side has."""
        return Verdict.ONLY_IN_BASE if self is Side.BASE else Verdict.ONLY_IN_NEW


class Verdict(StrEnum):
    """The result for a metric that both sides have, or that only one side has it."""

    SLOWER = "slower"
    FASTER = "faster"
    WITHIN_NOISE = "within_noise"
    UNCLEAR = "unclear"
    MEASURED_ONCE = "measured_once"
    ONLY_IN_BASE = "only_in_base"
    ONLY_IN_NEW = "only_in_new"


class Level(StrEnum):
    """The level of detail at which two sides are compared, finest first."""

    NODE = "node"
    MODULE = "module"
    SHAPE = "shape"
    ROLE = "role"
    KERNEL = "kernel"
    SORT = "sort"
    SUBMODULE = "submodule"


class Step(StrEnum):
    """The kind of a line in the waterfall from one end-to-end time to the other."""

    END_TO_END = "end_to_end"
    SUBMODULE = "submodule"
    ROLE = "role"
    IDLE = "idle"
    BETWEEN = "between"


class TreeNode(StrEnum):
    """The kind of a node in the tree of differences."""

    SUBMODULE = "submodule"
    MODULE = "module"
    ROLE = "role"
    IDLE = "idle"


class RunTrait(StrEnum):
    """A property that compared runs should have in common."""

    PIPELINE = "pipeline"
    MODEL = "model"
    DEVICES = "devices"
    CPU = "cpu"


class ComparisonNote(NoteCode):
    """A note on what else differs between two sides, or what their intervals do not cover."""

    SAME_RUN = "same_run"
    DAMAGED = "damaged"
    ONE_RUN_EACH = "one_run_each"
    ONE_RUN = "one_run"
    FEW_RUNS = "few_runs"
    CORRECTED = "corrected"
    COST_WITHIN_NOISE = "cost_within_noise"
    TRACED_ON_ONE_SIDE = "traced_on_one_side"
    AS_TRACED = "as_traced"
    ASYNCHRONOUS = "asynchronous"
    OTHER_TRAIT = "other_trait"
    SHAPES_DIFFER = "shapes_differ"
    OTHER_SPEED = "other_speed"
    OTHER_LOADING = "other_loading"
    SETTINGS_DIFFER = "settings_differ"
    VERSIONS_DIFFER = "versions_differ"
    CHANGED_VALUE = "changed_value"
    COMPARED_BY = "compared_by"
    COMPARED_BY_FINEST = "compared_by_finest"
    NOT_IN = "not_in"
    NEITHER = "neither"
    NONE_IN_COMMON = "none_in_common"
    FEW_IN_COMMON = "few_in_common"
    PAIRED = "paired"
    IN_ORDER = "in_order"
    TOGETHER = "together"


class DifferenceReason(NoteCode):
    """A reason of the end-to-end difference: which work or waiting changed, and how."""

    OTHER_KERNEL = "other_kernel"
    SAME_KERNEL = "same_kernel"
    UNNAMED_KERNEL = "unnamed_kernel"
    MORE_EXECUTIONS = "more_executions"
    FEWER_EXECUTIONS = "fewer_executions"
    RATES = "rates"
    TOKENS = "tokens"
    KERNEL = "kernel"
    MORE_GAPS = "more_gaps"
    FEWER_GAPS = "fewer_gaps"
    MORE_BETWEEN = "more_between"
    LESS_BETWEEN = "less_between"


# --- Every column of the tables of a `Comparison`; `docs/diff.md` documents the same.


LEVELS = ("end_to_end", "stage", "step", "submodule", "branch", "busy", "role", "modules", "module")
"""From the whole to the finest. `modules` are the equal modules of repeated blocks taken together,
their numbers replaced by `*`."""


RUNS: tuple[Column, ...] = (
    col("side", STRING, "base or new", codes=Side),
    col("run_id", STRING, "name of the run"),
    col("pipeline", STRING, "class of the pipeline, empty if unknown"),
    col("producer", STRING, "what recorded the run"),
    col("devices", STRING, "devices that its calls are placed on, joined with commas"),
    col("pipelines", INT64, "pipeline calls"),
    col("steps", INT64, "denoising steps, over all pipeline calls"),
    col("calls", INT64, "submodule calls"),
    col("traced_calls", INT64, "submodule calls whose commands were recorded"),
)

METRICS: tuple[Column, ...] = (
    col("metric", STRING, "name of what is compared, as `--metric` takes it"),
    col("level", STRING, ", ".join(LEVELS)),
    col("stage", STRING, "phase of the pipeline", True),
    col("submodule", STRING, "named part of the pipeline", True),
    col("branch", STRING, "for whom the calls work", True),
    col("step", INT32, "denoising step of a single step's metric", True),
    col("role", STRING, "what the commands are for in a diffusion model", True),
    col("module", STRING, "module path, the nearest that both sides have", True),
    col("calls", STRING, "steady, first, or all if one side lacks either"),
    col("base_ns", NS, "median over the baseline; null: only in new", True),
    col("new_ns", NS, "median over the new runs; null: only in base", True),
    col("difference_ns", NS, "new_ns - base_ns", True),
    col("change", RATIO, "difference_ns / base_ns", True),
    col("low", RATIO, "lower end of the change's interval; null: noise not known", True),
    col("high", RATIO, "upper end of it", True),
    col(
        "resampled",
        STRING,
        ", ".join(Resampled) + ": what the interval is made from",
        True,
        codes=Resampled,
    ),
    col("base_count", INT64, "how many of these the baseline has"),
    col("new_count", INT64, "how many of these the new runs have"),
    col("corrected", BOOL, "whether times are corrected to untraced calls"),
    col("verdict", STRING, ", ".join(Verdict), codes=Verdict),
)

_DIFFERENCE: tuple[Column, ...] = (
    col("base_ns", NS, "mean over the baseline's samples; null: only in new", True),
    col("new_ns", NS, "mean over the new runs' samples; null: only in base", True),
    col("difference_ns", NS, "new_ns - base_ns", True),
    col("change", RATIO, "difference_ns / base_ns", True),
)
_EXECUTED: tuple[Column, ...] = (
    col("base_executions", FLOAT64, "how often the baseline runs it in a sample", True),
    col("new_executions", FLOAT64, "how often the new runs do", True),
)

SHAPES: tuple[Column, ...] = (
    col("submodule", STRING, "named part of the pipeline"),
    col(
        "what",
        STRING,
        "operation and its dims; its type if both sides have the same",
        label="shape",
    ),
    *_DIFFERENCE,
    *_EXECUTED,
    col("base_teraflops_per_s", TFLOPS, "FLOPs / time in the baseline, if known", True),
    col("new_teraflops_per_s", TFLOPS, "FLOPs / time in the new runs", True),
    col("base_kernel", STRING, "the kernel with most of the baseline's time", True),
    col("new_kernel", STRING, "the kernel with most of the new runs' time", True),
    col("base_kernels", INT64, "different kernels that it ran in the baseline", True),
    col("new_kernels", INT64, "different kernels that it ran in the new runs", True),
)

KERNELS: tuple[Column, ...] = (
    col("submodule", STRING, "named part of the pipeline"),
    col("what", STRING, "the kernel, without its parameters", label="kernel"),
    *_DIFFERENCE,
    *_EXECUTED,
)

NODES: tuple[Column, ...] = (
    col("submodule", STRING, "named part of the pipeline"),
    col(
        "what",
        LAYER,
        "the layer with most of the time, as the side calls it that names more nodes",
        label="nodes",
    ),
    col("base_layers", STRING, "the baseline's layers that run these nodes", True),
    col("new_layers", STRING, "the new runs' layers that run them", True),
    col("base_count", INT64, "how many layers these are in the baseline"),
    col("new_count", INT64, "how many these are in the new runs"),
    *_DIFFERENCE,
)

WATERFALL: tuple[Column, ...] = (
    col("level", STRING, ", ".join(Step) + ": what a line is of", codes=Step),
    col("stage", STRING, "phase of the pipeline", True),
    col("submodule", STRING, "named part of the pipeline", True),
    col("role", STRING, "what the commands are for, or do", True),
    col("base_ns", NS, "mean over the baseline; 0 if it has none"),
    col("new_ns", NS, "mean over the new runs"),
    col("difference_ns", NS, "new_ns - base_ns"),
)

TREE: tuple[Column, ...] = (
    col("depth", INT64, "how deep it lies: 0 for a submodule"),
    col("kind", STRING, ", ".join(TreeNode) + ": what a node is", codes=TreeNode),
    col("name", LAYER, "its name in the node that it lies in"),
    col("submodule", STRING, "named part of the pipeline"),
    col("module", STRING, "dotted path in the submodule; equal blocks are one, `*`", True),
    col("role", STRING, "what its commands are for, if they have one role", True),
    col("base_ns", NS, "mean over the baseline, with all that lies in it"),
    col("new_ns", NS, "mean over the new runs"),
    col("difference_ns", NS, "new_ns - base_ns"),
    col("change", RATIO, "difference_ns / base_ns", True),
)

_PLACE: tuple[Column, ...] = (
    col("stage", STRING, "phase of the pipeline"),
    col("submodule", STRING, "named part of the pipeline"),
    col("branch", STRING, "branch of guidance that the call computes", True),
    col("step", STEP, "denoising step; -1 outside"),
)

TIMED_CALLS: tuple[Column, ...] = (
    *_PLACE,
    col("device", STRING, "where it executes"),
    col("start_ns", NS, "when it starts, from the start of the pipeline call"),
    col("elapsed_ns", NS, "how long it takes"),
)

STRETCHES: tuple[Column, ...] = (
    col("call", INT64, "row of the call that the work is of"),
    col("device", STRING, "what executed it"),
    col("role", STRING, "what most of it is for"),
    col("start_ns", NS, "when it starts, from the start of the pipeline call"),
    col("duration_ns", NS, "how long it is, short gaps included"),
)

PAIRED_CALLS: tuple[Column, ...] = (
    *_PLACE,
    col("base_call", INT64, "row of the baseline's timeline; null: only in new", True),
    col("new_call", INT64, "row of the new run's timeline; null: only in base", True),
    col("base_start_ns", NS, "when it starts in the baseline", True),
    col("base_ns", NS, "how long it takes in the baseline", True),
    col("new_start_ns", NS, "when it starts in the new run", True),
    col("new_ns", NS, "how long it takes in the new run", True),
    col("difference_ns", NS, "new_ns - base_ns", True),
    col("at_ns", NS, "where both start when calls stand below each other"),
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


# --- Module paths of two sides: matched at the nearest module that both have.


REST = "(rest)"  # what lies in no module that both sides have
_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9]+(?![0-9A-Za-z])")
_NOT_CALLED = frozenset(("ModuleList", "ModuleDict", "ParameterList", "ParameterDict"))


def class_paths(modules: Mapping[str, str]) -> dict[str, str]:
    """Paths of classes, as importers of torch traces write them, by module path.

    `modules` has the class of each module by its path, in the order of `named_modules`. A class
    that a parent has several times is numbered: `T5Stack.T5Block_0.T5LayerFF`. Lists of modules
    are never called and have no part in the path.
    """
    called = {path: name for path, name in modules.items() if path and name not in _NOT_CALLED}
    parents = {
        path: next((above for above in _above(path) if above in called), "") for path in called
    }
    siblings: dict[tuple[str, str], list[str]] = {}
    for path, name in called.items():
        siblings.setdefault((parents[path], name), []).append(path)
    labels: dict[str, str] = {}
    for (_, name), paths in siblings.items():
        several = len(paths) > 1
        labels |= {path: f"{name}_{i}" if several else name for i, path in enumerate(paths)}
    found = {"": ""}
    for path in sorted(called, key=lambda path: path.count(".")):
        above = found[parents[path]]
        found[path] = f"{above}.{labels[path]}" if above else labels[path]
    return found


def nearest_common(base: Iterable[str], new: Iterable[str]) -> dict[str, str]:
    """Map each path to the deepest module on it (itself included) that is on a path of both sides.
    "" is on every path."""
    sides = [set(base), set(new)]
    known = [{part for path in paths for part in (path, *_above(path))} for paths in sides]
    common = (known[0] & known[1]) | {""}
    return {
        path: next(part for part in (path, *_above(path)) if part in common)
        for paths in sides
        for path in paths
    }


def pattern(path: str) -> str:
    """Replace every number that stands alone in `path` by `*`; `conv1` stays."""
    return _NUMBER.sub("*", path)


def _above(path: str) -> Iterator[str]:
    """The paths of the modules around a path, from the inside out, "" last."""
    while path:
        path = path.rpartition(".")[0]
        yield path
