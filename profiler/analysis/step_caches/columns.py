"""The columns of calls under step caches."""

from __future__ import annotations

import polars as pl

from profiler.run.columns import INT32, INT64, STRING, Column

__all__ = ["CACHED_CALLS", "CACHE_USE"]


CACHED_CALLS: tuple[Column, ...] = (
    Column("call", INT32, "", "number of the call"),
    Column("submodule", STRING, "", "submodule of the call"),
    Column("step", INT32, "", "denoising step of the call; -1 outside denoise", kind="step"),
    Column("branch", STRING, "", "branch of guidance that the call computes", True),
    Column("cache", STRING, "", "the cache that was on, by its class in diffusers"),
    Column("blocks", INT32, "", "parts of the submodule that the cache may skip"),
    Column("skipped_blocks", INT32, "", "how many of these it skipped; 0 for a full call"),
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
    Column("elapsed_ns", INT64, "ns", "how long the call took: its tile"),
    Column("skipped", STRING, "", "paths of the parts that were skipped", True, importance=3),
)

CACHE_USE: tuple[Column, ...] = (
    Column("submodule", STRING, "", "submodule of the calls"),
    Column("cache", STRING, "", "the cache that was on, by its class in diffusers"),
    Column("skipped_blocks", INT32, "", "how many parts each of these calls skipped; 0: full"),
    Column("blocks", INT32, "", "parts of the submodule that the cache may skip"),
    Column("calls", INT32, "", "calls that skipped this many"),
    Column("steady_calls", INT32, "", "those of them that are not first calls and did not compile"),
    Column("median_ns", INT64, "ns", "median of the steady calls", True),
    Column("total_ns", INT64, "ns", "all of these calls together"),
)
