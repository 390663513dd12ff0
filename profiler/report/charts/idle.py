"""The chart of what idle devices waited for, as plain plotly JSON."""

from __future__ import annotations

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
from profiler.report.palette import CATEGORY_COLOURS, HOST, IDLE, SERIES, Theme
from profiler.text import duration, percent, said

__all__ = ["idle"]

_CAUSES = (  # column, what it is called, its colour
    ("computing_ns", said("computing"), CATEGORY_COLOURS["compute"]),
    ("exposed_ns", said("collectives"), CATEGORY_COLOURS["collective"]),
    ("data_ns", said("data"), CATEGORY_COLOURS["dma"]),
    ("copy_wait_ns", said("waiting for copies"), CATEGORY_COLOURS["copy"]),
    ("other_device_ns", said("other device"), SERIES[3]),
    ("launch_ns", said("launch"), HOST),
    ("unknown_cause_ns", said("cause not recorded"), SERIES[2]),
    ("sync_ns", said("sync"), SERIES[6]),
    ("queue_ns", said("queued"), SERIES[5]),
    ("host_work_ns", said("between calls, host work"), SERIES[7]),
    ("host_ns", said("between calls, nothing"), IDLE),
    ("outside_ns", said("outside of end to end"), IDLE),
    ("unrecorded_ns", said("not recorded"), SERIES[4]),
)


@draws("idle")
def idle(frame: pl.DataFrame, theme: Theme = "light") -> Chart:
    """One bar a device: the time it computed, and what it waited for in the rest of its span."""
    rows = {str(number): row for number, row in enumerate(frame.iter_rows(named=True))}
    for row in rows.values():
        row["host_ns"] -= row["host_work_ns"]
    spans = {key: row["span_ns"] for key, row in rows.items()}
    unit = unit_for(max(spans.values(), default=0))
    data = []
    for column, name, colour in _CAUSES:
        values = {key: row[column] for key, row in rows.items() if row[column]}
        texts = [
            said(
                "{device}, {what}: {time}, {share} of its span",
                device=rows[key]["device"],
                what=name,
                time=duration(ns),
                share=percent(ns / spans[key]),
            )
            for key, ns in values.items()
        ]
        if values:
            trace = bars(name, values, unit, colour.on(theme), texts, theme)
            data.append(picking(trace, ({"device": rows[key]["device"]} for key in values)))
    made = bars_layout(theme, [*spans], max(spans.values(), default=0))
    labels = [escaped(shortened(row["device"], 24)) for row in rows.values()]
    made["yaxis"] |= {"tickvals": [*spans], "ticktext": labels}
    shares = {key: row["idle_ns"] / max(row["span_ns"], 1) for key, row in rows.items()}
    notes = {key: said("{share} idle", share=percent(share)) for key, share in shares.items()}
    made["annotations"] = end_labels(spans, unit, notes)
    return {"data": data, "layout": made}
