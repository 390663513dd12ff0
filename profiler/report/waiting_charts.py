"""Charts of who waits for whom, as plain plotly JSON: idle time by cause, the critical path."""

from __future__ import annotations

from profiler.analysis.result import Analysis
from profiler.analysis.waiting.codes import PathPart
from profiler.messages import Said, joined, said
from profiler.report.chart_style import (
    Chart,
    bars,
    bars_layout,
    end_labels,
    escaped,
    picking,
    shortened,
    unit_for,
)
from profiler.report.excerpts import path_by_part
from profiler.report.palette import CATEGORY_COLOURS, HOST, IDLE, SERIES, Theme, submodule_colours
from profiler.report.sentences.waiting import OTHER
from profiler.report.sentences.worded import labels
from profiler.report.units import count, duration, percent

__all__ = ["idle", "path"]

_ROWS = 12  # of the critical path
_CAUSES = (  # column, what it is called, its colour
    ("computing_ns", said("computing"), CATEGORY_COLOURS["compute"]),
    ("data_ns", said("for data"), CATEGORY_COLOURS["dma"]),
    ("other_device_ns", said("for another device"), SERIES[3]),
    ("host_ns", said("for the host"), HOST),
    ("queued_ns", said("queued"), SERIES[5]),
    ("between_host_ns", said("between calls, host work"), SERIES[7]),
    ("between_ns", said("between calls, nothing"), IDLE),
)


def idle(analysis: Analysis, theme: Theme = "light") -> Chart:
    """One bar a device: the time it computed, and what it waited for in the rest of its span."""
    rows = {str(number): row for number, row in enumerate(analysis.idle.iter_rows(named=True))}
    for row in rows.values():
        row["between_ns"] -= row["between_host_ns"]
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
    waiting = {key: row["waiting_ns"] / max(row["span_ns"], 1) for key, row in rows.items()}
    notes = {key: said("{share} waiting", share=percent(share)) for key, share in waiting.items()}
    made["annotations"] = end_labels(spans, unit, notes)
    return {"data": data, "layout": made}


def path(analysis: Analysis, theme: Theme = "light") -> Chart:
    """What the critical path consists of: a bar for each part of a submodule, the longest first."""
    rows = list(path_by_part(analysis.critical_path, _ROWS).iter_rows(named=True))
    colours = submodule_colours(part.submodule for part in analysis.accounting.submodules)
    fills = [colours.get(row["submodule"], HOST).on(theme) for row in rows]
    values = {str(number): row["path_ns"] for number, row in enumerate(rows)}
    names = [_name(row["submodule"], row["part"]) for row in rows]
    texts = [
        said(
            "{name}\n{device}\n{pieces} pieces, {time}",
            name=name,
            device=row["device"] or "",
            pieces=count(row["pieces"]),
            time=duration(row["path_ns"]),
        )
        for name, row in zip(names, rows, strict=True)
    ]
    unit = unit_for(max(values.values(), default=0))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=25)
    labels = [escaped(shortened(name)) for name in names]
    made["yaxis"] |= {"tickvals": [*values], "ticktext": labels}
    shares = {key: percent(row["share"]) for key, row in zip(values, rows, strict=True)}
    made |= {"annotations": end_labels(values, unit, shares), "showlegend": False}
    made["margin"] |= {"t": 8}
    trace = bars(said("critical path"), values, unit, fills, texts, theme)
    picks = ({"submodule": row["submodule"], "device": row["device"]} for row in rows)
    return {"data": [picking(trace, picks)], "layout": made}


def _name(submodule: str | None, part: str | None) -> Said:
    names = labels([part], PathPart, OTHER)
    return joined(" ", [submodule, *names] if submodule else names)
