"""Which row of the table a command belongs to, and the times of each row's kernels.

A row is a submodule, an op type and the shapes that the operator took; of commands whose operator
nobody knows, it is the kernel. Which layer it is in makes no difference.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.work.shapes import parse_shapes, whole_text

__all__ = ["Rows", "executions", "find_rows"]

_WAITING = ("host", "sync")
_MOVES = ("dma", "copy")
_COLLECTIVE = "collective"
_CUT = "…"  # where the name of a kernel was too long


class Rows(Struct, frozen=True, eq=False):
    """`cells` has one line a kind, device and kernel of what devices computed: kind, row, device,
    kernel, commands, total_ns. `names` has one line a row: row, submodule, timeline, op_type,
    shapes (of the whole operator), kind (one of them), collective. `busy` is the time of all work
    of calls by device and timeline (`analysis.timelines`): device, timeline, busy_ns.
    """

    cells: pl.DataFrame
    names: pl.DataFrame
    busy: pl.DataFrame


def find_rows(kinds: Kinds, of_kinds: pl.DataFrame, timelines: pl.DataFrame) -> Rows:
    """The rows of commands whose kinds are `kinds`, and `of_kinds` the cells of these
    (`kind_cells`); `timelines` has the timeline of each submodule."""
    worked = np.isin(kinds.table["category"], _WAITING, invert=True)
    texts = [None if text is None else whole_text(text) for text in kinds.table["shapes"]]
    table = kinds.table.select(
        "kind",
        "submodule",
        pl.col("op_type").fill_null(pl.col("layer")),
        pl.Series("shapes", texts, dtype=pl.String),
        moves=pl.col("category").cast(pl.String).is_in(_MOVES),
        collective=pl.col("category").cast(pl.String) == _COLLECTIVE,
    ).join(timelines, on="submodule", how="left", maintain_order="left")
    key_of_cell = ("kind", "device", "kernel")
    cells = (
        of_kinds.filter(pl.Series(worked[of_kinds["kind"].to_numpy()]))
        .group_by(key_of_cell)
        .agg(pl.col("commands", "total_ns").sum())
        .sort(key_of_cell, nulls_last=True)
    )
    cells = cells.join(table, on="kind", maintain_order="left")
    of_calls = cells.filter(pl.col("timeline").is_not_null())
    busy = of_calls.group_by("device", "timeline").agg(busy_ns=pl.col("total_ns").sum())
    key = ("submodule", "timeline", "op_type", "shapes", "collective", "_own")
    own = pl.when(_is_kernels_name()).then("kernel")
    cells = cells.filter(~pl.col("moves")).with_columns(_own=own)
    names = (
        cells.group_by(key, maintain_order=True)
        .agg(pl.col("kind").first())
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
    )
    cells = cells.join(names.drop("kind"), on=key, nulls_equal=True, maintain_order="left")
    return Rows(
        cells.select("kind", "row", "device", "kernel", "commands", "total_ns"),
        names.drop("_own"),
        busy,
    )


def _is_kernels_name() -> pl.Expr:
    """Whether an op type is the name of the kernel, for nobody knows its operator."""
    bare = pl.col("kernel").str.replace_all("(anonymous namespace)::", "", literal=True)
    begins = bare.str.strip_prefix("void ").str.starts_with(
        pl.col("op_type").str.strip_suffix(_CUT)
    )
    return pl.col("shapes").is_null() & begins.fill_null(value=False)


def executions(cells: pl.DataFrame, kinds: Kinds) -> pl.DataFrame:
    """How often each row ran on each device: row, device, executions. Of an operator that launched
    several kernels, all of them are one execution."""
    texts = kinds.table["shapes"]
    known = {text: parse_shapes(text) for text in texts.unique().to_list()}
    shapes = [known[text] for text in texts.to_list()]
    parts = pl.DataFrame(
        {
            "kind": kinds.table["kind"],
            "part": [one.part if one else 1 for one in shapes],
            "parts": [one.parts if one else 1 for one in shapes],
        }
    )
    return (
        cells.join(parts, on="kind")
        .group_by("row", "device", "parts", "part")
        .agg(pl.col("commands").sum())
        .group_by("row", "device", "parts")
        .agg(pl.col("commands").max())
        .group_by("row", "device")
        .agg(executions=pl.col("commands").sum())
    )
