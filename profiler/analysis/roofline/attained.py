"""What a run's own products reached, where that is more than was measured.

How fast a device multiplies depends on the data (of random numbers it draws more power than of
equal ones) and on what it did before: between kernels that wait for memory products run at higher
clocks than one after another. A profile that was measured with products alone is therefore
exceeded by some, and its peak is then what the run shows that the device can do: never more than
is published, for a rate beyond that is a mistake of a formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.work.registry import Family

__all__ = ["with_attained"]

_MORE = 1 + 1e-9  # so that rounding makes nothing faster than its peak
_LEAST_NS = 1_000_000  # of a shape in all: single kernels are timed too coarsely


def with_attained(
    profiles: Mapping[str, DeviceProfile],
    published: Mapping[str, DeviceProfile],
    operations: pl.DataFrame,
) -> dict[str, DeviceProfile]:
    """The measured of `profiles` with the peaks of products in `operations`, one row an operation
    on a device (device, family, dtype, flops, total_ns; sums over its executions), that are above
    their own and at most those of `published`."""
    fastest = (
        operations.filter(family=Family.MATMUL.value)
        .filter(pl.col("total_ns") >= _LEAST_NS)
        .group_by("device", "dtype")
        .agg(rate=(pl.col("flops") / pl.col("total_ns")).max() * 1e9)
        .drop_nulls()
        .sort("device", "dtype")
    )
    found = dict(profiles)
    for device, dtype, rate in fastest.iter_rows():
        profile, limit = found.get(device), published.get(device)
        own = profile.peak_flops.get(dtype) if profile is not None else None
        most = limit.peak_flops.get(dtype) if limit is not None else None
        if profile is None or not profile.measured or own is None or most is None:
            continue
        if own < rate <= most:
            peaks = {**profile.peak_flops, dtype: min(rate * _MORE, most)}
            attained = (*profile.attained, dtype)
            found[device] = replace(profile, peak_flops=peaks, attained=attained)
    return found
