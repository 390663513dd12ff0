"""Horizontal bars of a table that declares them: a bar a row, divided by its columns of values."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.report.charts.style import (
    Chart,
    bars,
    bars_layout,
    draws,
    escaped,
    shortened,
    unit_for,
)
from profiler.report.palette import SERIES, Theme
from profiler.text import duration, said

__all__ = ["draw_bars"]

_ROWS = 15


@draws("bars")
def draw_bars(columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme) -> Chart:
    """The first rows of `frame`, named by the columns `label`, as long as the times in the columns
    `values` together."""
    rows = frame.head(_ROWS).rows(named=True)
    labels = [", ".join(str(row[name]) for name in columns["label"]) for row in rows]
    totals = [sum(row[name] or 0 for name in columns["values"]) for row in rows]
    longest = max(totals, default=0)
    unit, keys = unit_for(longest), [str(number) for number in range(len(rows))]
    data = []
    for number, name in enumerate(columns["values"]):
        times = {key: row[name] or 0 for key, row in zip(keys, rows, strict=True)}
        texts = (
            said("{name}: {time}", name=label, time=duration(ns))
            for label, ns in zip(labels, times.values(), strict=True)
        )
        title = name.removesuffix("_ns").replace("_", " ")
        fill = SERIES[number % len(SERIES)].on(theme)
        data.append(bars(title, times, unit, fill, texts, theme))
    made = bars_layout(theme, keys, longest, row=25)
    made["yaxis"] |= {"tickvals": keys, "ticktext": [escaped(shortened(one)) for one in labels]}
    return {"data": data, "layout": made | {"showlegend": len(data) > 1}}
