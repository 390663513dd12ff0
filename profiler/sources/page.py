"""Where the page of a run goes when nobody says."""

from __future__ import annotations

import os
from pathlib import Path

from profiler.errors import OutputError
from profiler.sources.resolve import Kind, Source

__all__ = ["page_path"]

_HEAD = 4096  # bytes in which a page of ours names us


def page_path(source: Source, *, filtered: bool) -> Path:
    """`report.html` in a bundle, `report.selection.html` of a part of it; beside a single trace
    its name, beside what was imported its name with that behind it.

    Raises OutputError where a file of that name is no page of ours.
    """
    name = "report.selection.html" if filtered else "report.html"
    if source.origin is not None:
        path = _beside(source.origin, name)
    elif source.kind is Kind.TRACE:
        path = source.path.with_suffix(".html")
    else:
        return source.path / name
    if path.is_file() and b"profile-sd3" not in path.read_bytes()[:_HEAD]:
        raise OutputError(f"{path} is there already and is no page of ours: give --html FILE")
    return path


def _beside(origin: Path, name: str) -> Path:
    """`NAME.report.html` beside `origin`, in the current folder where that cannot be written."""
    whole = origin if origin.name not in ("", "..") else origin.resolve()
    stem = whole.name.removesuffix(".gz")
    named = f"{Path(stem).stem if origin.is_file() else stem}.{name}"
    beside = whole.parent / named
    writable = os.access(beside if beside.exists() else whole.parent, os.W_OK)
    return beside if writable else Path(named)
