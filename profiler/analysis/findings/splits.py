"""Rules about operators that were split over tracks or devices."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.measures import (
    MATERIAL,
    as_percent,
    calls_of,
    scaled,
    share,
    total_ns,
)
from profiler.analysis.result import Analysis
from profiler.messages import said

__all__ = ["device_imbalance", "track_imbalance"]

_UNEVEN = 1.2  # busiest / mean: of four tracks one has a fifth more to do
_AT_ONCE = 1.05  # busy sum / wall union: less, and the parts did not run side by side


def track_imbalance(analysis: Analysis) -> tuple[Finding, ...]:
    """The parts of split operators end at different times: tracks wait for the busiest."""
    if analysis.geometry.is_empty():
        return ()
    keys = ("submodule", "layer")
    on_one_device = ~(pl.col("part") == "device").any().over(keys)
    computing = pl.col("part") == "compute"
    rows = analysis.geometry.filter(
        on_one_device & (computing | ((pl.col("part") == "whole") & ~computing.any().over(keys)))
    )
    return _uneven(
        analysis,
        rows.with_columns(
            parts="tracks", mean_ns=pl.col("parallel_efficiency") * pl.col("wall_union_ns")
        ),
        "track_imbalance",
        "tracks",
        said(
            "The part of the busiest track beyond the mean is what an even split saves, if the "
            "work can be divided evenly at all; commands that wait for data look busy."
        ),
        said(
            "Divide by a size that is a multiple of the number of tracks (heads, channels, "
            "tokens), give the odd rest to no single one, or run such operators on fewer tracks."
        ),
    )


def device_imbalance(analysis: Analysis) -> tuple[Finding, ...]:
    """Operators were split over devices of a kind, and one has more to do than the others."""
    if analysis.geometry.is_empty():
        return ()
    keys = ("submodule", "layer")
    of_device = analysis.geometry.filter(pl.col("part") == "device")
    kinds = pl.col("device").str.split(":").list.first().n_unique()
    devices = of_device.group_by(keys).agg(parts=pl.len(), kinds=kinds)
    rows = analysis.geometry.filter(pl.col("part") == "whole").join(devices, on=keys)
    return _uneven(
        analysis,
        rows.filter(pl.col("kinds") == 1).with_columns(
            imbalance="device_imbalance", mean_ns=pl.col("busy_sum_ns") / pl.col("parts")
        ),
        "device_imbalance",
        "devices",
        said(
            "Devices of different speed, or one that also serves others, look the same; transfers "
            "between them are not counted here."
        ),
        said(
            "Divide heads or channels evenly over the devices, give the slower one less, or move "
            "whole submodules instead of parts of operators."
        ),
    )


def _uneven(
    analysis: Analysis, rows: pl.DataFrame, rule: str, over: str, hazard: str, remedy: str
) -> tuple[Finding, ...]:
    """One finding a submodule; `rows` are split operators, their `imbalance` that of `parts`.

    Lost is what the busiest part takes beyond `mean_ns`, the mean of them.
    """
    total = total_ns(analysis)
    uneven = rows.filter(
        pl.col("submodule").is_not_null(),
        pl.col("parts") > 1,
        pl.col("imbalance") >= _UNEVEN,
        pl.col("busy_sum_ns") >= _AT_ONCE * pl.col("wall_union_ns"),
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
                title=said(
                    "Operators of {submodule} are split unevenly over {over}: {share} of the run",
                    submodule=submodule,
                    over=said(over),
                    share=as_percent(share(lost, total)),
                ),
                evidence={
                    "operators": len(some),
                    "lost_ns": round(lost),
                    "lost_share": share(lost, total),
                    "worst_layer": worst["layer"],
                    "worst_imbalance": round(worst["imbalance"], 3),
                    f"worst_{over}": worst["parts"],
                },
                hazard=hazard,
                remedy=remedy,
                where=calls_of(analysis, str(submodule), layer=worst["layer"]),
                cost_ns=round(lost),
            )
        )
    return tuple(found)
