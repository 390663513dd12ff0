"""The chart of what the device time of each submodule is for, as plain plotly JSON."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.report.charts.style import (
    HOVER,
    Chart,
    bars_layout,
    draws,
    escaped,
    picking,
    shortened,
)
from profiler.report.palette import ROLE_COLOURS, SURFACE, Theme
from profiler.text import duration, percent, said

__all__ = ["roles"]


@draws("roles")
def roles(frame: pl.DataFrame, theme: Theme = "light") -> Chart:
    """One bar a submodule, the most device time first: the share of each role in it."""
    found = frame.drop_nulls("submodule").filter(pl.col("total_ns") > 0)
    sums = found.group_by("submodule", maintain_order=True).agg(pl.col("total_ns").sum())
    totals = dict(sums.sort("total_ns", descending=True, maintain_order=True).iter_rows())
    number = {name: str(i) for i, name in enumerate(totals)}
    by_role: dict[str | None, list[dict[str, Any]]] = {}
    for row in found.with_columns(pl.col("role").cast(pl.String)).iter_rows(named=True):
        by_role.setdefault(row["role"], []).append(row)
    data = []
    for role, colour in ROLE_COLOURS.items():
        rows = by_role.get(role)
        if not rows:
            continue
        texts = [
            said(
                "{submodule}, {role}: {busy}, {share} of its device time",
                submodule=row["submodule"],
                role=role,
                busy=duration(row["total_ns"]),
                share=percent(row["total_ns"] / totals[row["submodule"]]),
            )
            for row in rows
        ]
        trace = {
            "type": "bar",
            "orientation": "h",
            "name": role,
            "y": [number[row["submodule"]] for row in rows],
            "x": [round(100 * row["total_ns"] / totals[row["submodule"]], 3) for row in rows],
            "marker": {
                "color": colour.on(theme),
                "line": {"color": SURFACE.on(theme), "width": 1},
            },
            "customdata": [escaped(text) for text in texts],
            "hovertemplate": HOVER,
        }
        picks = ({"submodule": row["submodule"], "role": role} for row in rows)
        data.append(picking(trace, picks))
    return {"data": data, "layout": _layout(totals, theme)}


def _layout(totals: dict[str, int], theme: Theme) -> Chart:
    keys = [str(i) for i in range(len(totals))]
    made = bars_layout(theme, keys, 0, row=34)
    made["yaxis"] |= {
        "tickvals": keys,
        "ticktext": [escaped(shortened(name, 28)) for name in totals],
    }
    ticks = range(0, 101, 20)
    made["xaxis"] |= {"range": [0, 112], "tickvals": [*ticks], "ticktext": [str(x) for x in ticks]}
    made["xaxis"]["title"] = made["xaxis"]["title"] | {
        "text": said("% of the submodule's device time")
    }
    made["annotations"] = [
        {
            "x": 100,
            "y": key,
            "text": escaped(duration(ns)),
            "showarrow": False,
            "xanchor": "left",
            "xshift": 4,
        }
        for key, ns in zip(keys, totals.values(), strict=True)
    ]
    made["margin"] |= {"t": 56}
    made["height"] += 22  # for a legend of two lines
    return made
