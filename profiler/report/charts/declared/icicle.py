"""A tree of a table that declares one: each node as wide as its time, below the one it is in."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from profiler.analysis.module_tree.codes import Node
from profiler.report.charts.style import Chart, draws, escaped, layout, shortened
from profiler.report.nodes import labelled
from profiler.report.palette import IDLE, ROLE_COLOURS, SURFACE, Theme, submodule_colours
from profiler.text import duration, percent, said

__all__ = ["draw_icicle"]

_HEIGHT = 640


@draws("icicle")
def draw_icicle(columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme) -> Chart:
    """The nodes with their `parent`, as wide as `value` together with what is in them, by the
    colour of their `role`, else of the `submodule` that they are."""
    (parent,), (value,), (role,) = (columns[name] for name in ("parent", "value", "role"))
    rows = labelled(frame).rows(named=True)
    widths = _widths([row[parent] for row in rows], [row[value] for row in rows])
    whole = max(widths, default=0)
    submodules = submodule_colours({row["submodule"] for row in rows if row["submodule"]})
    colours = []
    for row in rows:
        colour = ROLE_COLOURS.get(row[role] or "")
        if colour is None and row["kind"] == Node.SUBMODULE:
            colour = submodules[row["submodule"]]
        colours.append((colour or IDLE).on(theme))
    texts = [
        said(
            "{name}: {time}, {share} of the run",
            name=row["label"],
            time=duration(row[value]),
            share=percent(row[value] / whole if whole else 0),
        )
        for row in rows
    ]
    trace = {
        "type": "icicle",
        "ids": [str(number) for number in range(len(rows))],
        "parents": [str(row[parent]) if row[parent] >= 0 else "" for row in rows],
        "labels": [escaped(shortened(row["label"])) for row in rows],
        "values": widths,
        "branchvalues": "total",
        "sort": False,
        "tiling": {"orientation": "v"},
        "marker": {"colors": colours, "line": {"color": SURFACE.on(theme), "width": 1}},
        "customdata": [escaped(text) for text in texts],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    made = layout(theme)
    return {"data": [trace], "layout": made | {"height": _HEIGHT, "showlegend": False}}


def _widths(parents: list[int], values: list[int]) -> list[int]:
    """The values, those of a node at least as large as of what is in it: plotly draws no others.
    A residual may be below zero."""
    found, inner = list(values), [0] * len(values)
    for at in range(len(found) - 1, -1, -1):
        found[at] = max(found[at], inner[at])
        if 0 <= parents[at] < at:
            inner[parents[at]] += found[at]
    return found
