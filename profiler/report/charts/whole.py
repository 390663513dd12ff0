"""Charts of an analysis as plain plotly JSON: `{"data": [...], "layout": {...}}`.

`profiler.report.figures` makes plotly figures of them; the HTML page takes them as they are, which
spares it plotly's checks of every property (a second for eight small figures).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from profiler.analysis.result import Analysis
from profiler.events import CATEGORIES
from profiler.messages import said
from profiler.report.charts.style import (
    HOVER,
    Chart,
    Unit,
    bars,
    bars_layout,
    end_labels,
    escaped,
    layout,
    picking,
    shortened,
    unit_for,
)
from profiler.report.charts.palette import (
    CATEGORY_COLOURS,
    HOST,
    IDLE,
    SERIES,
    TEXT,
    Colour,
    Theme,
    submodule_colours,
)
from profiler.report.patterns import by_pattern
from profiler.report.units import count, duration, percent

__all__ = ["devices", "operators", "stages", "steps"]

_CALLS = said("calls, several at once")
_HOST_WORK, _NOTHING = said("host work"), said("idle")
_FIXED: dict[str, Colour] = {_CALLS: SERIES[0], _HOST_WORK: HOST, _NOTHING: IDLE}


def stages(analysis: Analysis, theme: Theme = "light") -> Chart:
    """One bar a stage: its submodules' calls, the host work between them, and idle time.

    Submodules show as such where their calls do not overlap; otherwise the calls are one part.
    """
    rows = list(analysis.stages.iter_rows(named=True))
    colours = {**_colours(analysis), **_FIXED}
    of_stage = {row["stage"]: _stage_parts(analysis, row) for row in rows}
    present = dict.fromkeys(name for parts in of_stage.values() for name in parts)
    ordered = sorted(present, key=lambda name: [*_FIXED].index(name) if name in _FIXED else -1)
    totals = {stage: sum(parts.values()) for stage, parts in of_stage.items()}
    unit = unit_for(max(totals.values(), default=0))
    data = []
    for name in ordered:
        values = {stage: parts[name] for stage, parts in of_stage.items() if name in parts}
        texts = [
            said("{name} in {stage}: {time}", name=name, stage=stage, time=duration(ns))
            for stage, ns in values.items()
        ]
        trace = bars(name, values, unit, colours[name].on(theme), texts, theme)
        submodule = None if name in _FIXED else name
        data.append(picking(trace, ({"stage": stage, "submodule": submodule} for stage in values)))
    shares = {row["stage"]: row["share"] for row in rows}
    notes = {
        stage: duration(total) + ("" if shares[stage] is None else f"  {percent(shares[stage])}")
        for stage, total in totals.items()
    }
    made = bars_layout(theme, [*totals], max(totals.values(), default=0))
    made["annotations"] = end_labels(totals, unit, notes)
    return {"data": data, "layout": made}


def _colours(analysis: Analysis) -> dict[str, Colour]:
    """Colours of all submodules of the run, so that a selection does not change any."""
    return submodule_colours(part.submodule for part in analysis.accounting.submodules)


def _stage_parts(analysis: Analysis, row: Mapping[str, Any]) -> dict[str, int]:
    """Time of one stage by part; adds up to its duration where the accounting is possible."""
    of_stage = analysis.calls.filter(pl.col("stage") == row["stage"])
    if analysis.accounting.calls_outside:
        of_stage = of_stage.filter(pl.col("pipeline") >= 0)
    sums = of_stage.group_by("submodule", maintain_order=True).agg(pl.col("duration_ns").sum())
    by_submodule = dict(sums.iter_rows())
    complete = sum(by_submodule.values()) == row["calls_ns"]
    parts = by_submodule if complete else {_CALLS: row["calls_ns"]}
    return parts | {_HOST_WORK: row["host_ns"] or 0, _NOTHING: row["idle_ns"] or 0}


def devices(analysis: Analysis, theme: Theme = "light") -> Chart:
    """For each device how long its commands of each category ran, as wall unions."""
    rows = list(analysis.devices.iter_rows(named=True))
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


def operators(
    analysis: Analysis, top: int = 15, theme: Theme = "light", *, patterns: bool = True
) -> Chart:
    """The `top` operators by busy sum, in the colour of their submodule.

    With `patterns`, the equal layers of repeated blocks are one bar.
    """
    table = by_pattern(analysis.operators) if patterns else analysis.operators
    rows = list(table.filter(~pl.col("host")).head(top).iter_rows(named=True))
    colours = _colours(analysis)
    fills = [colours.get(row["submodule"], HOST).on(theme) for row in rows]
    values = {str(number): row["busy_sum_ns"] for number, row in enumerate(rows)}
    texts = [
        said(
            "{submodule}: {layer}\n{op_types}\n{commands} commands, busy {busy}, wall {wall}",
            submodule=row["submodule"] or said("no call"),
            layer=shortened(row["layer"], 120),
            op_types=shortened(row["op_types"], 120),
            commands=count(row["commands"]),
            busy=duration(row["busy_sum_ns"]),
            wall=duration(row["wall_union_ns"]),
        )
        for row in rows
    ]
    shares = {str(i): percent(row["share"] or 0) for i, row in enumerate(rows)}
    unit = unit_for(max(values.values(), default=0))
    made = bars_layout(theme, [*values], max(values.values(), default=0), row=25)
    labels = [escaped(shortened(row["layer"])) for row in rows]
    made["yaxis"] |= {"tickvals": [*values], "ticktext": labels}
    made |= {"annotations": end_labels(values, unit, shares), "showlegend": False}
    made["margin"] |= {"t": 8}
    trace = bars(said("busy sum"), values, unit, fills, texts, theme)
    picks = ({"submodule": row["submodule"], "operator": row["layer"]} for row in rows)
    return {"data": [picking(trace, picks)], "layout": made}


def steps(analysis: Analysis, theme: Theme = "light") -> Chart:
    """Duration of each step from 0, the median as a line, outliers in another colour."""
    rows = list(analysis.steps.iter_rows(named=True))
    several = len({row["pipeline"] for row in rows}) > 1
    names = [f"{row['pipeline']}:{row['step']}" if several else str(row["step"]) for row in rows]
    unit = unit_for(analysis.step_summary.max_ns)
    data = []
    for label, outlier, colour in (
        (said("step"), False, SERIES[0]),
        (said("outlier"), True, SERIES[4]),
    ):
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
        if kept:
            data.append(picking(trace, ({"step": rows[i]["step"]} for i in kept)))
    if rows:
        data.append(_median_line(analysis, unit, theme))
    shown = range(0, len(rows), max(1, -(-len(rows) // 28)))
    made = layout(theme)
    made["xaxis"] |= {"tickvals": [*shown], "ticktext": [names[i] for i in shown]}
    made["xaxis"]["title"] = made["xaxis"]["title"] | {"text": said("step")}
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    made["yaxis"]["title"] = made["yaxis"]["title"] | {"text": unit.name}
    return {"data": data, "layout": made | {"height": 290}}


def _median_line(analysis: Analysis, unit: Unit, theme: Theme) -> dict[str, Any]:
    median_ns = analysis.step_summary.median_ns
    return {
        "type": "scatter",
        "mode": "lines",
        "name": said("median {median}", median=duration(median_ns)),
        "x": [-0.5, len(analysis.steps) - 0.5],
        "y": [median_ns * unit.per_ns] * 2,
        "line": {"color": TEXT.on(theme), "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _step_text(name: str, row: Mapping[str, Any]) -> str:
    split = said(
        "calls {calls}, host {host}, idle {idle}",
        calls=duration(row["calls_ns"]),
        host=duration(row["host_ns"]),
        idle=duration(row["idle_ns"]),
    )
    title = said("step {step}", step=name)
    if row["outlier"]:
        title = said("step {step} (outlier)", step=name)
    branches = f"\n{row['branches']}" if "," in row["branches"] else ""
    took = duration(row["duration_ns"])
    return said(
        "{step}: {took}\n{split}{branches}", step=title, took=took, split=split, branches=branches
    )
