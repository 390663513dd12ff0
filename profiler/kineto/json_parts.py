"""The JSON of a trace in parts: a file of 1 GB is never in memory as a whole.

`traceEvents` is cut between two of its events. Where that is, nobody knows without reading all of
it; but what looks like the begin of an object behind another one is tried from the last place on,
and where what stands before it can be decoded, it is one: a cut within an event leaves text that is
no JSON, one behind the events a document that has more than events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from profiler.typed_json import decoded

__all__ = ["Text", "in_parts"]

Text = bytes | bytearray
_Decoded = TypeVar("_Decoded")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb'\}(\s*,)\s*\{\s*"')
_FIRST = b'{"traceEvents":['
_LAST = b"]}"
_PART = 4 << 20  # bytes that are decoded at once, at least
_LOOKED_AT = 1 << 16  # bytes at the end of a part in which it may be cut
_TRIES = 4
_WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def in_parts(
    chunks: Iterable[bytes],
    decode: Callable[[Text], _Decoded],
    decode_part: Callable[[Text], _Decoded],
) -> Iterator[tuple[_Decoded, Text]]:
    """Documents that have the events of a file in turn, decoded, and their texts: the last one has
    what stands around the events as well. Raises what `decode` raises for that; `decode_part`
    decodes the others, and must refuse one that has more than events."""
    text, head, enough = bytearray(), b"", _PART
    for chunk in chunks:
        text += chunk
        if len(text) < enough:
            continue
        if not head:
            head = _head_of(text)
            del text[: len(head)]
        found = _cut(text, decode_part) if head else None
        if found is None:
            enough = 2 * len(text)
            continue
        document, part, used = found
        del text[:used]
        enough = _PART
        yield document, part
    whole = head + text if head else text
    yield decode(whole), whole


def _head_of(text: bytearray) -> bytes:
    """What stands before the first event; b"" where that is not there yet."""
    for found in _EVENTS.finditer(text):
        head = bytes(text[: found.end()])
        try:
            decoded(head + _LAST, dict[str, msgspec.Raw])
        except _WRONG:
            continue
        return head
    return b""


def _cut(text: bytearray, decode: Callable[[Text], _Decoded]) -> tuple[_Decoded, Text, int] | None:
    """A document of the first events, its text, and how much of `text` that is; None where it
    cannot be cut."""
    places = list(_BETWEEN.finditer(text, max(len(text) - _LOOKED_AT, 0)))
    for found in places[: -_TRIES - 1 : -1]:
        part = _FIRST + text[: found.start() + 1] + _LAST
        try:
            return decode(part), part, found.end(1)
        except _WRONG:
            continue
    return None
