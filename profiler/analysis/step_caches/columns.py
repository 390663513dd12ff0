"""The columns of calls under step caches."""

from __future__ import annotations

import polars as pl

from profiler.table.columns import Column

__all__ = ["CACHED_CALLS", "CACHE_USE"]

_TEXT = pl.String()
_INT32, _INT64 = pl.Int32(), pl.Int64()

CACHED_CALLS: tuple[Column, ...] = (
    Column("call", _INT32, "", "number of the call"),
    Column("submodule", _TEXT, "", "submodule of the call"),
    Column("step", _INT32, "", "denoising step of the call; -1 outside denoise", kind="step"),
    Column("branch", _TEXT, "", "branch of guidance that the call computes", True),
    Column("cache", _TEXT, "", "the cache that was on, by its class in diffusers"),
    Column("blocks", _INT32, "", "parts of the submodule that the cache may skip"),
    Column("skipped_blocks", _INT32, "", "how many of these it skipped; 0 for a full call"),
    Column(
        "without_uncond",
        pl.Boolean(),
        "",
        "whether the unconditional half of the batch was left out (FasterCache)",
        importance=2,
    ),
    Column(
        "residual_ratio",
        pl.Float64(),
        "",
        "change of the first block's residual, which FirstBlockCache compares with its "
        "threshold; null for other caches, and where there was nothing to compare it with",
        True,
    ),
    Column("elapsed_ns", _INT64, "ns", "how long the call took: its tile"),
    Column("skipped", _TEXT, "", "paths of the parts that were skipped", True, importance=3),
)

CACHE_USE: tuple[Column, ...] = (
    Column("submodule", _TEXT, "", "submodule of the calls"),
    Column("cache", _TEXT, "", "the cache that was on, by its class in diffusers"),
    Column("skipped_blocks", _INT32, "", "how many parts each of these calls skipped; 0: full"),
    Column("blocks", _INT32, "", "parts of the submodule that the cache may skip"),
    Column("calls", _INT32, "", "calls that skipped this many"),
    Column(
        "steady_calls", _INT32, "", "those of them that are not first calls and did not compile"
    ),
    Column("median_ns", _INT64, "ns", "median of the steady calls", True),
    Column("total_ns", _INT64, "ns", "all of these calls together"),
)
