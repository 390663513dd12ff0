"""The chart of how long each step took, as plain plotly JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from profiler.analysis.steps.summary import StepSummary
from profiler.report.charts.style import (
    HOVER,
    Chart,
    Unit,
    draws,
    escaped,
    layout,
    picking,
    unit_for,
)
from profiler.report.palette import SERIES, TEXT, Theme
from profiler.text import duration, said

__all__ = ["steps"]


@draws("steps")
def steps(frame: pl.DataFrame, summary: StepSummary, theme: Theme = "light") -> Chart:
    """Duration of each step from 0, the median as a line, outliers in another colour."""
    rows = list(frame.iter_rows(named=True))
    several = len({row["pipeline"] for row in rows}) > 1
    names = [f"{row['pipeline']}:{row['step']}" if several else str(row["step"]) for row in rows]
    unit = unit_for(summary.max_ns)
    data = []
    for label, outlier, colour in (
        (said("step"), False, SERIES[0]),
        (said("outlier"), True, SERIES[4]),
    ):
        kept = [i for i, row in enumerate(rows) if row["outlier"] is outlier]
        trace = {
            "type": "bar",
            "name": label,
            "x": kept,
            "y": [rows[i]["elapsed_ns"] * unit.per_ns for i in kept],
            "width": 0.76 if len(rows) > 8 else 0.4,
            "marker": {"color": colour.on(theme), "line": {"width": 0}},
            "customdata": [escaped(_step_text(names[i], rows[i])) for i in kept],
            "hovertemplate": HOVER,
        }
        if kept:
            data.append(picking(trace, ({"step": rows[i]["step"]} for i in kept)))
    if rows:
        data.append(_median_line(len(rows), summary.median_ns, unit, theme))
    shown = range(0, len(rows), max(1, -(-len(rows) // 28)))
    made = layout(theme)
    made["xaxis"] |= {"tickvals": [*shown], "ticktext": [names[i] for i in shown]}
    made["xaxis"]["title"] = made["xaxis"]["title"] | {"text": said("step")}
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    made["yaxis"]["title"] = made["yaxis"]["title"] | {"text": unit.name}
    return {"data": data, "layout": made | {"height": 290}}


def _median_line(count: int, median_ns: int, unit: Unit, theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": said("median {median}", median=duration(median_ns)),
        "x": [-0.5, count - 0.5],
        "y": [median_ns * unit.per_ns] * 2,
        "line": {"color": TEXT.on(theme), "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _step_text(name: str, row: Mapping[str, Any]) -> str:
    split = said(
        "calls {calls}, host {host}, idle {idle}",
        calls=duration(row["calls_ns"]),
        host=duration(row["host_ns"]),
        idle=duration(row["idle_ns"]),
    )
    title = said("step {step}", step=name)
    if row["outlier"]:
        title = said("step {step} (outlier)", step=name)
    branches = f"\n{row['branches']}" if "," in row["branches"] else ""
    took = duration(row["elapsed_ns"])
    return said(
        "{step}: {took}\n{split}{branches}", step=title, took=took, split=split, branches=branches
    )
