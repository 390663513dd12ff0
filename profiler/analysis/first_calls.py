"""Which calls are the first of their submodule: they load weights, compile, warm caches. Tables
keep them apart from the steady ones."""

from __future__ import annotations

import polars as pl

__all__ = ["first_calls"]


def first_calls(calls: pl.DataFrame) -> pl.Series:
    """Numbers of the calls that are the first of their submodule: the one that began first, and
    those that began before it had ended (in other threads), beside its initialization."""
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    first_end = end.sort_by("start_ns", "call").first().over("submodule")
    began_first = (pl.col("start_ns").rank("ordinal").over("submodule")) == 1
    return calls.sort("call").filter(began_first | (pl.col("start_ns") < first_end))["call"]
