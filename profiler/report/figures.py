"""Plotly figures of a run and its analysis, for notebooks.

    from profiler.report import figures
    figures.steps(analysis).show()
    figures.timeline(run, call=6).show()

Figures of an analysis are the report's: `stages`, `steps`, `step_operators`, `operators`, `roles`,
`blocks`, … as `dir(figures)` lists them; each takes the analysis, a theme, and options by name.
They are found by `NAME_figure` functions of sections and by what tables declare.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import plotly.graph_objects as go
import polars as pl

from profiler.analysis.document import (
    CATEGORY_COLOURS,
    ROLE_COLOURS,
    Colour,
    Figure,
    Theme,
    submodule_colours,
)
from profiler.analysis.overview import extent
from profiler.analysis.question import tables
from profiler.analysis.result import Analysis
from profiler.compare.compare import Comparison
from profiler.errors import InputError
from profiler.prediction.predict import Prediction
from profiler.report.build import figure_of, section_figures
from profiler.report.charts import comparison as comparison_chart
from profiler.report.charts.comparison import before_and_after
from profiler.report.charts.style import (
    HOVER,
    Chart,
    bars_layout,
    draw,
    escaped,
    shortened,
    unit_for,
)
from profiler.run.run import Run
from profiler.text import count, duration

__all__ = ["TIMELINE_LIMIT", "comparison", "figure", "prediction", "timeline"]


TIMELINE_LIMIT = 4000  # bars that plotly still draws at once; of more, the longest are kept


def __getattr__(name: str) -> Callable[..., go.Figure]:
    """Return the figure function `name`: a section's `NAME_figure`, or the figure that the table
    `name` declares. Raises AttributeError if there is none."""
    if name.startswith("_"):
        raise AttributeError(name)
    make = _made().get(name)
    if make is None:
        raise AttributeError(f"no figure {name!r}: there is {', '.join(__dir__())}")

    def figure(analysis: Analysis, theme: Theme = "light", **options: Any) -> go.Figure:
        return _figure(draw(make(analysis, **options), theme))

    figure.__name__, figure.__doc__ = name, make.__doc__
    return figure


def figure(analysis: Analysis, name: str, theme: Theme = "light", **options: Any) -> go.Figure:
    """The figure `name` of an analysis (`Analysis.figure`). Raises InputError if there is none."""
    make = _made().get(name)
    if make is None:
        raise InputError(
            f"an analysis has no figure {name!r}: there is {', '.join(sorted(_made()))}"
        )
    return _figure(draw(make(analysis, **options), theme))


def __dir__() -> list[str]:
    return sorted({*__all__, *_made()})


def _made() -> dict[str, Callable[..., Figure]]:
    """Return the functions that make a figure of an analysis, by name."""
    declared = {
        table.name: partial(figure_of, table) for table in tables() if table.figure is not None
    }
    return {**declared, **section_figures()}


def comparison(found: Comparison, theme: Theme = "light") -> go.Figure:
    """Draw how much each part changed against the baseline, with its noise interval."""
    return _figure(comparison_chart.changes(found, theme))


def prediction(found: Prediction, theme: Theme = "light") -> go.Figure:
    """A request as measured and as predicted, by submodule, with the prediction's interval."""
    return _figure(before_and_after(found, theme))


def timeline(run: Run, call: int | None = None, theme: Theme = "light") -> go.Figure:
    """Draw the calls of `run`, one lane per device, or the commands of one `call`, one lane per
    track.

    Commands have the colour of their role, or of their track's category if they have none. Of more
    than `TIMELINE_LIMIT` the longest are drawn and the title says so. A run without calls shows its
    commands. Raises InputError if `call` is not in the run.
    """
    if call is None and len(run.calls):
        return go.Figure(_calls_chart(run, theme))
    if call is not None and call not in run.calls["call"]:
        last = len(run.calls) - 1
        raise InputError(f"{run.run_id} has no call {call}: choose one from 0 to {last}")
    return go.Figure(_commands_chart(run, call, theme))


def _figure(chart: Chart) -> go.Figure:
    """Return the chart as a plotly figure, without keys that only the page reads."""
    data = [{key: trace[key] for key in trace if key != "picks"} for trace in chart["data"]]
    return go.Figure({"data": data, "layout": chart["layout"]})


def _calls_chart(run: Run, theme: Theme) -> Chart:
    begin, _ = extent(run)
    colours = submodule_colours(run.calls["submodule"].unique().to_list())
    rows = [
        {
            **row,
            "lane": row["device"],
            "kind": row["submodule"],
            "colour": colours[row["submodule"]].on(theme),
            "text": f"{row['submodule']} {row['branch'] or ''}\ncall {row['call']}"
            + (f", step {row['step']}" if row["step"] >= 0 else "")
            + f"\n{duration(row['duration_ns'])}",
        }
        for row in run.calls.iter_rows(named=True)
    ]
    return _chart(rows, begin, theme, f"{count(len(rows))} calls")


def _commands_chart(run: Run, call: int | None, theme: Theme) -> Chart:
    frame = run.commands if call is None else run.commands.filter(pl.col("call") == call)
    drawn = frame.top_k(TIMELINE_LIMIT, by="duration_ns") if len(frame) > TIMELINE_LIMIT else frame
    ordered = drawn.sort("device", "category", "track", "start_ns")
    rows = [
        {
            **row,
            "lane": f"{row['device'] or ''} {row['track']}".strip(),
            "kind": row["role"] or row["category"],
            "colour": _colour(row).on(theme),
            "text": f"{shortened(row['layer'], 120)}\n{row['op_type'] or ''}\n"
            f"command {row['command_index']}, {duration(max(row['duration_ns'], 0))}",
        }
        for row in ordered.iter_rows(named=True)
    ]
    if call is None:
        begin, of = extent(run)[0], ""
    else:
        found = run.calls.row(by_predicate=pl.col("call") == call, named=True)
        begin, of = found["start_ns"], f" of call {call}, {found['submodule']}"
    total = f" of {count(len(frame))}, the longest" if len(drawn) < len(frame) else ""
    return _chart(rows, begin, theme, f"{count(len(drawn))}{total} commands{of}")


def _colour(command: dict[str, Any]) -> Colour:
    return ROLE_COLOURS.get(command["role"]) or CATEGORY_COLOURS[command["category"]]


def _chart(rows: list[dict[str, Any]], begin: int, theme: Theme, title: str) -> Chart:
    """Bars from start to end in lanes; rows of one kind share a trace and its legend entry."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    longest = max((row["start_ns"] + row["duration_ns"] - begin for row in rows), default=0)
    unit = unit_for(longest)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": escaped(kind),
            "y": [escaped(row["lane"]) for row in group],
            "base": [(row["start_ns"] - begin) * unit.per_ns for row in group],
            "x": [max(row["duration_ns"], 0) * unit.per_ns for row in group],
            "marker": {"color": group[0]["colour"], "line": {"width": 0}},
            "customdata": [escaped(row["text"]) for row in group],
            "hovertemplate": HOVER,
        }
        for kind, group in kinds.items()
    ]
    lanes = [*dict.fromkeys(row["lane"] for row in rows)]
    layout = bars_layout(theme, lanes, longest, row=34)
    layout["xaxis"] |= {"range": None, "fixedrange": False}
    layout["margin"] |= {"t": 76}
    heading = {"text": escaped(title), "font": {"size": 15}, "x": 0, "xref": "paper"}
    return {"data": data, "layout": layout | {"barmode": "overlay", "title": heading}}
