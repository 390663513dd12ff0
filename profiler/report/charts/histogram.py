"""How many things took how long, of a table that has a row for each interval of durations."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.analysis.document import PAGE, SERIES, SURFACE, Theme
from profiler.report.charts.style import HOVER, Chart, draws, escaped, layout, titled
from profiler.text import count, duration, percent, said


@draws("histogram")
def draw_histogram(
    columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme
) -> Chart:
    """A bar each interval from the column `from` to `below`, as high as its `count`; on hovering
    the `total` time. Each value of `series` has a colour."""
    (series,), (start,), (below,), (number,), (total,) = (
        columns[name] for name in ("series", "from", "below", "count", "total")
    )
    starts = sorted(frame[start].unique().to_list())
    place = {ns: at for at, ns in enumerate(starts)}
    data, several = [], frame[series].n_unique() > 1
    for at, ((name,), rows) in enumerate(frame.group_by(series, maintain_order=True)):
        whole = max(int(rows[total].sum()), 1)
        texts = [
            said(
                "{name}: {number} take {low} to {high}, together {time}, {share}",
                name=name,
                number=count(row[number]),
                low=duration(row[start]),
                high=duration(row[below]),
                time=duration(row[total]),
                share=percent(row[total] / whole),
            )
            for row in rows.iter_rows(named=True)
        ]
        fill = (SERIES[at % len(SERIES)] if several else PAGE["busy"]).on(theme)
        data.append(
            {
                "type": "bar",
                "name": escaped(name),
                "x": [place[ns] for ns in rows[start]],
                "y": rows[number].to_list(),
                "marker": {"color": fill, "line": {"color": SURFACE.on(theme), "width": 1}},
                "customdata": [escaped(text) for text in texts],
                "hovertemplate": HOVER,
            }
        )
    made = layout(theme)
    labels = [escaped(duration(ns)) for ns in starts]
    made["xaxis"] |= {
        "tickvals": [at - 0.5 for at in range(len(starts))],
        "ticktext": labels,
        # plotly.js puts the title nowhere if no tick lies within
        "range": [-0.6, len(starts) - 0.4],
    }
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    titled(made, xaxis=said("duration"), yaxis=said("executions"))
    shape = {"barmode": "stack", "bargap": 0.06, "height": 260, "showlegend": several}
    return {"data": data, "layout": made | shape}
