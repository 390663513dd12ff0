"""What a page holds whatever a run is like: packed in a thread of its own, beside other work.

packing = Packing(source)         # before the run is loaded
write_html(run, analysis, path, packing=packing)
"""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from profiler.report.pack import deflated
from profiler.report.provenance import EmbeddedTrace, embedded_trace

__all__ = ["Library", "Packing", "script_hash"]


class Library(Struct, frozen=True):
    """The library that draws figures: `packed` as a zlib stream in base64, and its `hash`."""

    packed: str
    hash: str


class Packing:
    """The library and the merged trace of the run at `source`, on their way from now on: deflating
    leaves the interpreter to others."""

    def __init__(self, source: Path | None = None) -> None:
        pool = ThreadPoolExecutor(1)
        self._library: Future[Library] = pool.submit(_plotly)
        self._trace: Future[EmbeddedTrace | None] = pool.submit(embedded_trace, source)
        pool.shutdown(wait=False)

    @property
    def library(self) -> Library:
        """The library, once it is packed."""
        return self._library.result()

    @property
    def trace(self) -> EmbeddedTrace | None:
        """The trace, once it is packed; None where there is none to read."""
        return self._trace.result()


def script_hash(script: bytes) -> str:
    """The hash by which a page's policy knows a script."""
    return base64.b64encode(hashlib.sha256(script).digest()).decode()


def _plotly() -> Library:
    """The library that the installed plotly ships; plotly itself stays unimported."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
    script = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_bytes()
    packed = deflated(script)
    return Library(packed, script_hash(script))
