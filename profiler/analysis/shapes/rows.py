"""Which row of the table a command belongs to, and the times of each row's kernels.

A row is a submodule, an op type and the shapes that the operator took; of commands whose operator
nobody knows, it is the kernel. Which layer it is in makes no difference.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.work.shapes import parse_shapes, whole_text
from profiler.table.batches import Codes, batches
from profiler.table.command_times import physical_codes

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


def find_rows(
    kinds: Kinds, frame: pl.DataFrame, commands: CommandArrays, timelines: pl.DataFrame
) -> Rows:
    """The rows of the commands `frame`, whose arrays are `commands`; `timelines` has the timeline
    of each submodule."""
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
    cells = _cells(kinds.of_command, frame["kernel"], commands, worked)
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


def _cells(
    kind: Codes, kernel: pl.Series, commands: CommandArrays, worked: np.ndarray
) -> pl.DataFrame:
    """Commands and their time by kind, device and kernel, of kinds that are `worked`."""
    highest = kernel.to_physical().max()
    null = highest + 1 if isinstance(highest, int) else 0
    keys = ("kind", "device", "kernel")
    parts = []
    for rows in [*batches(len(kernel))] or [slice(0)]:
        part = pl.DataFrame(
            {
                "kind": kind[rows],
                "device": commands.device[rows].astype(np.int32),
                "kernel": physical_codes(kernel, rows, null).astype(np.uint32),
                "total_ns": commands.end[rows] - commands.start[rows],
            }
        ).filter(pl.Series(worked[kind[rows]]))
        sums = (pl.len().cast(pl.Int64).alias("commands"), pl.col("total_ns").sum())
        parts.append(part.group_by(keys).agg(*sums))
    found = pl.concat(parts).group_by(keys).agg(pl.col("commands", "total_ns").sum()).sort(keys)
    devices = pl.Series([*commands.devices, None], dtype=pl.String)
    present = kernel.unique().drop_nulls()
    names = pl.DataFrame(
        {
            "kernel": present.to_physical().cast(pl.UInt32),
            "name": present.cast(pl.String),
        }
    )
    return found.join(names, on="kernel", how="left", maintain_order="left").select(
        "kind",
        pl.col("device").map_batches(devices.gather, pl.String),
        pl.col("name").alias("kernel"),
        "commands",
        "total_ns",
    )


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
