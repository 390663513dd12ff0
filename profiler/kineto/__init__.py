"""The JSON of a trace in whatever it is packed: plain, gzip, zip, tar, and gzip in these.

Members are read where they lie, as streams: nothing is unpacked to the disk, whatever a member is
called. Of an archive one member must be a trace; how much of it is looked at is bounded.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

__all__ = [
    "BYTE_ORDER_MARK",
    "Packed",
    "PackedError",
    "holds_trace",
    "is_trace",
    "opened",
    "packed_as",
]


_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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


_OWN = (  # categories in a list of events without anything around it
    rb'"cat"\s*:\s*"(?:cpu_op|Operator|user_annotation|python_function|(?:cuda_)?[rR]untime|'
    rb'[kK]ernel|(?:gpu_)?[mM]em(?:cpy|set))"'
)
_ORT = rb'"cat"\s*:\s*"(?:Session|Node)"'
_OTHERS = rb'"name"\s*:\s*"(?:/host:CPU|/device:[A-Z]+:\d|HOST<|DEVICE<)'  # XLA's viewer, unitrace


def is_trace(head: bytes) -> bool:
    """Whether a JSON text that starts so is a trace: an object, or the list of events alone that
    torch wrote before 1.8."""
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if text[:1] == b"{":
        return any(key in text for key in _KEYS) and not re.search(_OTHERS, text)
    return text[:1] == b"[" and bool(re.search(_OWN, text)) and not re.search(_ORT, text)


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
