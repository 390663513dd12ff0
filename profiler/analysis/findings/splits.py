"""Rules about operators that were split over tracks or devices."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import (
    MATERIAL,
    calls_of,
    end_to_end_ns,
    scaled,
    share,
)
from profiler.analysis.result import Analysis

__all__ = ["device_imbalance", "track_imbalance"]

_UNEVEN = 1.2  # busiest / mean: of four tracks one has a fifth more to do
_AT_ONCE = 1.05  # total / wall: less, and the parts did not run side by side


def track_imbalance(analysis: Analysis) -> tuple[Finding, ...]:
    """The parts of split operators end at different times: tracks wait for the busiest."""
    if analysis.partitioning.is_empty():
        return ()
    keys = ("submodule", "layer")
    on_one_device = ~(pl.col("part") == "device").any().over(keys)
    computing = pl.col("part") == "compute"
    rows = analysis.partitioning.filter(
        on_one_device & (computing | ((pl.col("part") == "whole") & ~computing.any().over(keys)))
    )
    return _uneven(
        analysis,
        rows.with_columns(
            parts="tracks", mean_ns=pl.col("parallel_utilization") * pl.col("wall_ns")
        ),
        "track_imbalance",
        "tracks",
    )


def device_imbalance(analysis: Analysis) -> tuple[Finding, ...]:
    """Operators were split over devices of a kind, and one has more to do than the others."""
    if analysis.partitioning.is_empty():
        return ()
    keys = ("submodule", "layer")
    of_device = analysis.partitioning.filter(pl.col("part") == "device")
    kinds = pl.col("device").str.split(":").list.first().n_unique()
    devices = of_device.group_by(keys).agg(parts=pl.len(), kinds=kinds)
    rows = analysis.partitioning.filter(pl.col("part") == "whole").join(devices, on=keys)
    return _uneven(
        analysis,
        rows.filter(pl.col("kinds") == 1).with_columns(
            imbalance="device_imbalance", mean_ns=pl.col("total_ns") / pl.col("parts")
        ),
        "device_imbalance",
        "devices",
    )


def _uneven(analysis: Analysis, rows: pl.DataFrame, rule: str, over: str) -> tuple[Finding, ...]:
    """One finding a submodule; `rows` are split operators, their `imbalance` that of `parts`.

    Lost is what the busiest part takes beyond `mean_ns`, the mean of them.
    """
    total = end_to_end_ns(analysis)
    uneven = rows.filter(
        pl.col("submodule").is_not_null(),
        pl.col("parts") > 1,
        pl.col("imbalance") >= _UNEVEN,
        pl.col("total_ns") >= _AT_ONCE * pl.col("wall_ns"),
    ).with_columns(lost_ns=(pl.col("imbalance") - 1) * pl.col("mean_ns"))
    found = []
    rows = scaled(analysis, uneven, "lost_ns").sort("lost_ns", "layer", descending=[True, False])
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        lost = float(some["lost_ns"].sum())
        if share(lost, total) < MATERIAL:
            continue
        worst = some.row(0, named=True)
        found.append(
            Finding(
                rule=rule,
                evidence={
                    "operators": len(some),
                    "lost_ns": round(lost),
                    "lost_share": share(lost, total),
                    "worst_layer": worst["layer"],
                    "worst_imbalance": round(worst["imbalance"], 3),
                    f"worst_{over}": worst["parts"],
                },
                where=calls_of(analysis, str(submodule), layer=worst["layer"]),
                cost_ns=round(lost),
            )
        )
    return tuple(found)
