"""The chart of the memory that devices held during a run, as plain plotly JSON."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler.report.charts.style import HOVER, Chart, draws, escaped, layout, unit_for
from profiler.report.palette import SERIES, Theme
from profiler.text import duration, said, size

__all__ = ["memory"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@draws("memory")
def memory(
    course: pl.DataFrame, devices: pl.DataFrame, calls: pl.DataFrame, theme: Theme = "light"
) -> Chart:
    """A line a device: the most that its counters held in each interval of `course`
    (`memory_timeline`), with a mark at the peak (`devices`); `calls` say where the first began."""
    begin, end = _extent(course, calls)
    unit = unit_for(end - begin)
    most = max(course["bytes"], default=0)
    power = next((p for p in range(4, 0, -1) if most >= 1024**p), 0)
    data: list[dict[str, Any]] = []
    for number, device in enumerate(course["device"].unique(maintain_order=True)):
        rows = course.filter(pl.col("device") == device)
        colour = SERIES[number % len(SERIES)].on(theme)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(device),
                "x": [round((at - begin) * unit.per_ns, 3) for at in rows["time_ns"]],
                "y": [round(held / 1024**power, 3) for held in rows["bytes"]],
                "line": {"color": colour, "width": 2, "shape": "hv"},
                "fill": "tozeroy",
                "fillcolor": colour + "26",
                "customdata": [escaped(_text(row, begin)) for row in rows.iter_rows(named=True)],
                "hovertemplate": HOVER,
            }
        )
    made = layout(theme)
    made["xaxis"]["title"] = made["xaxis"]["title"] | {
        "text": said("{unit} from the first call", unit=unit.name)
    }
    made["yaxis"] |= {"rangemode": "tozero", "showgrid": True}
    made["yaxis"]["title"] = made["yaxis"]["title"] | {"text": _UNITS[power]}
    made["annotations"] = _peaks(devices, (begin, end), unit.per_ns, 1024**power)
    return {"data": data, "layout": made | {"height": 280, "showlegend": len(data) > 1}}


def _extent(course: pl.DataFrame, calls: pl.DataFrame) -> tuple[int, int]:
    """From the first call, or from what counters say before it, to the last sample."""
    times = course["time_ns"].to_list()
    starts = calls["start_ns"].head(1).to_list() if times else []
    return min([*times, *starts], default=0), max(times, default=0)


def _text(row: dict[str, Any], begin: int) -> str:
    held = said(
        "{device}: {bytes} at {time}",
        device=row["device"],
        bytes=size(row["bytes"]),
        time=duration(row["time_ns"] - begin),
    )
    if not row["submodule"]:
        return held
    return said("{held}\nduring {submodule}", held=held, submodule=row["submodule"])


def _peaks(
    devices: pl.DataFrame, extent: tuple[int, int], per_ns: float, of: int
) -> list[dict[str, Any]]:
    """Where the most was held: how much, and in whose call."""
    known = devices.drop_nulls(["peak_bytes", "peak_ns"])
    return [
        {
            "x": (row["peak_ns"] - extent[0]) * per_ns,
            "y": row["peak_bytes"] / of,
            "text": escaped(_peak(row)),
            "xanchor": "left" if row["peak_ns"] < sum(extent) / 2 else "right",
            "showarrow": True,
            "arrowhead": 2,
            "arrowwidth": 1,
            "ax": 0,
            "ay": -22,
        }
        for row in known.iter_rows(named=True)
    ]


def _peak(row: dict[str, Any]) -> str:
    peak = said("{device}: peak {peak}", device=row["device"], peak=size(row["peak_bytes"]))
    if not row["submodule"]:
        return peak
    return said("{peak} in {submodule}", peak=peak, submodule=row["submodule"])
