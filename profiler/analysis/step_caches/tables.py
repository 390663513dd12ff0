"""The tables of calls under step caches: one by one, and by how much they skipped."""

from __future__ import annotations

import polars as pl

from profiler.analysis.first_calls import unsteady_calls
from profiler.analysis.inputs import Inputs
from profiler.analysis.step_caches.columns import CACHE_USE, CACHED_CALLS
from profiler.analysis.table import Table
from profiler.run.columns import schema

__all__ = ["TABLES"]


def _cached_calls(of: Inputs) -> pl.DataFrame:
    """Those of the calls that are selected."""
    rows = [
        (
            one.call,
            one.cache,
            one.blocks,
            len(one.skipped),
            one.without_uncond,
            one.residual_ratio,
            ", ".join(one.skipped) or None,
        )
        for one in of.run.info.cached_calls
    ]
    names = [c.name for c in CACHED_CALLS]
    told = ("call", "cache", "blocks", "skipped_blocks", "without_uncond", "residual_ratio")
    types = schema(CACHED_CALLS)
    known = pl.DataFrame(
        rows, schema={name: types[name] for name in (*told, "skipped")}, orient="row"
    )
    calls = of.calls.select(
        pl.col("call").cast(pl.Int32),
        pl.col("submodule", "branch").cast(pl.String),
        pl.col("step").cast(pl.Int32),
    )
    calls = calls.join(of.run.tiles.calls.select("call", "elapsed_ns"), on="call")
    return known.join(calls, on="call", maintain_order="left").select(names).cast(types)


def _cache_use(of: Inputs) -> pl.DataFrame:
    """By submodule, cache and number of skipped blocks."""
    steady = ~pl.col("call").is_in(unsteady_calls(of.run).implode())
    keys = ["submodule", "cache", "skipped_blocks", "blocks"]
    found = (
        of.table("cached_calls")
        .group_by(keys)
        .agg(
            pl.len().alias("calls"),
            steady.sum().alias("steady_calls"),
            pl.col("elapsed_ns").filter(steady).median().round().alias("median_ns"),
            pl.col("elapsed_ns").sum().alias("total_ns"),
        )
        .sort(keys)
    )
    return found.select([c.name for c in CACHE_USE]).cast(schema(CACHE_USE))


TABLES = (
    Table(
        name="cached_calls",
        row="one call that was made while a step cache was on",
        section="time",
        columns=CACHED_CALLS,
        make=_cached_calls,
        title="Calls under a step cache",
        about="The rows come from the cache's own state, in order of the calls. The table is "
        "empty where no step cache of diffusers was on, and for imports.",
    ),
    Table(
        name="cache_use",
        row="the calls of a submodule that skipped so many blocks",
        section="time",
        columns=CACHE_USE,
        make=_cache_use,
        reads=("cached_calls",),
        title="Use of step caches",
        about="A median over all calls of a submodule with a step cache would mix calls that "
        "skipped blocks with full ones; this table separates them.",
    ),
)
