"""The plotly.js of a page, compressed in a thread of its own beside other work.

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
import tarfile
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from profiler.analysis.provenance import EmbeddedTrace, deflated, embedded_trace

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
