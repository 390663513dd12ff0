"""The style of charts, and charts that tables declare as data: bars, curves, icicles,
histograms."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType
from typing import Any, TypeVar

import polars as pl
from msgspec import Struct

from profiler.analysis.activity import Activity, OfDevice, activity_name
from profiler.analysis.document import (
    DEVICE_COLOURS,
    HOST,
    HOST_WORK,
    LINE,
    MUTED,
    PAGE,
    ROLE_COLOURS,
    SERIES,
    SURFACE,
    TEXT,
    Colour,
    Figure,
    Pick,
    Theme,
)
from profiler.analysis.idle_causes import UNKNOWN_CAUSE, WaitCause
from profiler.analysis.table_text import Node, labelled
from profiler.text import Said, count, duration, joined, percent, said

# --- The house style of charts: fonts, units, axes, and bars with labels at their ends.
#
# Names come from traces and manifests, and plotly reads a subset of HTML in every text: `escaped`
# turns them into text wherever they enter a chart.


FONT = (
    '-apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", '
    '"Liberation Sans", Arial, "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", '
    '"Noto Sans CJK KR", NanumGothic, sans-serif'
)
HOVER = "%{customdata}<extra></extra>"
FRAMED = "framed"  # instead of a line pattern: an outline only

Chart = dict[str, Any]


class Unit(Struct, frozen=True):
    """A unit of time on an axis: its name, and the factor from nanoseconds."""

    name: str
    per_ns: float


Drawing = TypeVar("Drawing", bound=Callable[..., Chart])
_DRAWINGS: dict[str, Callable[..., Chart]] = {}


def draws(kind: str) -> Callable[[Drawing], Drawing]:
    """Return a decorator that registers a function for drawing figures of this kind; it takes the
    data of the figure, then the theme. Raises ValueError if the kind has one already."""

    def register(function: Drawing) -> Drawing:
        if kind in _DRAWINGS:
            raise ValueError(f"figures of kind {kind!r} are drawn by {_DRAWINGS[kind].__name__}")
        _DRAWINGS[kind] = function
        return function

    return register


@cache
def drawings() -> Mapping[str, Callable[..., Chart]]:
    """Return the drawing functions by kind, from every module of `report.charts`."""
    package = import_module("profiler.report.charts")
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return MappingProxyType(_DRAWINGS)


def draw(figure: Figure, theme: Theme) -> Chart:
    """The figure as plain plotly JSON."""
    return drawings()[figure.kind](*figure.data, theme)


def unit_for(longest_ns: int) -> Unit:
    """Choose the unit for an axis up to `longest_ns`; ms from 1 ms to 10 s."""
    units = ((10**10, "s", 1e-9), (10**6, "ms", 1e-6), (10**3, "µs", 1e-3))
    for least, name, per_ns in units:
        if longest_ns >= least:
            return Unit(name, per_ns)
    return Unit("ns", 1.0)


def escaped(name: object) -> str:
    """Escape `name` so that plotly shows it literally; line breaks stay line breaks."""
    return name.changed(_escaped) if isinstance(name, Said) else _escaped(str(name))


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("\n", "<br>")


def shortened(name: str, limit: int = 46) -> str:
    """Shorten a name to `limit` characters; a path keeps its end, which distinguishes layers."""
    if isinstance(name, Said):
        return name.changed(lambda text: shortened(text, limit))
    if len(name) <= limit:
        return name
    if ("." in name or "/" in name) and ", " not in name:
        return "…" + name[1 - limit :].lstrip("./_")
    return name[: limit - 1] + "…"


def distinguished(names: Sequence[str], places: Sequence[str | None]) -> list[str]:
    """Return the names of rows; a name that several rows have gets the row's place."""
    times = Counter(names)
    return [
        joined(" · ", [name, place]) if place and times[name] > 1 else name
        for name, place in zip(names, places, strict=True)
    ]


def layout(theme: Theme) -> dict[str, Any]:
    """The house style: system fonts, quiet axes, the page's surface behind everything."""
    axis = {
        "showgrid": False,
        "zeroline": False,
        "gridcolor": LINE.on(theme),
        "linecolor": LINE.on(theme),
        "tickfont": {"size": 12, "color": MUTED.on(theme)},
        "title": {"font": {"size": 12, "color": MUTED.on(theme)}, "standoff": 6},
        "automargin": True,
        "fixedrange": True,
        "exponentformat": "none",
        "separatethousands": True,
    }
    return {
        "font": {"family": FONT, "size": 13, "color": TEXT.on(theme)},
        "paper_bgcolor": SURFACE.on(theme),
        "plot_bgcolor": SURFACE.on(theme),
        "margin": {"l": 8, "r": 12, "t": 34, "b": 8},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left"},
        "hovermode": "closest",
        "showlegend": True,
        "xaxis": axis,
        "yaxis": {**axis},
    }


def titled(made: Chart, **titles: str) -> None:
    """Set the titles of axes, by name."""
    for axis, text in titles.items():
        made[axis]["title"] = made[axis]["title"] | {"text": text}


def bars(
    name: str,
    values: Mapping[str, int],
    unit: Unit,
    colour: str | list[str],
    texts: Iterable[str],
    theme: Theme,
) -> dict[str, Any]:
    """A trace of horizontal bars: the ns of each key of `values`, with `texts` on hovering."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": escaped(name),
        "y": [escaped(key) for key in values],
        "x": [value * unit.per_ns for value in values.values()],
        "marker": {"color": colour, "line": {"color": SURFACE.on(theme), "width": 1}},
        "customdata": [escaped(text) for text in texts],
        "hovertemplate": HOVER,
    }


def picking(trace: dict[str, Any], picks: Iterable[Pick]) -> dict[str, Any]:
    """Add to `trace` what a click on each of its points selects in the page.

    A pick maps `stage`, `submodule`, `branch`, `step`, `device`, `role` or `operator` (a layer or
    its pattern) to a value; None is left out. Names are not escaped, so plotly must never draw
    them: it ignores `picks`.
    """
    known = [{name: value for name, value in pick.items() if value is not None} for pick in picks]
    return trace | {"picks": known}


def hatching(theme: Theme, line: Colour, shape: str = "/") -> dict[str, Any]:
    """Return the marker style of waiting: lines across a ground. Time that is not known to be
    waiting has the colour `frame`, and the page's ground."""
    ground = (SURFACE if line == PAGE["frame"] else PAGE["wait"]).on(theme)
    if shape == FRAMED:
        return {"color": ground, "line": {"color": line.on(theme), "width": 1.5}}
    lines = {"shape": shape, "fgcolor": line.on(theme), "size": 6, "solidity": 0.35}
    return {"color": ground, "pattern": {**lines, "bgcolor": ground}}


def bars_layout(
    theme: Theme, names: Sequence[str], longest_ns: int, *, row: int = 44
) -> dict[str, Any]:
    """The layout of horizontal bars in reading order, `row` px each, with room for labels."""
    made = layout(theme)
    made["yaxis"] |= {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [escaped(name) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "tickfont": {"size": 12.5, "color": TEXT.on(theme)},
        "ticks": "",
        "ticklabelstandoff": 6,
    }
    unit = unit_for(longest_ns)
    made["xaxis"] |= {"range": [0, max(longest_ns, 1) * unit.per_ns * 1.2], "showgrid": True}
    titled(made, xaxis=unit.name)
    height = 92 + row * max(len(names), 1)
    return made | {"barmode": "stack", "bargap": 0.35, "height": height}


def end_labels(
    values: Mapping[str, int], unit: Unit, texts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return annotations: the text of each key of `values`, right of the end of its bar."""
    return [
        {
            "x": ns * unit.per_ns,
            "y": escaped(key),
            "text": escaped(texts[key]),
            "showarrow": False,
            "xanchor": "left",
            "xshift": 4,
        }
        for key, ns in values.items()
    ]


# --- Horizontal bars that a table declares: a bar per row, divided by its columns of values.


_ROWS = 15


@draws("bars")
def draw_bars(columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme) -> Chart:
    """Draw the first rows of `frame` as bars, named by the columns `label`; a bar is the sum of the
    columns `values`."""
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


# --- Shares over time that a table declares: one curve per series.


_DASHES = ("solid", "dot", "dash", "dashdot", "longdash")


def dash_of(number: int) -> str:
    """The dash pattern for a device's line, because shades of grey are hard to distinguish."""
    return _DASHES[number % len(_DASHES)]


@draws("curves")
def draw_curves(columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme) -> Chart:
    """Draw the column `share` over the column `time` (from the first time), one curve per value of
    `series`."""
    (series,), (time,), (share,) = (columns[name] for name in ("series", "time", "share"))
    times = frame[time].to_list()
    begin = min(times, default=0)
    unit = unit_for(max(times, default=0) - begin)
    data: list[dict[str, Any]] = []
    for number, (name, rows) in enumerate(frame.group_by(series, maintain_order=True)):
        colour = DEVICE_COLOURS[number % len(DEVICE_COLOURS)].on(theme)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(name[0]),
                "x": ((rows[time] - begin) * unit.per_ns).round(3).to_list(),
                "y": rows[share].round(3).to_list(),
                "line": {"color": colour, "width": 1.5, "shape": "hv", "dash": dash_of(number)},
                "fill": "tozeroy",
                "fillcolor": colour + "26",
                "hovertemplate": "%{x} " + unit.name + ": %{y:.1%}<extra></extra>",
            }
        )
    made = layout(theme)
    titled(made, xaxis=said("{unit} since start", unit=unit.name))
    made["yaxis"] |= {"range": [0, 1], "tickformat": ".0%", "showgrid": True}
    return {"data": data, "layout": made | {"height": 220, "showlegend": len(data) > 1}}


# --- A tree that a table declares: each node as wide as its time, below its parent.


_HEIGHT = 640


@draws("icicle")
def draw_icicle(columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme) -> Chart:
    """Draw the nodes below their `parent`, as wide as `value` including all nodes within. Roles and
    leaves are coloured by `role`, nodes around them are not."""
    (parent,), (value,), (role,) = (columns[name] for name in ("parent", "value", "role"))
    rows = labelled(frame).rows(named=True)
    widths = _widths([row[parent] for row in rows], [row[value] for row in rows])
    whole = max(widths, default=0)
    parents = {row[parent] for row in rows}
    colours = []
    for number, row in enumerate(rows):
        plain = number in parents and row["kind"] != Node.ROLE
        colour = None if plain else ROLE_COLOURS.get(row[role] or "")
        colours.append((colour or PAGE["parent"]).on(theme))
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
    """Return the values, raised to the sum of their children where smaller, because plotly requires
    it. A residual may be negative."""
    found, inner = list(values), [0] * len(values)
    for at in range(len(found) - 1, -1, -1):
        found[at] = max(found[at], inner[at])
        if 0 <= parents[at] < at:
            inner[parents[at]] += found[at]
    return found


# --- A histogram that a table declares, with one row per interval of durations.


@draws("histogram")
def draw_histogram(
    columns: Mapping[str, tuple[str, ...]], frame: pl.DataFrame, theme: Theme
) -> Chart:
    """Draw one bar per interval (column `from` to `below`), as high as `count`; the `total` time
    shows on hovering. Each value of `series` has a colour."""
    (series,), (start,), (below,), (number,), (total,) = (
        columns[name] for name in ("series", "from", "below", "count", "total")
    )
    starts = sorted(frame[start].unique().to_list())
    place = {ns: at for at, ns in enumerate(starts)}
    data: list[dict[str, Any]] = []
    for at, ((name,), rows) in enumerate(frame.group_by(series, maintain_order=True)):
        whole = max(int(rows[total].sum()), 1)
        texts = [
            said(
                "{name}: {number} take {low} to {high}, together {time}, {share}",
                name=name,
                number=count(row[number]),
                low=duration(row[start]),
                high=duration(row[below]),
                time=duration(row[total]),
                share=percent(row[total] / whole),
            )
            for row in rows.iter_rows(named=True)
        ]
        fill = DEVICE_COLOURS[at % len(DEVICE_COLOURS)].on(theme)
        data.append(
            {
                "type": "bar",
                "name": escaped(name),
                "x": [place[ns] for ns in rows[start]],
                "y": rows[number].to_list(),
                "marker": {"color": fill, "line": {"color": SURFACE.on(theme), "width": 1}},
                "customdata": [escaped(text) for text in texts],
                "hovertemplate": HOVER,
            }
        )
    made = layout(theme)
    labels = [escaped(duration(ns)) for ns in starts]
    made["xaxis"] |= {
        "tickvals": [at - 0.5 for at in range(len(starts))],
        "ticktext": labels,
        # without a tick in the range plotly.js does not place the title
        "range": [-0.6, len(starts) - 0.4],
    }
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    titled(made, xaxis=said("duration"), yaxis=said("executions"))
    shape = {"barmode": "stack", "bargap": 0.06, "height": 260, "showlegend": len(data) > 1}
    return {"data": data, "layout": made | shape}


# --- Bars of device activity as plotly traces: roles in their colours, waiting hatched.


_SMALL = 0.01  # of the total: smaller roles are drawn as "other"
_OTHER = "other"
_FILLS: dict[str, tuple[Colour, str]] = {  # colour, and the lines of waiting
    Activity.OTHER_WORK: (PAGE["busy"], ""),
    Activity.UNTRACED: (PAGE["frame"], "x"),
    Activity.NO_OPERATOR: (PAGE["frame"], "\\"),
    Activity.LAUNCH_BOUND: (PAGE["wait-line"], "/"),
    Activity.WAIT: (PAGE["wait-line"], "\\"),
    WaitCause.COPY: (PAGE["wait-line"], "|"),
    WaitCause.OTHER_DEVICE: (PAGE["wait-line"], "+"),
    WaitCause.QUEUE: (PAGE["wait-line"], "."),
    WaitCause.SYNC: (PAGE["wait-line"], "x"),
    UNKNOWN_CAUSE: (HOST, "/"),
    Activity.HOST_WORK: (HOST_WORK, "x"),
    Activity.IDLE: (PAGE["wait-line"], "-"),
    OfDevice.UNRECORDED: (PAGE["frame"], "."),
    OfDevice.UNALLOCATED: (PAGE["counter"], "/"),
}


class Bar(Struct, frozen=True):
    """One bar: the `key` of its rows, its name in texts, its length, and what a click selects."""

    key: str
    name: str
    elapsed_ns: int
    pick: Pick


def stacked(
    activity: pl.DataFrame, bars: Sequence[Bar], unit: Unit, theme: Theme, *, upright: bool = True
) -> list[dict[str, Any]]:
    """Return a trace for each role and each kind of waiting in `activity` (column `key`). Upright
    bars are at 0, 1, …, horizontal ones at their keys. A click on a horizontal bar selects its
    role, too; on an upright one, a step, the whole step."""
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
) -> Iterator[tuple[str | Said, Colour, str, Mapping[Any, int]]]:
    """Yield the layers of stacked bars from the bottom: name, colour, pattern, and time by key."""
    whole = max(int(activity["elapsed_ns"].sum()), 1)
    small = pl.col("elapsed_ns").sum().over("role") < _SMALL * whole
    unlisted = ~pl.col("role").is_in([*ROLE_COLOURS])
    work = activity.filter(pl.col("what") == Activity.WORK.value)
    work = work.with_columns(role=pl.when(small | unlisted).then(pl.lit(_OTHER)).otherwise("role"))
    for role, colour in ROLE_COLOURS.items():
        if times := _times(work.filter(pl.col("role") == role)):
            yield (role, colour, "", times)
    for what, (colour, shape) in _FILLS.items():
        if times := _times(activity.filter(pl.col("what") == str(what))):
            yield (activity_name(what), colour, shape, times)


def _times(rows: pl.DataFrame) -> dict[Any, int]:
    sums = rows.group_by("key", maintain_order=True).agg(pl.col("elapsed_ns").sum())
    return dict(sums.iter_rows())
