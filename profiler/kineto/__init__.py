"""The JSON of a trace in whatever it is packed: plain, gzip, zip, tar, and gzip in these.

Members are read where they lie, as streams: nothing is unpacked to the disk, whatever a member is
called. Of an archive one member must be a trace; how much of it is looked at is bounded.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

__all__ = ["KEYS", "Packed", "PackedError", "holds_trace", "opened", "packed_as"]


KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_TAR = (257, b"ustar")

Packed = str  # "", "gzip", "zip" or "tar"


class PackedError(Exception):
    """What is wrong with an archive, in words that follow the file's name."""

    several = False  # whether it holds more than one trace


def packed_as(head: bytes) -> Packed:
    """What a file is, by its start: "" if it is not packed."""
    if head.startswith(_ZIP):
        return "zip"
    place, word = _TAR
    if head[place : place + len(word)] == word:
        return "tar"
    return "gzip" if head.startswith(_GZIP) else ""


def holds_trace(file: BinaryIO, limit: int) -> bool:
    """Whether an archive holds traces, one or several."""
    try:
        with opened(file, limit):
            return True
    except PackedError as error:
        return error.several


@contextmanager
def opened(file: BinaryIO, limit: int) -> Iterator[tuple[BinaryIO, Packed]]:
    """The stream of a trace's JSON, and how the file was packed; of an archive no member beyond
    `limit` bytes of it is looked for.

    Raises PackedError if an archive has no trace, several, or cannot be read.
    """
    file.seek(0)
    found = packed_as(file.read(512))
    file.seek(0)
    stream: BinaryIO = file
    if found == "gzip":
        unpacked = gzip.GzipFile(fileobj=file)
        stream = cast("BinaryIO", unpacked)
        found = "tar" if packed_as(unpacked.peek(512)) == "tar" else "gzip"
    if found in ("zip", "tar"):
        from profiler.kineto.trace_file import trace_within  # few traces come in archives

        with trace_within(stream, found, limit) as member:
            yield member, found
    else:
        yield stream, found
