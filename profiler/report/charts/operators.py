"""The chart of the operators with most time, as plain plotly JSON."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.report.charts.style import (
    Chart,
    bars,
    bars_layout,
    draws,
    end_labels,
    escaped,
    picking,
    shortened,
    unit_for,
)
from profiler.report.palette import HOST, Theme, submodule_colours
from profiler.text import count, duration, percent, said

__all__ = ["operators"]


@draws("operators")
def operators(
    frame: pl.DataFrame,
    submodules: Sequence[str],
    top: int = 15,
    theme: Theme = "light",
) -> Chart:
    """The `top` operators by total, folded or single, in the colour of their submodule of
    `submodules`, all of the run."""
    rows = list(frame.filter(~pl.col("host")).head(top).iter_rows(named=True))
    colours = submodule_colours(submodules)
    fills = [colours.get(row["submodule"], HOST).on(theme) for row in rows]
    values = {str(number): row["total_ns"] for number, row in enumerate(rows)}
    texts = [
        said(
            "{submodule}: {layer}\n{op_types}\n{commands} commands, total {total}, wall {wall}",
            submodule=row["submodule"] or said("no call"),
            layer=shortened(row["layer"], 120),
            op_types=shortened(row["op_types"], 120),
            commands=count(row["commands"]),
            total=duration(row["total_ns"]),
            wall=duration(row["wall_ns"]),
        )
        for row in rows
    ]
    shares = {str(i): percent(row["share"] or 0) for i, row in enumerate(rows)}
    unit = unit_for(max(values.values(), default=0))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=25)
    labels = [escaped(shortened(row["layer"])) for row in rows]
    made["yaxis"] |= {"tickvals": [*values], "ticktext": labels}
    made |= {"annotations": end_labels(values, unit, shares), "showlegend": False}
    made["margin"] |= {"t": 8}
    trace = bars(said("total"), values, unit, fills, texts, theme)
    picks = ({"submodule": row["submodule"], "operator": row["layer"]} for row in rows)
    return {"data": [picking(trace, picks)], "layout": made}
