"""Step caches: which calls skipped blocks, and how much of each.

Medians of a submodule with a step cache mix full and skipped calls; a finding reports that.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.context import Inputs
from profiler.analysis.finding_text import Rule, Words, number, texts
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding, Where
from profiler.run.columns import BOOL, FLOAT64, INT32, NS, STEP, STRING, Column, col, schema
from profiler.text import Value, filled, joined, said

# --- The columns of calls under step caches.


CACHED_CALLS: tuple[Column, ...] = (
    col("call", INT32, "number of the call"),
    col("submodule", STRING, "submodule of the call"),
    col("step", STEP, "denoising step of the call; -1 outside denoise"),
    col("branch", STRING, "branch of guidance that the call computes", True),
    col("cache", STRING, "the cache that was on, by its class in diffusers"),
    col("blocks", INT32, "parts of the submodule that the cache may skip"),
    col("skipped_blocks", INT32, "how many of these it skipped; 0 for a full call"),
    col(
        "without_uncond",
        BOOL,
        "whether the unconditional half of the batch was left out (FasterCache)",
        importance=2,
    ),
    col(
        "residual_ratio",
        FLOAT64,
        "change of the first block's residual, which FirstBlockCache compares with its "
        "threshold; null for other caches, and if there was nothing to compare it with",
        True,
    ),
    col("elapsed_ns", NS, "how long the call took on its device"),
    col("skipped", STRING, "paths of the parts that were skipped", True, importance=3),
)

CACHE_USE: tuple[Column, ...] = (
    col("submodule", STRING, "submodule of the calls"),
    col("cache", STRING, "the cache that was on, by its class in diffusers"),
    col("skipped_blocks", INT32, "how many parts each of these calls skipped; 0: full"),
    col("blocks", INT32, "parts of the submodule that the cache may skip"),
    col("calls", INT32, "calls that skipped this many"),
    col("steady_calls", INT32, "those of them that are not first calls and did not compile"),
    col("median_ns", NS, "median of the steady calls", True),
    col("total_ns", NS, "all of these calls together"),
)


# --- The tables of calls under step caches: one by one, and by how much they skipped.


_OF_CACHE = ("call", "cache", "blocks", "without_uncond", "residual_ratio")


def _cached_calls(of: Inputs) -> pl.DataFrame:
    """Return the selected calls that ran under a step cache."""
    types = schema(CACHED_CALLS)
    rows = [
        {
            **{name: getattr(one, name) for name in _OF_CACHE},
            "skipped_blocks": len(one.skipped),
            "skipped": ", ".join(one.skipped) or None,
        }
        for one in of.run.info.cached_calls
    ]
    names = (*_OF_CACHE, "skipped_blocks", "skipped")
    known = pl.DataFrame(rows, schema={name: types[name] for name in names})
    calls = of.calls.select(
        pl.col("call").cast(pl.Int32),
        pl.col("submodule", "branch").cast(pl.String),
        pl.col("step").cast(pl.Int32),
    )
    calls = calls.join(of.run.tiles.calls.select("call", "elapsed_ns"), on="call")
    return known.join(calls, on="call", maintain_order="left").select(*types).cast(types)


def _cache_use(of: Inputs) -> pl.DataFrame:
    """Return calls under step caches by submodule, cache and number of skipped blocks."""
    steady = ~pl.col("call").is_in(of.unsteady.implode())
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
        "empty if no step cache of diffusers was on, and for imports.",
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


# --- The rule about step caches: medians of their submodules mix two kinds of calls.


_FEWEST = 2  # calls of a submodule that can be mixed


def step_cache(analysis: Analysis) -> Iterator[Finding]:
    """A submodule ran under a step cache, which skipped blocks in some of its calls, or in none."""
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
        yield Finding("step_cache", evidence, Where(submodule=str(submodule)))


def _median(name: str, rows: pl.DataFrame) -> dict[str, Value]:
    """Return the median of the group with most steady calls, as evidence `name`; empty if none is
    steady."""
    steady = rows.filter(pl.col("steady_calls") > 0).sort("steady_calls", maintain_order=True)
    return {} if steady.is_empty() else {name: int(steady["median_ns"][-1])}


def _step_cache(found: Finding) -> Words:
    recommendation = said(
        "Compare images and times at other thresholds; compare runs only under the same cache."
    )
    if not number(found, "skipping_calls"):
        recommendation = said(
            "Raise the cache's threshold or widen its range of steps, or switch it off: its checks "
            "cost time and saved none."
        )
    return Words(
        title=joined("; ", _title(found)),
        caveat="Medians and steps of this submodule mix calls that skipped blocks with full ones: "
        "the table of step caches separates them. No trace shows what skipping changes in the "
        "result.",
        recommendation=recommendation,
    )


def _title(found: Finding) -> Iterator[str]:
    given = texts(found)
    skipped = said(
        "{cache} skipped blocks in {skipping_calls} of {calls} calls of {submodule}: "
        "{skipped_blocks_share} of all blocks"
    )
    yield filled(skipped, given)
    if "full_median_ns" in given and "skipping_median_ns" in given:
        medians = said("{skipping_median_ns} a call that skips, {full_median_ns} a full one")
        yield filled(medians, given)


RULES = (
    Rule(
        step_cache,
        _step_cache,
        "Compare images and times at other thresholds of the cache",
        section="guidance",
    ),
)
