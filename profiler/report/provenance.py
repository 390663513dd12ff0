"""The files that a report was made from: names, sizes, hashes that tell one trace from another, and
the merged trace itself where it is small.

    trace_files(Path("traces/20261121-093000-sd3"))
    embedded_trace(Path("traces/20261121-093000-sd3"))
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import Struct

from profiler.report.pack import deflated
from profiler.trace.bundle import HOST_NAME, MERGED_NAME, call_files
from profiler.trace.manifest import MANIFEST_NAME

__all__ = ["EmbeddedTrace", "TraceFile", "embedded_trace", "trace_files"]

_HASHED = 256 << 20  # bytes; hashing more would take longer than the report
_EMBEDDED = 4 << 20  # bytes, deflated
_TRIED = 32 << 20  # bytes; what is larger does not become that small
_THOROUGH = 4 << 20  # bytes; of more, a quicker method is worth a sixth more of them


class TraceFile(Struct, frozen=True):
    """A file of the trace, or `count` of them together: `size` in bytes, SHA-256 as hex digits, ""
    where it was not computed."""

    name: str
    size: int
    sha256: str = ""
    count: int = 1


class EmbeddedTrace(Struct, frozen=True):
    """A trace of `size` bytes: `packed` is it as a zlib stream in base64, "" where that would be
    too large for a page, and it only lies beside."""

    name: str
    size: int
    packed: str


def trace_files(source: Path) -> tuple[TraceFile, ...]:
    """The files of a bundle, of a Parquet run, or a single trace; what cannot be read is left
    out."""
    if source.is_file():
        return tuple(filter(None, [_file(source)]))
    bundle = source / MANIFEST_NAME
    names = [MANIFEST_NAME, MERGED_NAME, HOST_NAME]
    if not bundle.is_file():
        names = sorted(path.name for path in source.glob("*.parquet"))
    found = [made for name in names if (made := _file(source / name)) is not None]
    if bundle.is_file():
        sizes = [path.stat().st_size for path in call_files(source)]
        if sizes:
            found.append(TraceFile("*.pb", sum(sizes), count=len(sizes)))
    return tuple(found)


def embedded_trace(source: Path | None) -> EmbeddedTrace | None:
    """The merged trace of a bundle, or a single trace; None where there is none to read."""
    if source is None:
        return None
    path = source if source.is_file() else source / MERGED_NAME
    if path.suffix != ".pb":
        return None
    try:
        size = path.stat().st_size
        data = path.read_bytes() if 0 < size <= _TRIED else b""
    except OSError:
        return None
    packed = deflated(data, level=6 if size <= _THOROUGH else 1) if data else ""
    return EmbeddedTrace(path.name, size, packed if len(packed) <= _EMBEDDED * 4 // 3 else "")


def _file(path: Path) -> TraceFile | None:
    try:
        size = path.stat().st_size
        if size > _HASHED:
            return TraceFile(path.name, size)
        with path.open("rb") as file:
            return TraceFile(path.name, size, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError:
        return None
