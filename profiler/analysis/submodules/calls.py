"""Calls and the submodules they are calls of."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import polars as pl

from profiler.analysis.arrays import HOST, CommandArrays
from profiler.analysis.batches import Codes, counts
from profiler.analysis.intervals import union_by
from profiler.analysis.submodules.columns import BRANCHES, CALLS, SUBMODULES
from profiler.table.columns import schema
from profiler.trace.manifest_fields import Calibration, Submodule

__all__ = [
    "CALIBRATING_CALLS",
    "branch_table",
    "calibration_factors",
    "call_table",
    "first_calls",
    "submodule_table",
]

CALIBRATING_CALLS = 3  # steady traced, and untraced, of a submodule; fewer differ by chance


def call_table(
    calls: pl.DataFrame, commands: CommandArrays, operators: Codes, first: pl.Series
) -> pl.DataFrame:
    """One row a call (`CALLS`), in the order of `calls`.

    `operators` holds the row in `calls` of every operator of every call, -1 for none; `first` the
    numbers of the calls that are the first of their submodule in the whole run (`first_calls`).
    """
    groups = len(calls)
    working = np.where(commands.category == HOST, np.int32(-1), commands.call)
    names = [name for name, dtype in schema(CALLS).items() if dtype == pl.String()]
    return (
        calls.with_columns(pl.col(names).cast(pl.String), pl.col("duration_ns").clip(0))
        .with_columns(
            commands=counts(commands.call, groups),
            operators=counts(operators, groups),
            busy_ns=union_by(commands.start, commands.end, working, groups),
            first=pl.col("call").is_in(first.to_list()),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in schema(CALLS).items())
    )


def submodule_table(
    calls: pl.DataFrame,
    operators: pl.DataFrame,
    end_to_end_ns: int,
    measured: Mapping[str, float] = MappingProxyType({}),
) -> pl.DataFrame:
    """One row a submodule (`SUBMODULES`), in order of first calls.

    `calls` is the call table, `operators` has a row `submodule, layer` for every operator. Steady
    calls are all but the first, where there are more than one: the first pays for
    initialization. `calibration` is that in `measured`, by submodule, else compares steady traced
    with steady untraced calls, where there are `CALIBRATING_CALLS` of each.
    """
    count = operators.drop_nulls("submodule").group_by("submodule").agg(operators=pl.len())
    table = (
        calls.group_by("submodule", maintain_order=True)
        .agg(
            stage=pl.col("stage").unique(maintain_order=True).str.join(", "),
            device=pl.col("device").unique().sort().str.join(", "),
            calls=pl.len(),
            traced_calls=pl.col("ops_traced").sum(),
            **_durations(),
            commands=pl.col("commands").sum(),
            busy_ns=pl.col("busy_ns").sum(),
            calibration=_calibration(),
        )
        .join(count, on="submodule", how="left", maintain_order="left")
        .with_columns(
            pl.col("operators").fill_null(0),
            share=pl.col("total_ns") / end_to_end_ns if end_to_end_ns else pl.lit(None),
            calibration=pl.col("submodule")
            .replace_strict(dict(measured), default=None, return_dtype=pl.Float64)
            .fill_null(pl.col("calibration")),
        )
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(SUBMODULES).items())


def branch_table(calls: pl.DataFrame, end_to_end_ns: int) -> pl.DataFrame:
    """One row a submodule and branch (`BRANCHES`), submodules in order of their first
    calls, branches of each likewise. `calls` is the call table; steady calls are those of
    `submodule_table`."""
    order = {
        name: number for number, name in enumerate(calls["submodule"].unique(maintain_order=True))
    }
    table = (
        calls.group_by("submodule", "branch", maintain_order=True)
        .agg(calls=pl.len(), **_durations(), busy_ns=pl.col("busy_ns").sum())
        .with_columns(
            share=pl.col("total_ns") / end_to_end_ns if end_to_end_ns else pl.lit(None),
            order=pl.col("submodule").replace_strict(order, return_dtype=pl.Int64),
        )
        .sort("order", maintain_order=True)
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(BRANCHES).items())


def first_calls(calls: pl.DataFrame) -> pl.Series:
    """Numbers of the calls that are the first of their submodule: the one that began first, and
    those that began before it had ended (in other threads), beside its initialization."""
    end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
    first_end = end.sort_by("start_ns", "call").first().over("submodule")
    began_first = (pl.col("start_ns").rank("ordinal").over("submodule")) == 1
    return calls.sort("call").filter(began_first | (pl.col("start_ns") < first_end))["call"]


def _durations() -> dict[str, pl.Expr]:
    """Sum, first and statistics of the steady ones of a group's calls; of all, where every one
    is a first."""
    duration = pl.col("duration_ns")
    steady = duration.filter(~pl.col("first") | pl.col("first").all())
    return {
        "total_ns": duration.sum(),
        "first_ns": duration.sort_by("start_ns", "call").first(),
        "min_ns": steady.min(),
        "median_ns": steady.median(),
        "max_ns": steady.max(),
    }


def _calibration() -> pl.Expr:
    """Untraced over traced time by the medians of steady calls; null where these are too few, or a
    duration of 0 (it is not known) would decide."""
    duration, steady = pl.col("duration_ns"), ~pl.col("first")
    untraced = duration.filter(steady & ~pl.col("ops_traced"))
    traced = duration.filter(steady & pl.col("ops_traced"))
    enough = pl.min_horizontal(untraced.len(), traced.len()) >= CALIBRATING_CALLS
    known = (untraced.median() > 0) & (traced.median() > 0)
    return pl.when(enough & known).then(untraced.median() / traced.median())


def calibration_factors(submodules: Mapping[str, Submodule]) -> dict[str, float]:
    """What capture measured (`RunInfo.submodules`): untraced over traced time by submodule. 1 where
    the measured interval holds 1: that tells no cost of tracing from none, and to multiply with
    its middle would add noise."""
    return {
        name: 1.0 if _holds_one(known.calibration) else known.calibration.factor
        for name, known in submodules.items()
        if known.calibration is not None
    }


def _holds_one(calibration: Calibration) -> bool:
    low, high = calibration.low, calibration.high
    return low is not None and high is not None and low <= 1 <= high
