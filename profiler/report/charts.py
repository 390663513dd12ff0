"""Charts of an analysis as plain plotly JSON: `{"data": [...], "layout": {...}}`.

`profiler.report.figures` makes plotly figures of them; the HTML page takes them as they are, which
spares it plotly's checks of every property (a second for eight small figures).

Names come from traces and manifests, and plotly reads a subset of HTML in every text: `escaped`
turns them into text wherever they enter a chart.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from profiler.analysis.result import Analysis
from profiler.events import CATEGORIES
from profiler.report.palette import (
    CATEGORY_COLOURS,
    HOST,
    IDLE,
    LINE,
    MUTED,
    SERIES,
    SURFACE,
    TEXT,
    Theme,
    submodule_colours,
)
from profiler.report.patterns import by_pattern
from profiler.report.units import count, duration, percent

__all__ = [
    "FONT",
    "HOVER",
    "Chart",
    "Unit",
    "bars",
    "bars_layout",
    "devices",
    "escaped",
    "layout",
    "operators",
    "shortened",
    "stages",
    "steps",
    "unit_for",
]

FONT = (
    '-apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", '
    '"Liberation Sans", Arial, sans-serif'
)
HOVER = "%{customdata}<extra></extra>"
_CALLS = "calls, several at once"
_FIXED = {_CALLS: SERIES[0], "host work": HOST, "idle": IDLE}

Chart = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time on an axis: `name`, and how many of it one nanosecond is."""

    name: str
    per_ns: float


def unit_for(longest_ns: int) -> Unit:
    """The unit in which an axis to `longest_ns` reads best; ms from 1 ms to 100 s."""
    units = ((10**11, "s", 1e-9), (10**6, "ms", 1e-6), (10**3, "µs", 1e-3))
    for least, name, per_ns in units:
        if longest_ns >= least:
            return Unit(name, per_ns)
    return Unit("ns", 1.0)


def escaped(name: object) -> str:
    """`name` as plotly shows it literally; line breaks stay line breaks."""
    return html.escape(str(name), quote=False).replace("\n", "<br>")


def shortened(name: str, limit: int = 46) -> str:
    """A long name at `limit` characters: of a path its end, which tells layers apart."""
    if len(name) <= limit:
        return name
    if "." in name or "/" in name:
        return "…" + name[1 - limit :].lstrip("./_")
    return name[: limit - 1] + "…"


def stages(analysis: Analysis, theme: Theme = "light") -> Chart:
    """One bar a stage: its submodules' calls, the host work between them, and idle time.

    Submodules show as such where their calls do not overlap; otherwise the calls are one part.
    """
    rows = list(analysis.stages.iter_rows(named=True))
    colours = {**submodule_colours(analysis.submodules["submodule"]), **_FIXED}
    of_stage = {row["stage"]: _stage_parts(analysis, row) for row in rows}
    present = dict.fromkeys(name for parts in of_stage.values() for name in parts)
    ordered = sorted(present, key=lambda name: [*_FIXED].index(name) if name in _FIXED else -1)
    totals = {stage: sum(parts.values()) for stage, parts in of_stage.items()}
    unit = unit_for(max(totals.values(), default=0))
    data = []
    for name in ordered:
        values = {stage: parts[name] for stage, parts in of_stage.items() if name in parts}
        texts = [f"{name} in {stage}: {duration(ns)}" for stage, ns in values.items()]
        data.append(bars(name, values, unit, colours[name].on(theme), texts, theme))
    shares = {row["stage"]: row["share"] for row in rows}
    notes = {
        stage: duration(total) + ("" if shares[stage] is None else f"  {percent(shares[stage])}")
        for stage, total in totals.items()
    }
    made = bars_layout(theme, [*totals], max(totals.values(), default=0))
    made["annotations"] = _end_labels(totals, unit, notes)
    return {"data": data, "layout": made}


def _stage_parts(analysis: Analysis, row: Mapping[str, Any]) -> dict[str, int]:
    """Time of one stage by part; adds up to its duration where the accounting is possible."""
    of_stage = analysis.calls.filter(pl.col("stage") == row["stage"])
    sums = of_stage.group_by("submodule", maintain_order=True).agg(pl.col("duration_ns").sum())
    by_submodule = dict(sums.iter_rows())
    complete = sum(by_submodule.values()) == row["calls_ns"]
    parts = by_submodule if complete else {_CALLS: row["calls_ns"]}
    return parts | {"host work": row["host_ns"] or 0, "idle": row["idle_ns"] or 0}


def devices(analysis: Analysis, theme: Theme = "light") -> Chart:
    """For each device how long its commands of each category ran, as wall unions."""
    rows = list(analysis.devices.iter_rows(named=True))
    data, values, notes = [], {}, {}
    for row in rows:
        for category in CATEGORIES:
            ns, span = row[f"{category}_ns"], row["span_ns"]
            if ns:
                key = f"{row['device']}  {category}"
                values[key] = ns
                notes[key] = duration(ns) + (f"  {percent(ns / span)}" if span else "")
    unit = unit_for(max(values.values(), default=0))
    for category in CATEGORIES:
        found = {key: ns for key, ns in values.items() if key.endswith(f"  {category}")}
        texts = [f"{key}: {notes[key]} of the device's span" for key in found]
        if found:
            colour = CATEGORY_COLOURS[category].on(theme)
            data.append(bars(category, found, unit, colour, texts, theme))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=26)
    made |= {"annotations": _end_labels(values, unit, notes), "showlegend": False}
    made["margin"] |= {"t": 8}
    return {"data": data, "layout": made}


def operators(
    analysis: Analysis, top: int = 15, theme: Theme = "light", *, patterns: bool = True
) -> Chart:
    """The `top` operators by busy sum, in the colour of their submodule.

    With `patterns`, the equal layers of repeated blocks are one bar.
    """
    table = by_pattern(analysis.operators) if patterns else analysis.operators
    rows = list(table.filter(~pl.col("host")).head(top).iter_rows(named=True))
    colours = submodule_colours(analysis.submodules["submodule"])
    fills = [colours.get(row["submodule"], HOST).on(theme) for row in rows]
    values = {str(number): row["busy_sum_ns"] for number, row in enumerate(rows)}
    texts = [
        f"{row['submodule'] or 'no call'}: {shortened(row['layer'], 120)}\n"
        f"{shortened(row['op_types'], 120)}\n{count(row['commands'])} commands, "
        f"busy {duration(row['busy_sum_ns'])}, wall {duration(row['wall_union_ns'])}"
        for row in rows
    ]
    shares = {str(i): percent(row["share"] or 0) for i, row in enumerate(rows)}
    unit = unit_for(max(values.values(), default=0))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=25)
    labels = [escaped(shortened(row["layer"])) for row in rows]
    made["yaxis"] |= {"tickvals": [*values], "ticktext": labels}
    made |= {"annotations": _end_labels(values, unit, shares), "showlegend": False}
    made["margin"] |= {"t": 8}
    return {"data": [bars("busy sum", values, unit, fills, texts, theme)], "layout": made}


def steps(analysis: Analysis, theme: Theme = "light") -> Chart:
    """Duration of each step from 0, the median as a line, outliers in another colour."""
    rows = list(analysis.steps.iter_rows(named=True))
    several = len({row["pipeline"] for row in rows}) > 1
    names = [f"{row['pipeline']}:{row['step']}" if several else str(row["step"]) for row in rows]
    unit = unit_for(analysis.step_summary.max_ns)
    data = []
    for label, outlier, colour in (("step", False, SERIES[0]), ("outlier", True, SERIES[4])):
        kept = [i for i, row in enumerate(rows) if row["outlier"] is outlier]
        trace = {
            "type": "bar",
            "name": label,
            "x": kept,
            "y": [rows[i]["duration_ns"] * unit.per_ns for i in kept],
            "width": 0.76 if len(rows) > 8 else 0.4,
            "marker": {"color": colour.on(theme), "line": {"width": 0}},
            "customdata": [escaped(_step_text(names[i], rows[i])) for i in kept],
            "hovertemplate": HOVER,
        }
        data.extend([trace] if kept else [])
    if rows:
        data.append(_median_line(analysis, unit, theme))
    shown = range(0, len(rows), max(1, -(-len(rows) // 28)))
    made = layout(theme)
    made["xaxis"] |= {"tickvals": [*shown], "ticktext": [names[i] for i in shown]}
    made["xaxis"]["title"] = made["xaxis"]["title"] | {"text": "step"}
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    made["yaxis"]["title"] = made["yaxis"]["title"] | {"text": unit.name}
    return {"data": data, "layout": made | {"height": 290}}


def _median_line(analysis: Analysis, unit: Unit, theme: Theme) -> dict[str, Any]:
    median_ns = analysis.step_summary.median_ns
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"median {duration(median_ns)}",
        "x": [-0.5, len(analysis.steps) - 0.5],
        "y": [median_ns * unit.per_ns] * 2,
        "line": {"color": TEXT.on(theme), "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _step_text(name: str, row: Mapping[str, Any]) -> str:
    parts = ("calls_ns", "host_ns", "idle_ns")
    split = ", ".join(f"{part[:-3]} {duration(row[part])}" for part in parts)
    outlier = " (outlier)" if row["outlier"] else ""
    return f"step {name}{outlier}: {duration(row['duration_ns'])}\n{split}"


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
    }
    return {
        "font": {"family": FONT, "size": 13, "color": TEXT.on(theme)},
        "paper_bgcolor": SURFACE.on(theme),
        "plot_bgcolor": SURFACE.on(theme),
        "margin": {"l": 8, "r": 12, "t": 34, "b": 8},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left"},
        "hovermode": "closest",
        "showlegend": True,
        "xaxis": axis,
        "yaxis": {**axis},
    }


def bars(
    name: str,
    values: Mapping[str, int],
    unit: Unit,
    colour: str | list[str],
    texts: Iterable[str],
    theme: Theme,
) -> dict[str, Any]:
    """A trace of horizontal bars: for each key of `values` its ns, `texts` on hovering."""
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


def bars_layout(
    theme: Theme, names: Sequence[str], longest_ns: int, *, row: int = 44
) -> dict[str, Any]:
    """Horizontal bars in reading order, `row` px each, with room for labels at their ends."""
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
    made["xaxis"]["title"] = made["xaxis"]["title"] | {"text": unit.name}
    height = 92 + row * max(len(names), 1)
    return made | {"barmode": "stack", "bargap": 0.35, "height": height}


def _end_labels(
    values: Mapping[str, int], unit: Unit, texts: Mapping[str, str]
) -> list[dict[str, Any]]:
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

