"""The chart of what each device did, as plain plotly JSON."""

from __future__ import annotations

import polars as pl

from profiler.report.charts.style import (
    Chart,
    bars,
    bars_layout,
    draws,
    end_labels,
    picking,
    unit_for,
)
from profiler.report.palette import CATEGORY_COLOURS, Theme
from profiler.text import duration, percent, said
from profiler.trace.events import CATEGORIES

__all__ = ["devices"]


@draws("devices")
def devices(frame: pl.DataFrame, theme: Theme = "light") -> Chart:
    """For each device how long its commands of each category ran, as unions."""
    rows = list(frame.iter_rows(named=True))
    data, values, notes, devices_of = [], {}, {}, {}
    for row in rows:
        for category in CATEGORIES:
            ns, span = row[f"{category}_ns"], row["span_ns"]
            if ns:
                key = f"{row['device']}  {category}"
                values[key], devices_of[key] = ns, row["device"]
                notes[key] = duration(ns) + (f"  {percent(ns / span)}" if span else "")
    unit = unit_for(max(values.values(), default=0))
    for category in CATEGORIES:
        found = {key: ns for key, ns in values.items() if key.endswith(f"  {category}")}
        texts = [
            said("{what}: {time} of the device's span", what=key, time=notes[key]) for key in found
        ]
        if found:
            colour = CATEGORY_COLOURS[category].on(theme)
            trace = bars(category, found, unit, colour, texts, theme)
            data.append(picking(trace, ({"device": devices_of[key]} for key in found)))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=26)
    made |= {"annotations": end_labels(values, unit, notes), "showlegend": False}
    made["margin"] |= {"t": 8}
    return {"data": data, "layout": made}
