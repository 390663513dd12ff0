"""The chart of where the time of each stage went, as plain plotly JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from profiler.analysis.accounting.identity import Accounting
from profiler.report.charts.style import (
    Chart,
    bars,
    bars_layout,
    draws,
    end_labels,
    picking,
    unit_for,
)
from profiler.report.palette import HOST, IDLE, SERIES, Colour, Theme, submodule_colours
from profiler.text import duration, percent, said

__all__ = ["stages"]

_CALLS = said("calls, several at once")
_HOST_WORK, _NOTHING = said("host work"), said("idle")
_FIXED: dict[str, Colour] = {_CALLS: SERIES[0], _HOST_WORK: HOST, _NOTHING: IDLE}


@draws("stages")
def stages(
    frame: pl.DataFrame, calls: pl.DataFrame, account: Accounting, theme: Theme = "light"
) -> Chart:
    """One bar a stage: its submodules' calls, the host work between them, and idle time.

    Submodules show as such where their calls do not overlap; otherwise the calls are one part.
    """
    rows = list(frame.iter_rows(named=True))
    if account.calls_outside:
        calls = calls.filter(pl.col("pipeline") >= 0)
    # Colours of all submodules of the run, so that a selection does not change any.
    colours = {**submodule_colours(part.submodule for part in account.submodules), **_FIXED}
    of_stage = {row["stage"]: _stage_parts(calls, row) for row in rows}
    present = dict.fromkeys(name for parts in of_stage.values() for name in parts)
    ordered = sorted(present, key=lambda name: [*_FIXED].index(name) if name in _FIXED else -1)
    totals = {stage: sum(parts.values()) for stage, parts in of_stage.items()}
    unit = unit_for(max(totals.values(), default=0))
    data = []
    for name in ordered:
        values = {stage: parts[name] for stage, parts in of_stage.items() if name in parts}
        texts = [
            said("{name} in {stage}: {time}", name=name, stage=stage, time=duration(ns))
            for stage, ns in values.items()
        ]
        trace = bars(name, values, unit, colours[name].on(theme), texts, theme)
        submodule = None if name in _FIXED else name
        data.append(picking(trace, ({"stage": stage, "submodule": submodule} for stage in values)))
    shares = {row["stage"]: row["share"] for row in rows}
    notes = {
        stage: duration(total) + ("" if shares[stage] is None else f"  {percent(shares[stage])}")
        for stage, total in totals.items()
    }
    made = bars_layout(theme, [*totals], max(totals.values(), default=0))
    made["annotations"] = end_labels(totals, unit, notes)
    return {"data": data, "layout": made}


def _stage_parts(calls: pl.DataFrame, row: Mapping[str, Any]) -> dict[str, int]:
    """Time of one stage by part; adds up to its duration where the accounting is possible."""
    of_stage = calls.filter(pl.col("stage") == row["stage"])
    sums = of_stage.group_by("submodule", maintain_order=True).agg(pl.col("elapsed_ns").sum())
    by_submodule = dict(sums.iter_rows())
    complete = sum(by_submodule.values()) == row["calls_ns"]
    parts = by_submodule if complete else {_CALLS: row["calls_ns"]}
    return parts | {_HOST_WORK: row["host_ns"] or 0, _NOTHING: row["idle_ns"] or 0}
