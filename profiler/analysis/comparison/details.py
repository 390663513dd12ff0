"""The layers and operations of one run, summed: what two runs are compared by where their producers
name no modules, and what tells why times differ (shapes, kernels, rates)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.roles.operations import Sort, operation_of
from profiler.analysis.shapes.labels import dtype_of, untyped_label
from profiler.analysis.work.formulas import work_of
from profiler.analysis.work.shapes import parse_shapes, whole_text
from profiler.run.intervals import Codes, batches, physical_codes

__all__ = ["LAYERS", "OPERATIONS", "Details", "details_of"]

LAYERS = pl.Schema(
    {
        "submodule": pl.String(),
        "layer": pl.String(),
        "at": pl.Int64(),  # its first command: layers are in order of execution
        "total_ns": pl.Int64(),
    }
)
OPERATIONS = pl.Schema(
    {
        "submodule": pl.String(),
        "label": pl.String(),  # operation and dims, without the type; "" where shapes are unknown
        "dtype": pl.String(),
        "kernel": pl.String(),  # "" where the trace has none
        "executions": pl.Int64(),
        "total_ns": pl.Int64(),
        "flops": pl.Int64(),
        "rated_ns": pl.Int64(),  # of commands whose FLOPs are known
    }
)
_WAITS = ("host", "sync")
_MOVES = ("dma", "copy", "collective")
_PARAMETERS = re.compile(r"(?<=[>\w])\((?:[^()]|\([^()]*\))*\)(?= \[|$)")
_END = re.compile(r"(?: \[clone.*|\.kd)$")


@dataclass(frozen=True, slots=True, eq=False)
class Details:
    """Sums over the steady calls of a run; over all of a submodule that has no steady ones.

    `samples` says how many steps, pipeline calls or single calls of each submodule these are.
    """

    layers: pl.DataFrame
    operations: pl.DataFrame
    samples: Mapping[str, int]


def details_of(calls: pl.DataFrame, commands: pl.DataFrame, kinds: Kinds, rows: Codes) -> Details:
    """The details of `commands`; `rows` are their rows in `calls`, which are `measure.CALL`."""
    traced = pl.col("traced")
    steady = traced & ~pl.col("first")
    alone = ~steady.any().over("submodule")
    counted = calls.select(steady | (traced & alone)).to_series()
    samples = (
        calls.filter(counted)
        .select("submodule", "pipeline", "step")
        .unique()
        .group_by("submodule")
        .len()
        .sort("submodule")
    )
    cells = _cells(kinds, commands, rows, np.append(counted.to_numpy(), False))
    return Details(_layers(cells), _operations(cells), dict(samples.iter_rows()))


def _cells(kinds: Kinds, commands: pl.DataFrame, rows: Codes, counted: Codes) -> pl.DataFrame:
    """Commands, time and first command by kind and kernel, of what devices did in calls that
    count."""
    worked = ~(kinds.table["host"] | kinds.table["category"].is_in(_WAITS)).to_numpy()
    kernel = commands["kernel"]
    highest = kernel.to_physical().max()
    null = highest + 1 if isinstance(highest, int) else 0
    duration = commands["duration_ns"].to_numpy()
    keys, parts = ("kind", "code"), []
    for batch in [*batches(len(commands))] or [slice(0)]:
        kind = kinds.of_command[batch]
        part = pl.DataFrame(
            {
                "kind": kind,
                "code": physical_codes(kernel, batch, null).astype(np.uint32),
                "at": np.arange(batch.start or 0, (batch.start or 0) + len(kind)),
                "total_ns": np.maximum(duration[batch], 0),
            }
        ).filter(pl.Series(worked[kind] & counted[rows[batch]]))
        sums = (pl.len().cast(pl.Int64).alias("commands"), pl.col("total_ns").sum())
        parts.append(part.group_by(keys).agg(*sums, pl.col("at").min()))
    sums = (pl.col("commands", "total_ns").sum(), pl.col("at").min())
    found = pl.concat(parts).group_by(keys).agg(*sums)
    present = kernel.unique().drop_nulls()
    names = pl.DataFrame(
        {"code": present.to_physical().cast(pl.UInt32), "kernel": present.cast(pl.String)}
    )
    table = kinds.table.select("kind", "submodule", "layer", "op_type", "category", "shapes")
    named = found.join(names, on="code", how="left").join(table, on="kind", how="left")
    return named.drop_nulls("submodule").sort("at", "kind", "code")


def _layers(cells: pl.DataFrame) -> pl.DataFrame:
    found = cells.group_by("submodule", "layer", maintain_order=True).agg(
        pl.col("at").min(), pl.col("total_ns").sum()
    )
    return found.select(pl.col(name).cast(dtype) for name, dtype in LAYERS.items())


def _operations(cells: pl.DataFrame) -> pl.DataFrame:
    told = [
        _told(op_type or "", shapes) for op_type, shapes in cells.select("op_type", "shapes").rows()
    ]
    moves = cells["category"].cast(pl.String).is_in(_MOVES)
    kernels = [_short_kernel(name) if name else "" for name in cells["kernel"]]
    names = ("label", "dtype", "flops", "first")
    columns = dict(zip(names, zip(*told, strict=True), strict=True)) if told else {}
    dtypes = (pl.String, pl.String, pl.Int64, pl.Boolean)
    found = cells.with_columns(
        *(
            pl.Series(name, columns.get(name, ()), dtype=dtype)
            for name, dtype in zip(names, dtypes, strict=True)
        ),
        kernel=pl.Series(kernels, dtype=pl.String),
    ).filter(~moves)
    rated = pl.col("flops") > 0
    summed = found.group_by("submodule", "label", "dtype", "kernel", maintain_order=True).agg(
        executions=pl.col("commands").filter("first").sum(),
        total_ns=pl.col("total_ns").sum(),
        flops=(pl.col("flops") * pl.col("commands")).filter("first").sum(),
        rated_ns=pl.col("total_ns").filter(rated).sum(),
    )
    return summed.select(pl.col(name).cast(dtype) for name, dtype in OPERATIONS.items())


@lru_cache(maxsize=1 << 16)
def _told(op_type: str, shapes: str | None) -> tuple[str, str, int, bool]:
    """Label, type, FLOPs of an execution, and whether a command stands for one: of those that
    share an operator, the first."""
    parsed = parse_shapes(shapes)
    if parsed is None:
        return "", "", 0, True
    first = parsed.part <= 1
    whole = parse_shapes(whole_text(shapes)) if shapes else parsed
    work = work_of(op_type, whole)
    label = untyped_label(op_type, whole, work)
    named, rest = op_type.removeprefix("aten::"), label.removeprefix("aten::")
    if rest.startswith(named):  # attention and convolutions have one name whoever runs them
        operation = operation_of(op_type)
        word = "matmul" if operation.sort is Sort.MATMUL else operation.word
        label = word + rest[len(named) :]
    flops = work.flops or 0 if work else 0
    return label, dtype_of(whole, work) or "", flops, first


@lru_cache(maxsize=1 << 16)
def _short_kernel(name: str) -> str:
    """A kernel's name as every recorder writes it: without what it returns, its parameters and how
    it was cloned."""
    bare = _END.sub("", name.removeprefix("void "))
    return _PARAMETERS.sub("", bare)
