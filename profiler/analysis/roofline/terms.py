"""The terms of the roofline: how long computing, moving data and launching take at least.

`bounds` has the rules.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.analysis.roofline.device_profile import DeviceProfile

__all__ = ["TERMS", "roofline_terms"]

TERMS = ("compute_ns", "memory_ns", "launch_ns")


def roofline_terms(wholes: pl.DataFrame, profiles: Mapping[str, DeviceProfile]) -> pl.DataFrame:
    """The terms of each operation on a device (columns device, submodule, dtype, commands,
    executions, total_ns, flops, bytes: sums over its executions), `roofline_ns`, the longest, its
    index as `bound`, and `refuted`: whether the operation was faster."""
    terms = wholes.hstack(_rates(wholes, profiles)).with_columns(
        compute_ns=pl.when(pl.col("flops") == 0)
        .then(0.0)
        .otherwise(pl.col("flops") / pl.col("peak") * 1e9),
        memory_ns=_memory_ns(),
        launch_ns=pl.col("launch") * pl.col("commands"),
    )
    computes = pl.col("flops").fill_null(0) > 0
    longest = pl.max_horizontal(*TERMS)
    known = pl.col("memory_ns").is_not_null() & (pl.col("compute_ns").is_not_null() | ~computes)
    known &= longest > 0
    refuted = known & (longest > pl.col("total_ns"))
    bound = (
        pl.when(pl.col("launch_ns") == longest)
        .then(2)
        .when(pl.col("memory_ns") == longest)
        .then(1)
        .otherwise(0)
    )
    cached = pl.col("memory_ns").is_null() & (_from_memory() > pl.col("total_ns"))
    return terms.with_columns(
        roofline_ns=pl.when(known & ~refuted).then(longest),
        bound=pl.when(known & ~refuted).then(bound),
        refuted=(refuted | cached).fill_null(value=False),
    )


def _rates(frame: pl.DataFrame, profiles: Mapping[str, DeviceProfile]) -> pl.DataFrame:
    """The rates of each row's device, null where not known."""
    pairs = list(zip(frame["device"], frame["dtype"], strict=True))
    found = [profiles.get(device) if device else None for device, _ in pairs]
    rates = {
        "peak": [p.peak(d) if p and d else None for p, (_, d) in zip(found, pairs, strict=True)],
        "bandwidth": [p.memory_bandwidth if p else None for p in found],
        "launch": [p.launch_ns if p else None for p in found],
        "cache_bytes": [p.cache_bytes if p else None for p in found],
        "cache_bandwidth": [p.cache_bandwidth if p else None for p in found],
    }
    return pl.DataFrame(rates, schema=dict.fromkeys(rates, pl.Float64()))


def _from_memory() -> pl.Expr:
    return pl.col("bytes") / pl.col("bandwidth") * 1e9


def _memory_ns() -> pl.Expr:
    """The memory term: by the cache's rate where the submodule's data fits or the commands were
    faster than memory, which is null where that is not known."""
    nbytes, executions = pl.col("bytes"), pl.col("executions")
    beyond_cache = nbytes - pl.col("cache_bytes") * executions
    rates = pl.col("cache_bandwidth").is_not_null() & pl.col("bandwidth").is_not_null()
    cached = pl.when(rates).then(
        pl.max_horizontal(
            nbytes / pl.col("cache_bandwidth") * 1e9,
            beyond_cache / pl.col("bandwidth") * 1e9,
        )
    )
    each = nbytes / executions
    places = ["submodule", "device"]
    touched = pl.when(each.is_not_null().all().over(places)).then(each.sum().over(places))
    fits = (touched <= pl.col("cache_bytes")).fill_null(value=False)
    return (
        pl.when(nbytes == 0)
        .then(0.0)
        .when(fits | (_from_memory() > pl.col("total_ns")))
        .then(cached)
        .otherwise(_from_memory())
    )
