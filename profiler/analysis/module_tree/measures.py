"""What adds up from operators to the modules that they are in, of each kind of commands."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.run.intervals import Codes, Times

__all__ = ["BOUNDS", "MEASURES", "Sums", "sums_of"]

Sums = npt.NDArray[np.float64]

BOUNDS = ("compute_bound_ns", "memory_bound_ns", "launch_bound_ns")
MEASURES = (
    *("own_ns", "total_ns", "commands", "executions"),
    *("rated_ns", "blamed_ns", "flops", "flops_ns", "compute_ns", "computed_ns", "known_ns"),
    *BOUNDS,
)
"""Columns of sums: time of a tile's own, durations, numbers; of what a roofline bounds its time,
FLOPs with the time of commands that have them, their least time by the device's peak with the time
of commands that have that, and roofline time by bound with the time of commands that have it."""


def sums_of(
    own: Times, commands: Times, totals: Times, once: Codes, roofline: pl.DataFrame
) -> Sums:
    """The measures by stage and kind, float64 [stages, kinds, measures], exact to 2^53.

    `own`, `commands` and `totals` are int64 [stages, kinds], `once` how often a command of each
    kind counts as an execution, `roofline` what `kind_roofline` makes: of kinds in several stages
    each has its part by time.
    """
    kinds = own.shape[1]
    of_kind = np.zeros((kinds, len(MEASURES)))
    for at, column in enumerate(_rated(roofline, kinds).iter_columns(), MEASURES.index("rated_ns")):
        of_kind[:, at] = column.to_numpy()
    by_time = totals.sum(axis=0) > 0
    weight = np.where(by_time, totals, commands)
    whole = weight.sum(axis=0)
    part = weight / np.where(whole > 0, whole, 1)
    found: Sums = part[:, :, None] * of_kind
    for at, values in enumerate((own, totals, commands, commands * once)):
        found[:, :, at] = values
    return found


def _rated(roofline: pl.DataFrame, kinds: int) -> pl.DataFrame:
    """Sums over devices, one row a kind, 0 where nothing is known."""
    total, at_roofline = pl.col("total_ns"), pl.col("roofline_ns")
    computed = pl.col("compute_ns") > 0
    sums = (
        roofline.lazy()
        .group_by("kind")
        .agg(
            rated_ns=total.sum(),
            blamed_ns=pl.col("blamed_ns").sum(),
            flops=pl.col("flops").sum(),
            flops_ns=total.filter(pl.col("flops").is_not_null()).sum(),
            compute_ns=pl.col("compute_ns").filter(computed).sum(),
            computed_ns=total.filter(computed).sum(),
            known_ns=total.filter(at_roofline.is_not_null()).sum(),
            **{
                name: at_roofline.filter(pl.col("bound") == number).sum()
                for number, name in enumerate(BOUNDS)
            },
        )
    )
    every = pl.LazyFrame({"kind": pl.int_range(kinds, dtype=pl.Int32, eager=True)})
    found = every.join(sums, on="kind", how="left", maintain_order="left")
    return found.drop("kind").fill_null(0).collect()
