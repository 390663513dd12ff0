"""Shares over time of a table that declares them: a curve for each of its series."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.report.charts.style import Chart, draws, escaped, layout, unit_for
from profiler.report.palette import SERIES, Theme
from profiler.text import said

__all__ = ["draw_curves"]


@draws("curves")
def draw_curves(columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme) -> Chart:
    """The column `share` over the column `time`, a curve for each value of the column `series`;
    times count from the first."""
    (series,), (time,), (share,) = (columns[name] for name in ("series", "time", "share"))
    times = frame[time].to_list()
    begin = min(times, default=0)
    unit = unit_for(max(times, default=0) - begin)
    data = []
    for number, (name, rows) in enumerate(frame.group_by(series, maintain_order=True)):
        colour = SERIES[number % len(SERIES)].on(theme)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(name[0]),
                "x": ((rows[time] - begin) * unit.per_ns).round(3).to_list(),
                "y": rows[share].round(3).to_list(),
                "line": {"color": colour, "width": 1.5, "shape": "hv"},
                "fill": "tozeroy",
                "fillcolor": colour + "26",
                "hovertemplate": "%{x} " + unit.name + ": %{y:.1%}<extra></extra>",
            }
        )
    made = layout(theme)
    made["xaxis"]["title"] = made["xaxis"]["title"] | {
        "text": said("{unit} from the begin", unit=unit.name)
    }
    made["yaxis"] |= {"range": [0, 1], "tickformat": ".0%", "showgrid": True}
    return {"data": data, "layout": made | {"height": 220, "showlegend": len(data) > 1}}
