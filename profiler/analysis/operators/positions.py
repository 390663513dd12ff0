"""Commands by their position in a call: the same work of every call of a submodule, added up.

A trace of a graph may name the modules of its nodes alone. But calls of one graph run the same
commands in the same order, so the n-th command of a place and op type is the same node in each.
"""

from __future__ import annotations

import polars as pl

from profiler.run.load import place_of
from profiler.run.run import Run

__all__ = ["POSITION_KEYS", "command_positions"]

POSITION_KEYS = ("layer", "op_type", "of", "position")


def command_positions(run: Run, submodule: str) -> pl.DataFrame:
    """The device commands of the traced calls of a submodule, one row a position.

    Columns: `layer` (Utf8, what graphs call so: the place), `op_type` (Utf8, "" where nobody says
    one); `position`, from 0, among the `of` commands of that layer and op type in a call, in order
    of their start (Int64); `calls` that have it; `duration_ns`, `bytes_read` and `bytes_written`
    summed over these calls (Int64, null where unknown); `role` (Utf8, null where unknown). In order
    of their first start in a call.
    """
    calls = run.calls.filter(
        (pl.col("submodule").cast(pl.String) == submodule) & pl.col("ops_traced")
    )
    keys = ["call", "layer", "op_type"]
    commands = (
        run.commands.filter(
            pl.col("call").is_in(calls["call"].implode()) & (pl.col("category") != "host")
        )
        .select(
            "call",
            place_of(pl.col("layer").cast(pl.String), pl.col("module").cast(pl.String)).alias(
                "layer"
            ),
            pl.col("role").cast(pl.String),
            pl.col("op_type").cast(pl.String).fill_null(""),
            "start_ns",
            pl.col("duration_ns").clip(lower_bound=0),
            "bytes_read",
            "bytes_written",
        )
        .sort("call", "start_ns", maintain_order=True)
        .with_columns(
            of=pl.len().over(keys).cast(pl.Int64),
            position=pl.int_range(pl.len(), dtype=pl.Int64).over(keys),
        )
    )
    return commands.group_by(POSITION_KEYS, maintain_order=True).agg(
        pl.col("call").n_unique().cast(pl.Int64).alias("calls"),
        pl.col("duration_ns").sum(),
        *(_sum_if_known(name) for name in ("bytes_read", "bytes_written")),
        pl.col("role").drop_nulls().first(),
    )


def _sum_if_known(name: str) -> pl.Expr:
    """The sum of a column, null where one of its values is."""
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)
