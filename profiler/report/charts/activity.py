"""Bars of what devices did: roles in their colours, waiting hatched, as traces of plotly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from msgspec import Struct

from profiler.analysis.activity import Activity
from profiler.analysis.document import (
    HOST,
    HOST_WORK,
    PAGE,
    ROLE_COLOURS,
    SURFACE,
    Colour,
    Pick,
    Theme,
)
from profiler.analysis.table_text import label
from profiler.report.charts.style import HOVER, Unit, escaped, hatching, picking
from profiler.text import Said, duration, percent, said

_SMALL = 0.01  # of all: roles with less are drawn as "other"
_OTHER = "other"
_FILLS: dict[Activity, tuple[Colour, str]] = {  # colour, and the shape of the lines of waiting
    Activity.OTHER_WORK: (PAGE["busy"], ""),
    Activity.UNTRACED: (HOST, ""),
    Activity.NO_OPERATOR: (HOST, ""),
    Activity.LAUNCH_BOUND: (PAGE["wait-line"], "/"),
    Activity.WAIT: (PAGE["wait-line"], "\\"),
    Activity.HOST_WORK: (HOST_WORK, "x"),
    Activity.IDLE: (PAGE["wait-line"], "-"),
}


def adds_up(activity: pl.DataFrame, bars: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Whether the rows of `activity` say what `bars` (`keys` and elapsed_ns) consist of: they add
    up to each, and at least some of it is work with a role."""
    if activity.is_empty() or bars["elapsed_ns"].has_nulls():
        return False
    if not (activity["what"] == Activity.WORK.value).any():
        return False
    sums = activity.group_by(keys).agg(together=pl.col("elapsed_ns").sum())
    found = bars.select(*keys, "elapsed_ns").join(sums, on=keys, how="left")
    return bool((found["elapsed_ns"] == found["together"].fill_null(0)).all())


class Bar(Struct, frozen=True):
    """A bar: the `key` of its rows, what texts call it, its length, and what a click chooses."""

    key: str
    name: str
    elapsed_ns: int
    pick: Pick


def stacked(
    activity: pl.DataFrame, bars: Sequence[Bar], unit: Unit, theme: Theme, *, upright: bool = True
) -> list[dict[str, Any]]:
    """A trace for each role and each kind of waiting, of the rows of `activity` by its column
    `key`; bars stand at 0, 1, …, or lie at their keys. A click on one that lies chooses its role,
    too; of one that stands, a step, all of it."""
    number = {bar.key: at for at, bar in enumerate(bars)}
    data = []
    for name, colour, shape, times in _layers(activity):
        kept = [(number[key], ns) for key, ns in times.items() if key in number]
        texts = [
            said(
                "{bar}, {what}: {time}, {share} of it",
                bar=bars[at].name,
                what=name,
                time=duration(ns),
                share=percent(ns / bars[at].elapsed_ns),
            )
            for at, ns in kept
        ]
        places: list[Any] = [at if upright else escaped(bars[at].key) for at, _ in kept]
        values = [ns * unit.per_ns for _, ns in kept]
        marker = {"color": colour.on(theme), "line": {"color": SURFACE.on(theme), "width": 0.5}}
        if shape:
            marker |= hatching(theme, colour, shape)
        trace = {
            "type": "bar",
            "name": escaped(name),
            "x": places if upright else values,
            "y": values if upright else places,
            "marker": marker,
            "customdata": [escaped(text) for text in texts],
            "hovertemplate": HOVER,
        }
        role: Pick = {}
        if not upright:
            trace["orientation"] = "h"
            role = {"role": str(name)} if name in ROLE_COLOURS and name != _OTHER else {}
        data.append(picking(trace, ({**bars[at].pick, **role} for at, _ in kept)))
    return data


def _layers(
    activity: pl.DataFrame,
) -> list[tuple[str | Said, Colour, str, Mapping[Any, int]]]:
    """Name, colour, shape and time by key of what is stacked, from the bottom."""
    whole = max(int(activity["elapsed_ns"].sum()), 1)
    small = pl.col("elapsed_ns").sum().over("role") < _SMALL * whole
    unlisted = ~pl.col("role").is_in([*ROLE_COLOURS])
    work = activity.filter(pl.col("what") == Activity.WORK.value)
    work = work.with_columns(role=pl.when(small | unlisted).then(pl.lit(_OTHER)).otherwise("role"))
    found: list[tuple[str | Said, Colour, str, Mapping[Any, int]]] = []
    for role, colour in ROLE_COLOURS.items():
        if times := _times(work.filter(pl.col("role") == role)):
            found.append((role, colour, "", times))
    for what, (colour, shape) in _FILLS.items():
        if times := _times(activity.filter(pl.col("what") == what.value)):
            found.append((label(what), colour, shape, times))
    return found


def _times(rows: pl.DataFrame) -> dict[Any, int]:
    sums = rows.group_by("key", maintain_order=True).agg(pl.col("elapsed_ns").sum())
    return dict(sums.iter_rows())
