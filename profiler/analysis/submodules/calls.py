"""Calls and the submodules they are calls of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import polars as pl

from profiler.analysis.submodules.columns import BRANCHES, CALLS, SUBMODULES
from profiler.run.columns import schema
from profiler.run.intervals import Codes, counts
from profiler.trace.manifest_fields import OverheadRatio, Submodule

__all__ = [
    "MEASURING_CALLS",
    "DeviceTime",
    "Share",
    "branch_table",
    "call_table",
    "overhead_ratios",
    "submodule_table",
]

MEASURING_CALLS = 3  # steady traced, and untraced, of a submodule; fewer differ by chance


Share = Callable[[Codes], float | None]
"""The share of the end-to-end time that some calls take: the union of their tiles."""
DeviceTime = Callable[[list[Codes]], list[int]]
"""How long the work of some calls ran on devices, of each of several lists of rows of calls."""
_SUMS = ("idle_inside_ns", "launch_bound_ns", "hidden_ns", "unrecorded_ns")


def call_table(
    calls: pl.DataFrame,
    tiles: pl.DataFrame,
    commands: Codes,
    operators: Codes,
    first: pl.Series,
    before_kernels: pl.Series,
    end_to_end_ns: int,
) -> pl.DataFrame:
    """One row a call (`CALLS`), in the order of `calls`.

    `tiles` are those of the run, `before_kernels` how long each of its calls was launch-bound
    before its first kernel, in their order. `commands` and `operators` hold the row in `calls` of
    every command and of every operator of every call, -1 for none; `first` the numbers of the
    calls that are not steady in the whole run (`unsteady_calls`).
    """
    groups = len(calls)
    names = [name for name, dtype in schema(CALLS).items() if dtype == pl.String()]
    share = pl.col("elapsed_ns") / end_to_end_ns if end_to_end_ns else pl.lit(None)
    return (
        calls.with_columns(pl.col(names).cast(pl.String), pl.col("duration_ns").clip(0))
        .with_columns(
            commands=counts(commands, groups),
            operators=counts(operators, groups),
            first=pl.col("call").is_in(first.to_list()),
        )
        .join(
            tiles.with_columns(before_kernel_ns=before_kernels),
            on="call",
            how="left",
            maintain_order="left",
        )
        .with_columns(share=share)
        .select(pl.col(name).cast(dtype) for name, dtype in schema(CALLS).items())
    )


def submodule_table(
    calls: pl.DataFrame,
    operators: pl.DataFrame,
    share: Share,
    device_time: DeviceTime,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> pl.DataFrame:
    """One row a submodule (`SUBMODULES`), in order of first calls.

    `calls` is the call table, `operators` has a row `submodule, layer` for every operator; `share`
    and `device_time` are of rows of `calls`. Steady calls are all but the first, where there are
    more than one: the first pays for initialization. `overhead_ratio` is that in `measured`, by
    submodule, else compares steady traced with steady untraced calls, where there are
    `MEASURING_CALLS` of each.
    """
    count = operators.drop_nulls("submodule").group_by("submodule").agg(operators=pl.len())
    table = (
        calls.with_row_index("row")
        .group_by("submodule", maintain_order=True)
        .agg(
            stage=pl.col("stage").unique(maintain_order=True).str.join(", "),
            device=pl.col("device").unique().sort().str.join(", "),
            calls=pl.len(),
            traced_calls=pl.col("ops_traced").sum(),
            **_durations(),
            commands=pl.col("commands").sum(),
            **{name: pl.col(name).sum() for name in _SUMS},
            lead_ns=pl.col("lead_ns").median(),
            overhead_ratio=_overhead_ratio(),
            rows=pl.col("row"),
        )
        .join(count, on="submodule", how="left", maintain_order="left")
        .with_columns(
            pl.col("operators").fill_null(0),
            share=_shares(pl.col("rows"), share),
            busy_ns=_device_times(device_time),
            overhead_ratio=pl.col("submodule")
            .replace_strict(dict(measured), default=None, return_dtype=pl.Float64)
            .fill_null(pl.col("overhead_ratio")),
        )
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(SUBMODULES).items())


def _shares(rows: pl.Expr, share: Share) -> pl.Expr:
    return rows.map_elements(lambda own: share(own.to_numpy()), return_dtype=pl.Float64)


def _device_times(device_time: DeviceTime) -> pl.Expr:
    return pl.col("rows").map_batches(
        lambda rows: pl.Series(device_time([own.to_numpy() for own in rows]), dtype=pl.Int64),
        return_dtype=pl.Int64,
    )


def branch_table(calls: pl.DataFrame, share: Share, device_time: DeviceTime) -> pl.DataFrame:
    """One row a submodule and branch (`BRANCHES`), submodules in order of their first
    calls, branches of each likewise. `calls` is the call table; steady calls are those of
    `submodule_table`, and so are `share` and `device_time`."""
    order = {
        name: number for number, name in enumerate(calls["submodule"].unique(maintain_order=True))
    }
    table = (
        calls.with_row_index("row")
        .group_by("submodule", "branch", maintain_order=True)
        .agg(calls=pl.len(), **_durations(), rows=pl.col("row"))
        .with_columns(
            share=_shares(pl.col("rows"), share),
            busy_ns=_device_times(device_time),
            order=pl.col("submodule").replace_strict(order, return_dtype=pl.Int64),
        )
        .sort("order", maintain_order=True)
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(BRANCHES).items())


def _durations() -> dict[str, pl.Expr]:
    """Sum, first and statistics of the steady ones of a group's calls; of all, where every one
    is a first."""
    elapsed = pl.col("elapsed_ns")
    steady = elapsed.filter(~pl.col("first") | pl.col("first").all())
    return {
        "elapsed_ns": elapsed.sum(),
        "duration_ns": pl.col("duration_ns").sum(),
        "first_ns": elapsed.sort_by("start_ns", "call").first(),
        "min_ns": steady.min(),
        "median_ns": steady.median(),
        "max_ns": steady.max(),
    }


def _overhead_ratio() -> pl.Expr:
    """Untraced over traced time by the medians of steady calls; null where these are too few, a
    duration of 0 (it is not known) would decide, or their device told of some that it was on them
    for longer than the host: the traced ones' device is not known to have been."""
    behind = pl.col("elapsed_ns") > pl.col("duration_ns")
    told = (behind & ~pl.col("ops_traced")).any()
    duration, steady = pl.col("duration_ns"), ~pl.col("first")
    untraced = duration.filter(steady & ~pl.col("ops_traced"))
    traced = duration.filter(steady & pl.col("ops_traced"))
    enough = pl.min_horizontal(untraced.len(), traced.len()) >= MEASURING_CALLS
    known = (untraced.median() > 0) & (traced.median() > 0)
    return pl.when(enough & known & ~told).then(untraced.median() / traced.median())


def overhead_ratios(submodules: Mapping[str, Submodule]) -> dict[str, float]:
    """What capture measured (`RunInfo.submodules`): untraced over traced time by submodule. 1 where
    the measured interval holds 1: that tells no cost of tracing from none, and to multiply with
    its middle would add noise."""
    return {
        name: 1.0 if _holds_one(known.overhead_ratio) else known.overhead_ratio.factor
        for name, known in submodules.items()
        if known.overhead_ratio is not None
    }


def _holds_one(overhead_ratio: OverheadRatio) -> bool:
    low, high = overhead_ratio.low, overhead_ratio.high
    return low is not None and high is not None and low <= 1 <= high
