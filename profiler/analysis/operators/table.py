"""Operators: the commands of one call that share a layer, folded back into one.

A command is folded with those of its call and layer; the host's commands (its own work,
what launched the layer's, waits for accelerators: `host_side`) are folded apart from what ran on
devices, so that a launch never lengthens an operator.
Work of no call is folded by pipeline call and step instead. The folds of one submodule, layer and
`host` then add up to one row. With w the union of a fold, T its total, n the tracks on which its
compute commands ran (all of its tracks where it has none, or nothing took time there), b_t the time
in which such a track t worked (the union of what it ran: commands may lie within others) and b
their sum:

    parallelism = Σ T / Σ w
    parallel_utilization = Σ b / Σ (w n)     imbalance = Σ max_t b_t / Σ (b / n)

sums over the folds. One track: the last two are 1. Tracks that only move data lengthen w and are no
part of n: while they alone work, the computing ones wait.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.analysis.expressions import ratio
from profiler.analysis.host_times import HostTimes
from profiler.analysis.operators.columns import OPERATORS
from profiler.analysis.operators.folds import Folds
from profiler.run.columns import schema

__all__ = ["operator_table"]

_SUMMED = ("commands", "busy", "gap", "working_busy", "possible", "busiest", "even")


def operator_table(
    folds: Folds,
    cells: pl.DataFrame,
    op_type: pl.Series,
    overhead_ratio: pl.DataFrame,
    own: HostTimes,
    timelines: pl.DataFrame,
) -> pl.DataFrame:
    """One row a submodule, layer and host (`columns.OPERATORS`), longest total first.

    `cells` are those of kinds (`kind_cells`), `op_type` is that of each kind, `own` the own times
    of the host's commands; `overhead_ratio` has the columns `submodule` and `overhead_ratio`,
    `timelines` those of `analysis.timelines`. `share` is the part of the own time of all rows with
    the same `host` and timeline: of all device time for operators of devices, of all host time for
    host commands; each of the two adds up to 1.
    """
    keys = pl.DataFrame(
        {"submodule": folds.submodules, "layer": folds.layers, "host": folds.host},
        schema={"submodule": pl.String, "layer": pl.String, "host": pl.Boolean},
    ).with_row_index("key")
    table = (
        _sums(folds)
        .join(keys, on="key")
        .join(_places(folds, cells, op_type), on="key")
        .join(_own(folds, own), on="key")
        .join(overhead_ratio, on="submodule", how="left")
        .join(timelines, on="submodule", how="left")
        .with_columns(pl.col("timeline").fill_null(0))
        .with_columns(self_ns=pl.col("busy") - pl.col("within_ns"))
        .with_columns(
            total_ns=pl.col("busy"),
            gap_ns=pl.col("gap"),
            commands_per_call=pl.col("commands") / pl.col("calls"),
            parallelism=ratio(pl.col("busy"), pl.col("wall_ns")),
            parallel_utilization=ratio(pl.col("working_busy"), pl.col("possible")),
            imbalance=ratio(pl.col("busiest"), pl.col("even")),
            share=ratio(pl.col("self_ns"), pl.col("self_ns").sum().over("host", "timeline")),
            corrected_ns=(pl.col("busy") * pl.col("overhead_ratio"))
            .round()
            .cast(pl.Int64, strict=False),  # null where a foreign factor is beyond reason
        )
        .sort(
            ["total_ns", "submodule", "layer", "host"],
            descending=[True, False, False, False],
        )
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema(OPERATORS).items())


def _own(folds: Folds, own: HostTimes) -> pl.DataFrame:
    """For each key what other commands of the host took within its own, and what it waited."""
    key, keys = folds.of_command[own.row], len(folds.layers)
    sums = (np.bincount(key, values, keys) for values in (own.within_ns, own.waited_ns))
    within, waited = (found.astype(np.int64) for found in sums)  # exact to 2^53
    return pl.DataFrame({"within_ns": within, "waited_ns": waited}).with_row_index("key")


def _sums(folds: Folds) -> pl.DataFrame:
    """For each key its calls and their times, added up."""
    return (
        pl.DataFrame(
            {
                "key": folds.key,
                "commands": folds.commands,
                "wall": folds.wall,
                "busy": folds.busy,
                "working_busy": folds.working_busy,
                "possible": folds.wall * folds.working_tracks,
                "gap": folds.extent - folds.wall,
                "busiest": folds.busiest,
                "even": folds.working_busy / folds.working_tracks,
            }
        )
        .group_by("key", maintain_order=True)
        .agg(
            pl.len().alias("calls"),
            pl.col(*_SUMMED).sum(),
            wall_ns=pl.col("wall").sum(),
            first_ns=pl.col("wall").first(),
            median_ns=pl.coalesce(pl.col("wall").slice(1).median(), pl.col("wall").first()),
        )
        .with_columns(pl.col("key").cast(pl.UInt32))
    )


def _places(folds: Folds, cells: pl.DataFrame, op_type: pl.Series) -> pl.DataFrame:
    """For each key its op types by time, its devices and its number of tracks."""
    kind = cells["kind"].cast(pl.UInt32)
    found = (
        cells.select(
            "device",
            "track",
            key=pl.Series(folds.of_kind).gather(kind).cast(pl.UInt32),
            op_type=op_type.gather(kind),
            duration="total_ns",
        )
        .group_by("key", "op_type", "device", "track")
        .agg(pl.col("duration").sum())
    )
    types = (
        found.drop_nulls("op_type")
        .group_by("key", "op_type")
        .agg(pl.col("duration").sum())
        .sort(["duration", "op_type"], descending=[True, False])
        .group_by("key", maintain_order=True)
        .agg(op_types=pl.col("op_type").str.join(", "))
    )
    places = found.group_by("key").agg(
        devices=pl.col("device").drop_nulls().unique().sort().str.join(", "),
        tracks=pl.struct("device", "track").n_unique(),
        track_names=pl.col("track").unique().sort().str.join(", "),
    )
    return places.join(types, on="key", how="left").with_columns(pl.col("op_types").fill_null(""))
