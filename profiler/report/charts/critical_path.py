"""The chart of the critical path, as plain plotly JSON."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.analysis.waiting.codes import PathPart
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
from profiler.report.excerpts import path_by_part
from profiler.report.palette import HOST, Theme, submodule_colours
from profiler.report.sentences.worded import labels
from profiler.text import Said, count, duration, joined, percent, said

__all__ = ["critical_path"]

_ROWS = 12  # of the critical path


@draws("critical_path")
def critical_path(path: pl.DataFrame, submodules: Sequence[str], theme: Theme = "light") -> Chart:
    """What the critical path consists of: a bar for each part of a submodule, the longest first,
    in the colours that `submodules`, all of the run, have."""
    rows = list(path_by_part(path, _ROWS).iter_rows(named=True))
    colours = submodule_colours(submodules)
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
    names = labels([part], PathPart)
    return joined(" ", [submodule, *names] if submodule else names)
