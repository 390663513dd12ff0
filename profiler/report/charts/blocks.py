"""The chart of what the device time of each repeated block is for, as plain plotly JSON."""

from __future__ import annotations

import re

import polars as pl

from profiler.report.charts.style import (
    HOVER,
    Chart,
    draws,
    escaped,
    layout,
    picking,
    unit_for,
)
from profiler.report.palette import ROLE_COLOURS, SURFACE, TEXT, Theme
from profiler.text import duration, percent, said

__all__ = ["blocks"]

_HEIGHT = 300  # px
_NUMBER = re.compile(r"[0-9]+$")


@draws("blocks")
def blocks(rows: pl.DataFrame, theme: Theme = "light") -> Chart:
    """One bar a block, in order, divided by role; `rows` are of one submodule (`block_roles`)."""
    names = rows["block"].unique(maintain_order=True).to_list()
    totals = dict(rows.group_by("block").agg(pl.col("total_ns").sum()).iter_rows())
    unit = unit_for(max(totals.values(), default=0))
    place = {name: number for number, name in enumerate(names)}
    by_role: dict[str | None, list[tuple[str, int, str]]] = {}
    for given, *part in rows.select("role", "block", "total_ns", "submodule").iter_rows():
        by_role.setdefault(given, []).append((part[0], part[1], part[2]))
    data = []
    for role, colour in ROLE_COLOURS.items():
        parts = by_role.get(role)
        if not parts:
            continue
        texts = (
            said(
                "{block}, {role}: {time}, {share} of the block",
                block=block,
                role=role,
                time=duration(ns),
                share=percent(ns / totals[block]),
            )
            for block, ns, _ in parts
        )
        trace = {
            "type": "bar",
            "name": role,
            "x": [place[block] for block, _, _ in parts],
            "y": [ns * unit.per_ns for _, ns, _ in parts],
            "marker": {
                "color": colour.on(theme),
                "line": {"color": SURFACE.on(theme), "width": 0.5},
            },
            "customdata": [escaped(text) for text in texts],
            "hovertemplate": HOVER,
        }
        data.append(picking(trace, ({"submodule": name, "role": role} for _, _, name in parts)))
    return {"data": data, "layout": _layout(names, unit.name, theme)}


def _layout(names: list[str], unit: str, theme: Theme) -> Chart:
    made = layout(theme)
    made["xaxis"] |= {
        "tickvals": [*range(len(names))],
        "ticktext": [escaped(label) for label in _labels(names)],
        "tickangle": 0,
        "tickfont": {"size": 11.5, "color": TEXT.on(theme)},
    }
    made["xaxis"]["title"] = made["xaxis"]["title"] | {"text": escaped(_title(names))}
    made["yaxis"] |= {"showgrid": True, "rangemode": "tozero"}
    made["yaxis"]["title"] = made["yaxis"]["title"] | {"text": unit}
    made["margin"] |= {"t": 60}
    return made | {"barmode": "stack", "bargap": 0.2, "height": _HEIGHT}


def _labels(names: list[str]) -> list[str]:
    """The numbers of blocks; where there are several kinds, the first of each has its name too."""
    found, before = [], _kind(names[0]) if len({*map(_kind, names)}) == 1 else ""
    for name in names:
        kind, number = _kind(name), _NUMBER.search(name)
        label = number[0] if number else name
        named = kind == before or not number
        found.append(label if named else f"{label}\n{kind.rstrip('.')}")
        before = kind
    return found


def _title(names: list[str]) -> str:
    """What all blocks are; names of several kinds stand at the axis."""
    kinds = {*map(_kind, names)}
    return f"{kinds.pop().rstrip('.')}.*" if len(kinds) == 1 else said("block")


def _kind(name: str) -> str:
    return _NUMBER.sub("", name)
