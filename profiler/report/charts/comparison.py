"""Charts of changes: against a baseline, or by a prediction, as plain plotly JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from profiler.analysis.document import (
    HOST,
    LINE,
    PAGE,
    ROLE_COLOURS,
    TEXT,
    Theme,
    submodule_colours,
)
from profiler.analysis.table_text import label
from profiler.compare.tables import Verdict
from profiler.prediction.predict import Prediction
from profiler.report.charts.style import (
    HOVER,
    Chart,
    bars,
    bars_layout,
    draws,
    end_labels,
    escaped,
    shortened,
    titled,
    unit_for,
)
from profiler.text import duration, said

if TYPE_CHECKING:
    from profiler.compare.compare import Comparison


# --- The chart of how much each part changed against a baseline, as plain plotly JSON.


_WHOLE = ("end_to_end", "stage", "step", "submodule")
_ROLES = 8  # those that differ most
_ROWS = 24
_LEAST = -110.0  # per cent: a part that vanished is at -100
_LEAST_SPAN = 10.0  # per cent that an interval may exceed all changes by
_SMALL = {"size": 11}
_VERDICTS = {
    Verdict.SLOWER: (PAGE["alert"], "triangle-right"),
    Verdict.FASTER: (ROLE_COLOURS["convolution"], "triangle-left"),
    Verdict.WITHIN_NOISE: (HOST, "circle"),
    Verdict.UNCLEAR: (HOST, "diamond-open"),
    Verdict.MEASURED_ONCE: (HOST, "circle-open"),
}


@draws("comparison")
def changes(comparison: Comparison, theme: Theme = "light") -> Chart:
    """Draw each part's change in per cent as a point with its noise interval: the whole first, then
    stages, steps, submodules and the roles that differ most. If an interval extends far beyond all
    changes, a text at the edge gives its end."""
    rows = _rows(comparison.metrics)
    data = []
    for verdict, (colour, symbol) in _VERDICTS.items():
        own = [(number, row) for number, row in enumerate(rows) if row["verdict"] == verdict]
        if not own:
            continue
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(verdict),
                "y": [str(number) for number, _ in own],
                "x": [_percent(row["change"]) for _, row in own],
                "error_x": _interval([row for _, row in own], colour.on(theme)),
                "marker": {"color": colour.on(theme), "symbol": symbol, "size": 11},
                "customdata": [escaped(_change_text(row)) for _, row in own],
                "hovertemplate": HOVER,
            }
        )
    return {"data": data, "layout": _layout(rows, theme)}


def _rows(metrics: pl.DataFrame) -> list[dict[str, object]]:
    first = pl.col("metric").str.ends_with(".first")
    known = metrics.filter(pl.col("change").is_not_null() & pl.col("step").is_null() & ~first)
    whole = known.filter(pl.col("level").is_in(_WHOLE))
    roles = known.filter(pl.col("level") == "role").sort(
        pl.col("difference_ns").abs(), descending=True, maintain_order=True
    )
    return [*whole.head(_ROWS - _ROLES).to_dicts(), *roles.head(_ROLES).to_dicts()]


def _interval(rows: list[dict[str, object]], colour: str) -> Chart:
    """The ends of the intervals as distances from the change; None if it was measured
    once."""
    ends = [(_percent(row["change"]), row["low"], row["high"]) for row in rows]
    return {
        "type": "data",
        "visible": any(row["low"] is not None for row in rows),
        "symmetric": False,
        "array": [None if high is None else round(_percent(high) - x, 4) for x, _, high in ends],
        "arrayminus": [None if low is None else round(x - _percent(low), 4) for x, low, _ in ends],
        "color": colour,
        "thickness": 1.6,
        "width": 4,
    }


def _percent(ratio: object) -> float:
    return round(100 * float(str(ratio)), 4)


def _change_text(row: dict[str, object]) -> str:
    return said(
        "{metric}: {change} %, {base} → {new}, {verdict}",
        metric=row["metric"],
        change=f"{_percent(row['change']):+.1f}",
        base=duration(float(str(row["base_ns"]))),
        new=duration(float(str(row["new_ns"]))),
        verdict=label(Verdict(str(row["verdict"]))),
    )


def _range(rows: list[dict[str, object]]) -> tuple[float, float] | None:
    """The ends of the axis in per cent if an interval exceeds all changes by far, else None."""
    changes = [0.0, *(_percent(row["change"]) for row in rows)]
    ends = [
        _percent(row[name]) for row in rows for name in ("low", "high") if row[name] is not None
    ]
    low, high = min(changes), max(changes)
    beyond = max(high - low, _LEAST_SPAN)
    edges = max(low - beyond, _LEAST), high + beyond
    return edges if any(not edges[0] <= end <= edges[1] for end in ends) else None


def _cut_off(rows: list[dict[str, object]], edges: tuple[float, float]) -> list[dict[str, object]]:
    """Annotations at the ends of the axis with the ends of intervals beyond it."""
    found = []
    for number, row in enumerate(rows):
        for name, right in (("low", False), ("high", True)):
            end = None if row[name] is None else _percent(row[name])
            if end is None or edges[0] <= end <= edges[1]:
                continue
            text = f"{end:+,.0f} %".replace("-", "\N{MINUS SIGN}")
            note = {
                "text": f"{text} \u25b8" if right else f"\u25c2 {text}",
                "xref": "paper",
                "x": int(right),
                "xanchor": "right" if right else "left",
                "y": str(number),
                "yshift": 9,
                "showarrow": False,
                "font": _SMALL,
            }
            found.append(note)
    return found


def _layout(rows: list[dict[str, object]], theme: Theme) -> Chart:
    keys = [str(number) for number in range(len(rows))]
    made = bars_layout(theme, keys, 0, row=26)
    labels = [escaped(shortened(_label(row))) for row in rows]
    made["yaxis"] |= {"tickvals": keys, "ticktext": labels}
    edges = _range(rows)
    made["xaxis"].pop("range")
    if edges is not None:
        made["xaxis"]["range"] = [round(edge, 4) for edge in edges]
        made["annotations"] = _cut_off(rows, edges)
    made["xaxis"] |= {
        "zeroline": True,
        "zerolinecolor": LINE.on(theme),
        "zerolinewidth": 2,
        "rangemode": "tozero",
    }
    titled(made, xaxis=said("change, %"))
    return made


def _label(row: dict[str, object]) -> str:
    if row["level"] != "role":
        return str(row["metric"])
    return " ".join(str(row[name]) for name in ("submodule", "role") if row[name])


# --- The chart of a prediction's changes, as plain plotly JSON.


_HOST = "host"
_MEASURED, _PREDICTED = "measured", "predicted"


@draws("prediction")
def before_and_after(prediction: Prediction, theme: Theme = "light") -> Chart:
    """Draw one request as measured and as predicted: bars of submodule and host times, and the
    interval of the prediction if it has one."""
    request = prediction.request
    totals = {_MEASURED: round(prediction.measured.ns), _PREDICTED: round(request.ns)}
    ends = [*totals.values(), round(request.high or 0)]
    unit = unit_for(max(ends))
    parts = sorted(prediction.submodules, key=lambda part: part.name == _HOST)
    colours = submodule_colours(part.name for part in parts if part.name != _HOST)
    data = []
    for part in parts:
        values = {_MEASURED: round(part.before_ns), _PREDICTED: round(part.after_ns)}
        texts = [f"{part.name}, {side}: {duration(ns)}" for side, ns in values.items()]
        colour = colours.get(part.name, HOST).on(theme)
        data.append(bars(part.name, values, unit, colour, texts, theme))
    if request.low is not None and request.high is not None:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "90 % interval",
                "x": [request.ns * unit.per_ns],
                "y": [_PREDICTED],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(request.high - request.ns) * unit.per_ns],
                    "arrayminus": [(request.ns - request.low) * unit.per_ns],
                    "color": TEXT.on(theme),
                    "thickness": 1.6,
                },
                "marker": {"color": TEXT.on(theme), "size": 7},
                "hoverinfo": "skip",
            }
        )
    made = bars_layout(theme, [*totals], max(ends))
    places = {_MEASURED: totals[_MEASURED], _PREDICTED: max(totals[_PREDICTED], ends[-1])}
    notes = {side: duration(ns) for side, ns in totals.items()}
    made["annotations"] = end_labels(places, unit, notes)
    return {"data": data, "layout": made}
