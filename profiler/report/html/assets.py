"""What pages are made of: scripts and style sheets of ours, data in a script element, the policy
under which a browser runs the one and loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from msgspec import Struct

from profiler._version import __version__
from profiler.files import ascii_json
from profiler.report.charts.style import FONT
from profiler.report.language import spoken, spoken_template
from profiler.report.palette import PAGE, Colour, Theme
from profiler.text import said

__all__ = ["THEMES", "Top", "document", "embedded", "pairs", "style_sheet", "template"]

THEMES: tuple[Theme, Theme] = ("light", "dark")


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    return ascii_json(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def template(name: str) -> str:
    """A script, style sheet or page of ours, by the name of its file."""
    place = resources.files("profiler.report.html") / "templates" / name
    return place.read_text(encoding="utf-8")


class Top(Struct, frozen=True):
    """The bar above a page: its list of `contents`, as HTML, and where a link before that skips to,
    `place` being an element's id and `skip` what the link says."""

    contents: str
    place: str = "summary"
    skip: str = said("Skip to the summary")


def document(top: Top, body: str, title: str, style: str, scripts: Sequence[str]) -> str:
    """A whole page: `title` is its element, `scripts` are hashes of those that may run."""
    bar = Template(spoken_template(template("top.html"))).substitute(
        contents=top.contents, place=top.place, skip=spoken(top.skip)
    )
    return Template(template("shell.html")).substitute(
        policy=_policy(*scripts),
        version=escape(__version__),
        title=title,
        css=style,
        top=bar,
        body=body,
    )


def _policy(*hashes: str) -> str:
    """Only scripts of these hashes run, and nothing is loaded: not an image, not a font, not a
    byte."""
    rules = (
        "default-src 'none'",
        "script-src " + " ".join(f"'sha256-{value}'" for value in hashes),
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def style_sheet(*names: str) -> str:
    """The style sheets of these names, with the colours of both themes."""
    light, dark = (
        " ".join(f"--{name}: {colour.on(theme)};" for name, colour in PAGE.items())
        for theme in THEMES
    )
    sheet = "".join(map(template, names))
    return Template(sheet).substitute(light=light, dark=dark, font=FONT)


def pairs(colours: Mapping[str, Colour]) -> dict[str, dict[str, str]]:
    """Colours as the scripts take them: one a theme."""
    return {name: {"light": colour.light, "dark": colour.dark} for name, colour in colours.items()}
