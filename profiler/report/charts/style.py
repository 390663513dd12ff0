"""The house style of charts: fonts, units, axes, and bars with labels at their ends.

Names come from traces and manifests, and plotly reads a subset of HTML in every text: `escaped`
turns them into text wherever they enter a chart.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from profiler.report.model import Figure, Pick
from profiler.report.palette import LINE, MUTED, SURFACE, TEXT, Theme
from profiler.text import Said

__all__ = [
    "FONT",
    "HOVER",
    "Chart",
    "Unit",
    "bars",
    "bars_layout",
    "draw",
    "drawings",
    "draws",
    "end_labels",
    "escaped",
    "layout",
    "picking",
    "shortened",
    "unit_for",
]


FONT = (
    '-apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", '
    '"Liberation Sans", Arial, "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", '
    '"Noto Sans CJK KR", NanumGothic, sans-serif'
)
HOVER = "%{customdata}<extra></extra>"

Chart = dict[str, Any]


class Unit(Struct, frozen=True):
    """A unit of time on an axis: `name`, and how many of it one nanosecond is."""

    name: str
    per_ns: float


Drawing = TypeVar("Drawing", bound=Callable[..., Chart])
_DRAWINGS: dict[str, Callable[..., Chart]] = {}


def draws(kind: str) -> Callable[[Drawing], Drawing]:
    """Returns a decorator that registers a function as the one that draws figures of that kind:
    it takes the data of the figure, then the theme."""

    def register(function: Drawing) -> Drawing:
        _DRAWINGS[kind] = function
        return function

    return register


@cache
def drawings() -> Mapping[str, Callable[..., Chart]]:
    """What draws figures, by kind; every module of `report.charts` is looked into."""
    package = import_module("profiler.report.charts")
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return MappingProxyType(_DRAWINGS)


def draw(figure: Figure, theme: Theme) -> Chart:
    """The figure as plain plotly JSON."""
    return drawings()[figure.kind](*figure.data, theme)


def unit_for(longest_ns: int) -> Unit:
    """The unit in which an axis to `longest_ns` reads best; ms from 1 ms to 100 s."""
    units = ((10**11, "s", 1e-9), (10**6, "ms", 1e-6), (10**3, "µs", 1e-3))
    for least, name, per_ns in units:
        if longest_ns >= least:
            return Unit(name, per_ns)
    return Unit("ns", 1.0)


def escaped(name: object) -> str:
    """`name` as plotly shows it literally; line breaks stay line breaks."""
    return name.changed(_escaped) if isinstance(name, Said) else _escaped(str(name))


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("\n", "<br>")


def shortened(name: str, limit: int = 46) -> str:
    """A long name at `limit` characters: of a path its end, which tells layers apart."""
    if isinstance(name, Said):
        return name.changed(lambda text: shortened(text, limit))
    if len(name) <= limit:
        return name
    if ("." in name or "/" in name) and ", " not in name:
        return "…" + name[1 - limit :].lstrip("./_")
    return name[: limit - 1] + "…"


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


def picking(trace: dict[str, Any], picks: Iterable[Pick]) -> dict[str, Any]:
    """`trace` with what each of its points stands for, which a click on it in the page chooses.

    A pick maps `stage`, `submodule`, `branch`, `step`, `device`, `role` or `operator` (a layer or
    its pattern) to a value; what is None is left out. They are names as they are, which plotly must
    never draw: it knows no `picks`.
    """
    known = [{name: value for name, value in pick.items() if value is not None} for pick in picks]
    return trace | {"picks": known}


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


def end_labels(
    values: Mapping[str, int], unit: Unit, texts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Annotations: for each key of `values` its text, right of the end of its bar."""
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
