"""How long the device waited in each step for the host to launch, and how long of that before the
first kernel of its calls."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

__all__ = ["LaunchBoundSteps", "launch_bound_steps"]


class LaunchBoundSteps(Struct, frozen=True):
    """Shortest, median and longest time of some steps in which their calls were launch-bound;
    shortest and longest of that before their first kernels, None where nobody knows."""

    low_ns: int
    median_ns: int
    high_ns: int
    before_low_ns: int | None
    before_high_ns: int | None


def launch_bound_steps(calls: pl.DataFrame) -> LaunchBoundSteps | None:
    """Of the steps of the table of calls, or some of its rows; None without steps."""
    steps = (
        calls.filter(pl.col("step") >= 0)
        .group_by("pipeline", "step")
        .agg(
            pl.col("launch_bound_ns").sum(),
            pl.when(pl.col("before_kernel_ns").is_not_null().all())
            .then(pl.col("before_kernel_ns").sum())
            .alias("before_kernel_ns"),
        )
    )
    if steps.is_empty():
        return None
    bound = sorted(steps["launch_bound_ns"].to_list())
    before = sorted(steps["before_kernel_ns"].drop_nulls().to_list())
    known = len(before) == len(bound)
    return LaunchBoundSteps(
        low_ns=bound[0],
        median_ns=round(np.median(bound)),
        high_ns=bound[-1],
        before_low_ns=before[0] if known else None,
        before_high_ns=before[-1] if known else None,
    )
