"""The room that a figure takes of the page, which the page knows before it draws one.

A legend of more than two lines makes a figure taller, and how many lines it has goes by the width
of the page and by the language: scripts count them (`rooms.js`), from what is said here as later
from the figure itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from msgspec import Struct

from profiler.files import ascii_json
from profiler.report.charts.style import Chart
from profiler.report.language import LANGUAGES, catalogue
from profiler.text import Said

__all__ = ["Room", "room_of"]


class Room(Struct, frozen=True):
    """`height` in pixels, with a legend of at most two lines; of the legend, where there is one,
    how many `entries` it has and how long the `longest` is in each language (UTF-16 units, in
    which scripts count)."""

    height: int
    entries: int = 0
    longest: Mapping[str, int] = {}

    @property
    def attributes(self) -> str:
        """The room as attributes of an element."""
        height = f'style="height:{self.height}px" data-height="{self.height}"'
        if not self.entries:
            return height
        legend = {"entries": self.entries, "longest": self.longest}
        return f'{height} data-legend="{escape(ascii_json(legend))}"'


def room_of(chart: Chart) -> Room:
    """What `chart` takes."""
    data, layout = chart["data"], chart["layout"]
    if not layout["showlegend"]:
        return Room(layout["height"])
    names = [trace.get("name") or "" for trace in data]
    longest = {
        language: max((_units(name, language) for name in names), default=0)
        for language in LANGUAGES
    }
    return Room(layout["height"], len(data), longest)


def _units(name: str, language: str) -> int:
    given = name.given_in(catalogue(language)) if isinstance(name, Said) else name
    return len(given.encode("utf-16-le", "surrogatepass")) // 2
