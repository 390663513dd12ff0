"""The chart of what a prediction changes, as plain plotly JSON."""

from __future__ import annotations

from profiler.analysis.prediction.result import Prediction
from profiler.report.charts.style import (
    Chart,
    bars,
    bars_layout,
    draws,
    end_labels,
    unit_for,
)
from profiler.report.palette import HOST, TEXT, Theme, submodule_colours
from profiler.text import duration

__all__ = ["before_and_after"]

_HOST = "host"
_MEASURED, _PREDICTED = "measured", "predicted"


@draws("prediction")
def before_and_after(prediction: Prediction, theme: Theme = "light") -> Chart:
    """One request as it was measured and as it is predicted: a bar each of its submodules' and the
    host's times, and the interval of the prediction where it has one."""
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
