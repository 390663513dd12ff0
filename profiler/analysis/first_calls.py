"""Which calls are not steady: the first of their submodule, which load weights, compile and warm
caches, and later ones for which something was compiled. Tables keep them apart from the others."""

from __future__ import annotations

import polars as pl

from profiler.run.run import Run

__all__ = ["first_calls", "unsteady_calls"]


def first_calls(calls: pl.DataFrame) -> pl.Series:
    """Numbers of the calls that are the first of their submodule and rank: which began first,
    and those that began before it had ended (in other threads), beside its initialization; likewise
    the first of either kind where some are traced and others not, which may run on another session.
    """
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    first_end = end.sort_by("start_ns", "call").first().over("rank", "submodule")
    began_first = (pl.col("start_ns").rank("ordinal").over("rank", "submodule", "ops_traced")) == 1
    return calls.sort("call").filter(began_first | (pl.col("start_ns") < first_end))["call"]


def unsteady_calls(run: Run) -> pl.Series:
    """Numbers of the first calls, and of the calls in which something was compiled."""
    first = first_calls(run.calls)
    compiled = pl.Series([one.call for one in run.info.compilations], dtype=first.dtype)
    here = compiled.filter(compiled.is_in(run.calls["call"].implode()))
    return pl.concat([first, here]).unique().sort()
