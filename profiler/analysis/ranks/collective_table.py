"""Collectives by what they are: how often, how long, how fast."""

from __future__ import annotations

import polars as pl

from profiler.analysis.ranks.columns import COLLECTIVES
from profiler.grammars.names import CollectiveKind, bus_factor
from profiler.run.columns import schema

__all__ = ["collective_table"]

_KEYS = ("kind", "group", "size", "message_bytes")


def collective_table(
    members: pl.DataFrame, own: pl.DataFrame, arrived: pl.DataFrame
) -> pl.DataFrame:
    """One row a kind, group and size of message (`COLLECTIVES`). `members` are the commands of all
    collectives, `own` those that several ranks recorded, `arrived` when these did."""
    took = pl.col("end_ns") - pl.col("start_ns")
    found = members.group_by(_KEYS, maintain_order=True).agg(
        commands=pl.len(),
        total_ns=took.sum(),
        exposed_ns=pl.col("exposed_ns").sum(),
        median_ns=took.median().round(),
    )
    waits = own.group_by(_KEYS).agg(waited_ns=(pl.col("latest_ns") - pl.col("start_ns")).sum())
    transfers = (
        own.unique("number", keep="first", maintain_order=True)
        .select("number", *_KEYS)
        .join(arrived.select("number", "transfer_ns"), on="number", maintain_order="left")
        .group_by(_KEYS)
        .agg(transfer_ns=pl.col("transfer_ns").median().round())
    )
    for more in (waits, transfers):
        found = found.join(more, on=_KEYS, how="left", maintain_order="left", nulls_equal=True)
    return found.with_columns(bus_rate=_rates(found)).select(
        pl.col(name).cast(dtype) for name, dtype in schema(COLLECTIVES).items()
    )


def _rates(found: pl.DataFrame) -> pl.Series:
    """GB/s over the slowest link, of each row; null where bytes, ranks or time are unknown."""
    columns = (
        found[name] for name in ("kind", "size", "message_bytes", "transfer_ns", "median_ns")
    )
    rates = [
        size_bytes * bus_factor(CollectiveKind(kind), ranks) / (transfer or median)
        if size_bytes is not None and ranks is not None and (transfer or median)
        else None
        for kind, ranks, size_bytes, transfer, median in zip(*columns, strict=True)
    ]
    return pl.Series(rates, dtype=pl.Float64)
