"""What pages are made of: plotly.js, scripts, style sheets and data.

plotly.js is compressed in a thread of its own beside other work:

    packing = Packing(source)         # before the run is loaded
    write_html(run, analysis, path, packing=packing)

`plotly/` has a package of plotly.js as the npm registry has it: the bundle of cartesian traces, and
its licence. A page with a figure of another type contains the library of the installed plotly,
which is three times as large. A newer package comes from

    npm pack --pack-destination profiler/report/html/plotly plotly.js-cartesian-dist-min@VERSION

and the registry's digest of it (`npm view plotly.js-cartesian-dist-min@VERSION dist.integrity`).
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from graphlib import TopologicalSorter
from html import escape
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from msgspec import Struct

from profiler.analysis.document import PAGE, Colour, Theme
from profiler.analysis.provenance import EmbeddedTrace, deflated, embedded_trace
from profiler.files import ascii_json
from profiler.report.charts.style import FONT
from profiler.report.language import spoken, spoken_template
from profiler.text import said
from profiler.trace import __version__

BUNDLE = "plotly.js-cartesian-dist-min-4.1.1.tgz"
INTEGRITY = (
    "sha512-o8GrFeusncwBIxbBynRJpY4pkgVB6caM+JLpwrLYbbsO"
    "7dZ8FJ+SVN2Fr+L7kiG/Z6w4P5O0Jus/Qr5EefHVeg=="
)
BUNDLED_TYPES = frozenset(
    (
        *("bar", "box", "contour", "heatmap", "histogram", "histogram2d", "histogram2dcontour"),
        *("image", "pie", "scatter", "scatterternary", "violin"),
    )
)


# --- plotly.js.


class Library(Struct, frozen=True):
    """The library that draws figures: `packed` as a zlib stream in base64, and its `hash`."""

    packed: str
    hash: str


class Packing:
    """Compresses the library and the merged trace of the run at `source` in the background;
    deflating releases the GIL."""

    def __init__(self, source: Path | None = None) -> None:
        pool = ThreadPoolExecutor(1)
        self._bundle: Future[Library] = pool.submit(_bundle)
        self._trace: Future[EmbeddedTrace | None] = pool.submit(embedded_trace, source)
        pool.shutdown(wait=False)

    def library(self, types: Collection[str]) -> Library:
        """Wait for a library that draws traces of these plotly types."""
        return self._bundle.result() if BUNDLED_TYPES.issuperset(types) else _installed()

    @property
    def trace(self) -> EmbeddedTrace | None:
        """Wait for the compressed trace; None if there is none to read."""
        return self._trace.result()


def script_hash(script: bytes) -> str:
    """The hash that a page's Content-Security-Policy lists for a script."""
    return base64.b64encode(hashlib.sha256(script).digest()).decode()


def bundle_package() -> bytes:
    """The package of the bundle, as the registry has it."""
    return (resources.files("profiler.report.html") / "plotly" / BUNDLE).read_bytes()


def _bundle() -> Library:
    with tarfile.open(fileobj=io.BytesIO(bundle_package())) as package:
        script = package.extractfile("package/plotly-cartesian.min.js")
        assert script is not None  # a file, not a link
        return _packed(script.read())


def _installed() -> Library:
    """Compress the library that the installed plotly ships, without importing plotly."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
    return _packed((Path(found.origin).parent / "package_data" / "plotly.min.js").read_bytes())


def _packed(script: bytes) -> Library:
    return Library(deflated(script), script_hash(script))


# --- The building blocks of pages: scripts, style sheets, data in a script element, and the policy
# that lets a browser run only these scripts and load nothing.


THEMES: tuple[Theme, Theme] = ("light", "dark")


def embedded(data: Any) -> str:
    """Return `data` as JSON for a script element: nothing in it can end the element."""
    return ascii_json(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def template(name: str) -> str:
    """Read a script, style sheet or page template by the name of its file."""
    place = resources.files("profiler.report.html") / "templates" / name
    return place.read_text(encoding="utf-8")


_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def modules(entry: str, loaded: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the module `entry` after all modules that it imports, in import order, without those
    in `loaded`. Raises `graphlib.CycleError` for modules that import each other."""
    imports: dict[str, list[str]] = {}
    wanted = [entry]
    while wanted:
        name = wanted.pop()
        if name not in imports:
            wanted += imports.setdefault(name, _IMPORT.findall(template(name)))
    order = TopologicalSorter(imports).static_order()
    return tuple(name for name in order if name not in loaded)


def script_of(names: Iterable[str]) -> str:
    """Join the modules into one script, in which each sees the declarations of those before it."""
    plain = (_EXPORT.sub("", _IMPORT.sub("", template(name))) for name in names)
    return "\n".join(['"use strict";', *plain])


class Top(Struct, frozen=True):
    """The bar above a page: its list of `contents`, as HTML, and a skip link before it to the
    element with the id `place`; `skip` is its text."""

    contents: str
    place: str = "summary"
    skip: str = said("Skip to the summary")


def filled(name: str, **parts: str) -> str:
    """The page in that file of ours, below its bar: its places filled, its footer among them."""
    footer = said("Written by profile-sd3 {version}. This file loads nothing.", version=__version__)
    return Template(spoken_template(template(name))).substitute(parts, footer=spoken(footer))


def document(top: Top, body: str, title: str, style: str, scripts: Sequence[str]) -> str:
    """Return a whole page: `title` is its element, `scripts` are hashes of scripts that may run."""
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
    """The Content-Security-Policy: only scripts with these hashes run, and nothing is loaded."""
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
    """Return the named style sheets with the colours of both themes."""
    light, dark = (
        " ".join(f"--{name}: {colour.on(theme)};" for name, colour in PAGE.items())
        for theme in THEMES
    )
    sheet = "".join(map(template, names))
    return Template(sheet).substitute(light=light, dark=dark, font=FONT)


def pairs(colours: Mapping[str, Colour]) -> dict[str, dict[str, str]]:
    """Return colours in the form that scripts read: one per theme."""
    return {name: {"light": colour.light, "dark": colour.dark} for name, colour in colours.items()}


def contents(names: Iterable[tuple[str, str]]) -> str:
    """Return links to sections, given their keys and names."""
    return "".join(f'<a href="#{key}">{spoken(name)}</a>' for key, name in names)


def definitions(rows: Iterable[tuple[str, str]]) -> str:
    """Pairs of name and value, for a list of such."""
    return "".join(
        f"<div><dt>{spoken(name)}</dt><dd>{spoken(value)}</dd></div>" for name, value in rows
    )
