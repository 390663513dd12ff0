"""Opens a trace however it is packed: plain, gzip, zip, tar, and gzip in these.

Members are read in place, as streams: nothing is unpacked to disk, whatever a member's name.
Exactly one member of an archive must be a trace; the search is bounded.
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
    "is_chrome_of_another",
    "is_perfetto",
    "is_trace",
    "is_unitrace",
    "message_fields",
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
    """An error of an archive, as text that follows the file's name."""

    several = False  # whether there is more than one trace


def packed_as(head: bytes) -> Packed:
    """The packing of a file, from its start; "" if it is not packed."""
    if head.startswith(_ZIP):
        return "zip"
    place, word = _TAR
    if head[place : place + len(word)] == word:
        return "tar"
    return "gzip" if head.startswith(_GZIP) else ""


_OWN = (  # categories in a list of events without an object around it
    rb'"cat"\s*:\s*"(?:cpu_op|Operator|user_annotation|python_function|(?:cuda_)?[rR]untime|'
    rb'[kK]ernel|(?:gpu_)?[mM]em(?:cpy|set))"'
)
_PHASE = rb'"ph"\s*:\s*"'
_ORT = rb'"cat"\s*:\s*"(?:Session|Node)"'
_XLA_VIEW = rb'"name"\s*:\s*"(?:/host:CPU|/device:[A-Z]+:\d)'
_UNITRACE_PROCESS = rb'"name"\s*:\s*"(?:HOST|DEVICE)<'
_UNITRACE_WORK = (rb'"name"\s*:\s*"[^"\\]*\[SIMD\d+ \{', rb'"cat"\s*:\s*"gpu_op"')


def is_trace(head: bytes) -> bool:
    """Whether a file with this start is a trace: a JSON object, a bare list of events as torch
    wrote before 1.8, or a Perfetto trace with GPU work."""
    if is_perfetto(head):
        return True
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if text[:1] == b"{":
        others = re.search(_XLA_VIEW, text) or is_unitrace(text)
        return any(key in text for key in _KEYS) and not others
    return text[:1] == b"[" and bool(re.search(_OWN, text)) and not re.search(_ORT, text)


def is_unitrace(head: bytes) -> bool:
    """Whether a file with this start is a trace of Intel's unitrace."""
    marks = (_UNITRACE_PROCESS, *_UNITRACE_WORK)
    return b'"traceEvents"' in head and any(re.search(mark, head) for mark in marks)


def is_chrome_of_another(head: bytes) -> bool:
    """Whether a file with this start is Chrome JSON without a mark of torch's or ONNX Runtime's."""
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    marks = re.search(_OWN, text) or re.search(_ORT, text) or any(key in text for key in _KEYS[1:])
    return not marks and (
        (text[:1] == b"{" and _KEYS[0] in text)
        or (text[:1] == b"[" and re.search(_PHASE, text) is not None)
    )


_PACKET, _BYTES, _VARINT = b"\n", 2, 0
_FIXED = {1: 8, 5: 4}  # bytes, by wire type
_INTERNED, _SPECIFICATIONS = 12, 24  # fields of packets, and of interned data
_OF_GPU = (52, 53)  # counters, render stages


def is_perfetto(head: bytes) -> bool:
    """Whether a file with this start is a Perfetto trace with render stages or counters of a
    GPU."""
    if head[:1] != _PACKET:
        return False
    for number, packet, _ in message_fields(head):
        if number != 1 or packet is None:
            return False
        for kind, inner, _ in message_fields(packet):
            interned = message_fields(inner) if kind == _INTERNED and inner is not None else ()
            if kind in _OF_GPU or any(one == _SPECIFICATIONS for one, _, _ in interned):
                return True
    return False


def message_fields(
    message: bytes | bytearray | memoryview,
) -> Iterator[tuple[int, memoryview | None, int]]:
    """Yield the whole fields of a protobuf message: number, content if it has a length, and end.
    Stops at invalid data."""
    with memoryview(message) as text:
        at = 0
        while at < len(text):
            tag, at = _varint(text, at)
            kind, content = tag & 7, None
            if kind == _BYTES:
                length, at = _varint(text, at)
                content, at = text[at : at + length], at + length
            elif kind == _VARINT:
                _, at = _varint(text, at)
            elif kind in _FIXED:
                at += _FIXED[kind]
            else:
                return
            if not 0 < at <= len(text):
                return
            yield tag >> 3, content, at


def _varint(text: memoryview, at: int) -> tuple[int, int]:
    """A varint and its end; an end beyond the text if it is truncated."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(text):
            break
        byte = text[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    return 0, len(text) + 1


def holds_trace(file: BinaryIO, limit: int) -> bool:
    """Whether an archive contains one or more traces."""
    try:
        with opened(file, limit):
            return True
    except PackedError as error:
        return error.several


@contextmanager
def opened(file: BinaryIO, limit: int) -> Iterator[tuple[BinaryIO, Packed]]:
    """Open the JSON stream of a trace; returns it with the file's packing. In an archive, only
    members in the first `limit` bytes are considered.

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
        from profiler.kineto.trace_file import trace_within  # few are archives

        with trace_within(stream, found, limit) as member:
            yield member, found
    else:
        yield stream, found
