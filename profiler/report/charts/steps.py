"""Charts of denoising steps: durations as bars, and the step matrix as a heat map.

The heat map is bounded. Parts with little time share one row. If there are too many steps, a
column shows the slowest of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.activity import adds_up
from profiler.analysis.document import IDLE, SERIES, TEXT, Theme
from profiler.analysis.result import StepSummary
from profiler.analysis.step_matrix import Matrix
from profiler.report.charts.style import (
    HOVER,
    Bar,
    Chart,
    Unit,
    draws,
    escaped,
    layout,
    picking,
    shortened,
    stacked,
    titled,
    unit_for,
)
from profiler.text import duration, percent, said

# --- The step matrix as a heat map: each part of a step relative to its median.


@draws("step_matrix")
def matrix_chart(matrix: Matrix | None, theme: Theme = "light") -> Chart:
    """Draw the heat map: a row per part, a column per step, coloured by added time."""
    made = layout(theme)
    if matrix is None:
        return {"data": [], "layout": made | {"height": 100}}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = matrix.time / matrix.median[:, None]
    shade = np.clip(matrix.added / matrix.farthest, -1, 1)
    rows, columns = matrix.time.shape
    trace = {
        "type": "heatmap",
        "x": [*range(columns)],
        "y": [*range(rows)],
        "z": [[None if np.isnan(v) else round(float(v), 2) for v in row] for row in shade],
        "text": [[*_texts(matrix, row, ratio)] for row in range(rows)],
        "hovertemplate": said("%{y}<br>step %{text}<extra></extra>"),
        "hoverongaps": False,
        "colorscale": _scale(theme),
        "zmin": -1,
        "zmax": 1,
        "xgap": 1 if columns <= 60 else 0,
        "ygap": 1,
        "colorbar": _colorbar(matrix.farthest, theme),
        "picks": {"rows": matrix.row_picks, "columns": matrix.column_picks},
    }
    made["yaxis"] |= {
        "tickvals": [*range(rows)],
        "ticktext": [escaped(shortened(name, 40)) for name in matrix.names],
        "range": [rows - 0.5, -0.5],
        "tickfont": {"size": 12, "color": TEXT.on(theme)},
    }
    shown = range(0, columns, max(1, -(-columns // 28)))
    made["xaxis"] |= {"tickvals": [*shown], "ticktext": [matrix.columns[i] for i in shown]}
    titled(made, xaxis=said("step"))
    made["margin"] |= {"t": 8}
    return {"data": [trace], "layout": made | {"height": 74 + 19 * rows, "showlegend": False}}


def _texts(matrix: Matrix, row: int, ratio: npt.NDArray[np.float64]) -> Iterator[str]:
    for column, ns in enumerate(matrix.time[row]):
        if np.isnan(ns):
            yield ""
        else:
            times = f", {ratio[row, column]:.2f} x" if matrix.median[row] > 0 else ""
            yield f"{matrix.columns[column]}: {duration(ns)}{times}"


def _scale(theme: Theme) -> list[list[Any]]:
    fast, slow = SERIES[0], SERIES[4]
    return [[0, fast.on(theme)], [0.5, IDLE.on(theme)], [1, slow.on(theme)]]


def _colorbar(farthest: float, theme: Theme) -> dict[str, Any]:
    end = percent(farthest)
    return {
        "tickvals": [-1, 0, 1],
        "ticktext": [f"\N{MINUS SIGN}{end}", said("median"), f"+{end}"],
        "thickness": 10,
        "len": 1,
        "outlinewidth": 0,
        "tickfont": {"size": 11, "color": TEXT.on(theme)},
    }


# --- The chart of step durations, as plain plotly JSON.


_MOST_DIVIDED = 1000  # steps: more bars have one colour


@draws("steps")
def steps(
    frame: pl.DataFrame, summary: StepSummary, activity: pl.DataFrame, theme: Theme = "light"
) -> Chart:
    """Draw the duration of each step as a bar, divided by device activity if known; the median as a
    line, a mark above outliers."""
    rows = list(frame.iter_rows(named=True))
    several = len({row["pipeline"] for row in rows}) > 1
    names = [f"{row['pipeline']}:{row['step']}" if several else str(row["step"]) for row in rows]
    unit = unit_for(summary.max_ns)
    data = _bars(frame, names, activity, unit, theme)
    outliers = [at for at, row in enumerate(rows) if row["outlier"]]
    if outliers:
        data.append(_marks(rows, names, outliers, unit, theme))
    if rows:
        data.append(_median_line(len(rows), summary.median_ns, unit, theme))
    shown = range(0, len(rows), max(1, -(-len(rows) // 28)))
    made = layout(theme)
    made["xaxis"] |= {"tickvals": [*shown], "ticktext": [names[i] for i in shown]}
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    titled(made, xaxis=said("step"), yaxis=unit.name)
    return {"data": data, "layout": made | {"barmode": "stack", "height": 290}}


def _bars(
    frame: pl.DataFrame, names: list[str], activity: pl.DataFrame, unit: Unit, theme: Theme
) -> list[dict[str, Any]]:
    """The bars of the steps, divided by device activity if it adds up to each step."""
    rows = list(frame.iter_rows(named=True))
    keys = ("pipeline", "step")
    width = 0.76 if len(rows) > 8 else 0.4
    if len(rows) <= _MOST_DIVIDED and adds_up(activity, frame, keys):
        bars = [
            Bar(
                f"{row['pipeline']}:{row['step']}",
                said("step {step}", step=name),
                row["elapsed_ns"],
                {"step": row["step"]},
            )
            for row, name in zip(rows, names, strict=True)
        ]
        keyed = activity.with_columns(key=pl.format("{}:{}", *keys))
        return [trace | {"width": width} for trace in stacked(keyed, bars, unit, theme)]
    trace = {
        "type": "bar",
        "name": said("step"),
        "x": [*range(len(rows))],
        "y": [row["elapsed_ns"] * unit.per_ns for row in rows],
        "width": width,
        "marker": {"color": SERIES[0].on(theme), "line": {"width": 0}},
        "customdata": [
            escaped(_step_text(name, row)) for name, row in zip(names, rows, strict=True)
        ],
        "hovertemplate": HOVER,
    }
    return [picking(trace, ({"step": row["step"]} for row in rows))] if rows else []


def _marks(
    rows: list[dict[str, Any]], names: list[str], outliers: list[int], unit: Unit, theme: Theme
) -> dict[str, Any]:
    """A mark above each outlier."""
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": said("outlier"),
        "x": outliers,
        "y": [rows[i]["elapsed_ns"] * unit.per_ns * 1.03 for i in outliers],
        "marker": {"symbol": "triangle-down", "size": 9, "color": SERIES[4].on(theme)},
        "customdata": [escaped(_step_text(names[i], rows[i])) for i in outliers],
        "hovertemplate": HOVER,
    }
    return picking(trace, ({"step": rows[i]["step"]} for i in outliers))


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
        "calls {calls}, host {host}, no call {idle}",
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
