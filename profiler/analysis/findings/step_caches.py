"""The rule about step caches: medians of their submodules mix two kinds of calls."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.result import Analysis
from profiler.text import Value

__all__ = ["step_cache"]

_FEWEST = 2  # calls of a submodule that can be mixed


def step_cache(analysis: Analysis) -> tuple[Finding, ...]:
    """A submodule ran under a step cache, which skipped blocks in some of its calls, or in none."""
    found = []
    groups = analysis.cache_use.group_by("submodule", "cache", maintain_order=True)
    for (submodule, cache), rows in groups:
        if rows["calls"].sum() < _FEWEST:
            continue
        skipping = rows.filter(pl.col("skipped_blocks") > 0)
        possible = int((rows["calls"] * rows["blocks"]).sum())
        skipped = int((rows["calls"] * rows["skipped_blocks"]).sum())
        evidence: dict[str, Value] = {
            "cache": str(cache),
            "calls": int(rows["calls"].sum()),
            "skipping_calls": int(skipping["calls"].sum()),
            "skipped_blocks_share": skipped / possible if possible else 0.0,
            **_median("full_median_ns", rows.filter(pl.col("skipped_blocks") == 0)),
            **_median("skipping_median_ns", skipping),
        }
        found.append(Finding("step_cache", evidence, Where(submodule=str(submodule))))
    return tuple(found)


def _median(name: str, rows: pl.DataFrame) -> dict[str, Value]:
    """Of the kind of calls with the most steady ones; nothing where there are none."""
    steady = rows.filter(pl.col("steady_calls") > 0).sort("steady_calls", maintain_order=True)
    return {} if steady.is_empty() else {name: int(steady["median_ns"][-1])}
