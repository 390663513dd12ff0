"""What the time of each submodule and block is for.

Shares are of the total of device commands; host work has no role.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.expressions import ratio
from profiler.analysis.roles.columns import BLOCKS, ROLES
from profiler.analysis.roles.of_kinds import STREAMS
from profiler.run.columns import Column, schema

__all__ = ["block_roles", "block_table", "role_table"]


def role_table(kinds: Kinds, roles: pl.DataFrame, overhead_ratio: pl.DataFrame) -> pl.DataFrame:
    """One row a submodule and role (`columns.ROLES`), by submodule, longest first.

    `roles` has a row a kind (`KIND_ROLE`); `overhead_ratio` the columns `submodule`,
    `overhead_ratio`.
    """
    known = _with_role(kinds, roles)
    table = (
        known.group_by("submodule", "role")
        .agg(pl.col("commands", "total_ns").sum(), *_of_streams())
        .join(overhead_ratio, on="submodule", how="left")
        .with_columns(
            share=ratio(pl.col("total_ns"), pl.col("total_ns").sum().over("submodule")),
            corrected_ns=(pl.col("total_ns") * pl.col("overhead_ratio"))
            .round()
            .cast(pl.Int64, strict=False),  # null where a foreign factor is beyond reason
        )
    )
    for name in ("norm_kind", "role_by"):
        table = table.join(
            _named(known, name), on=["submodule", "role"], how="left", nulls_equal=True
        )
    table = table.with_columns(
        norm_kinds=pl.col("norm_kind").fill_null(""), decided_by=pl.col("role_by").fill_null("")
    ).sort(["submodule", "total_ns", "role"], descending=[False, True, False], nulls_last=True)
    return _declared(table, ROLES)


def block_table(kinds: Kinds, roles: pl.DataFrame) -> pl.DataFrame:
    """One row a block of a submodule (`columns.BLOCKS`), in the order of their names' numbers."""
    norm, modulation = (
        pl.col("total_ns").filter(pl.col("role") == role) for role in ("norm", "modulation")
    )
    table = (
        _with_role(kinds, roles)
        .drop_nulls("block")
        .group_by("submodule", "block")
        .agg(
            pl.col("commands", "total_ns").sum(),
            *_of_streams(),
            norm_ns=norm.sum(),
            modulation_ns=modulation.sum(),
        )
        .with_columns(
            norm_share=ratio(pl.col("norm_ns"), pl.col("total_ns")),
            modulation_share=ratio(pl.col("modulation_ns"), pl.col("total_ns")),
        )
        .sort("submodule", *_block_order(), nulls_last=True)
    )
    return _declared(table, BLOCKS)


def block_roles(kinds: Kinds, roles: pl.DataFrame) -> pl.DataFrame:
    """What the device time of each block is for: columns `submodule` and `block` (text), `role`
    and `total_ns` (int64), one row a role of a block, in the order of the blocks' numbers."""
    return (
        _with_role(kinds, roles)
        .drop_nulls("block")
        .group_by("submodule", "block", "role", maintain_order=True)
        .agg(pl.col("total_ns").sum().cast(pl.Int64))
        .filter(pl.col("total_ns") > 0)
        .with_columns(pl.col("role").cast(pl.String))
        .sort("submodule", *_block_order(), "role", nulls_last=True)
    )


def _block_order() -> tuple[pl.Expr, ...]:
    """Sort keys of blocks: their name without its number, the number."""
    block = pl.col("block")
    number = block.str.extract(r"(\d+)$").cast(pl.Int64, strict=False)
    return block.str.replace(r"\d+$", ""), number, block


def _with_role(kinds: Kinds, roles: pl.DataFrame) -> pl.DataFrame:
    """The kinds that have a role, with it."""
    return kinds.table.join(roles, on="kind").drop_nulls("role")


def _of_streams() -> tuple[pl.Expr, ...]:
    """The time of each stream; null where nothing is known to be of one."""
    known = pl.col("stream").is_not_null().any()
    return tuple(
        pl.when(known)
        .then(pl.col("total_ns").filter(pl.col("stream") == stream).sum())
        .alias(f"{stream}_stream_ns")
        for stream in STREAMS
    )


def _named(known: pl.DataFrame, name: str) -> pl.DataFrame:
    """For each submodule and role the texts in a column, most time first, joined with commas."""
    return (
        known.drop_nulls(name)
        .with_columns(pl.col(name).cast(pl.String))
        .group_by("submodule", "role", name)
        .agg(pl.col("total_ns").sum())
        .sort(["total_ns", name], descending=[True, False])
        .group_by("submodule", "role", maintain_order=True)
        .agg(pl.col(name).str.join(", "))
    )


def _declared(table: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(columns).items())
