"""The JSON of a trace in parts, whole or damaged: a file of 1 GB is never in memory at once.

for document, text in in_parts(chunks, decode, decode_part): …

reader = DamagedText(readable, Event)  # of a text that is no JSON
for events, text in reader.parts(chunks): …
reader.read, reader.skipped, reader.first_skipped, reader.broken_at, reader.notes()
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from typing import Generic, Protocol, TypeVar

import msgspec

from profiler.files import decoded, decoder_of, paired
from profiler.kineto import BYTE_ORDER_MARK
from profiler.trace.manifest_fields import HealthAction, HealthNote, HealthRule

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_PART = 4 << 20  # bytes that are decoded together, at least


def refuse_several_lists(text: Text) -> None:
    """Raise ValidationError if a text has several lists of events: JSON keeps only the last."""
    if next(islice(_EVENTS.finditer(text), 1, None), None) is not None:
        raise msgspec.ValidationError("it has several lists `traceEvents`")


# --- Whole JSON.
#
# `traceEvents` is cut between two of its events. That place cannot be known without reading
# everything before it. So texts that look like the start of an object after another one are tried,
# the last first: if the text before it can be decoded, it is such a place. A cut inside an event
# leaves invalid JSON, and one after the events a document that has more than events.


Text = bytes | bytearray
_Decoded = TypeVar("_Decoded")
_BETWEEN = re.compile(rb'\}(\s*,)\s*\{\s*"')
_FIRST = b'{"traceEvents":['
_LAST = b"]}"
_LOOKED_AT = 1 << 16  # bytes at the end of a part in which it may be cut
_TRIES = 4
WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoding a text that is not such JSON."""


def in_parts(
    chunks: Iterable[bytes],
    decode: Callable[[Text], _Decoded],
    decode_part: Callable[[Text], _Decoded],
) -> Iterator[tuple[_Decoded, Text]]:
    """Decode a file as documents with some of its events each; yields them with their texts. The
    last one also has what is around the events. Raises what `decode` raises for it. `decode_part`
    decodes the others, and must refuse a document with more than events."""
    text, head, enough = bytearray(), b"", _PART
    for chunk in chunks:
        text += chunk
        if len(text) < enough:
            continue
        if not head:
            head = _head_of(text)
            if head:
                text[: len(head)] = _FIRST
        found = _cut(text, decode_part) if head else None
        if found is None:
            enough = 2 * len(text)
            continue
        document, rest = found
        yield document, text
        text, enough = rest, _PART
    whole = head + text[len(_FIRST) :] if head else text
    yield decode(whole), whole


def _head_of(text: bytearray) -> bytes:
    """The text before the first event; b"" if that is not read yet."""
    for found in _EVENTS.finditer(text):
        head = bytes(text[: found.end()])
        try:
            decoded(head + _LAST, dict[str, msgspec.Raw])
        except WRONG:
            continue
        return head
    return b""


def _cut(text: bytearray, decode: Callable[[Text], _Decoded]) -> tuple[_Decoded, bytearray] | None:
    """Cut a text between two events. Returns the decoded document of the first events, and a text
    of the rest that starts like a document, too; `text` is cut to the former. None if it cannot be
    cut."""
    places = list(_BETWEEN.finditer(text, max(len(text) - _LOOKED_AT, len(_FIRST))))
    ends = [(found.start() + 1, found.end(1)) for found in places[: -_TRIES - 1 : -1]]
    for end, begin in ends:
        behind = bytes(text[end:])
        text[end:] = _LAST
        try:
            document = decode(text)
        except WRONG:
            text[end:] = behind
            continue
        return document, bytearray(_FIRST + behind[begin - end :])
    return None


# --- Damaged JSON: its events, and what could not be read.
#
# Many events are decoded together. If that fails, they are halved until the invalid ones are alone.
# Reading continues at the next text that starts like an event.


# An event's own object, not the value of one of its keys (`"args": {"name": …}`).
_EVENT = re.compile(rb'\{(?<!:\{)(?<!: \{)(?<!["\\]\{)\s*"(?:ph|cat|name|pid|tid|ts|dur|args)"\s*:')
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_PHASE = re.compile(rb'"ph"\s*:')
_END = re.compile(r'\}\s*\]\s*(?:,\s*"[^"]+"\s*:|\}|$)')  # of the last event and of the list
# A comma outside of strings. A string without an end has the rest: each of its quotes would be
# tried as the start of one.
_NEEDLESS = re.compile(r'("(?:[^"\\]|\\.)*(?:"|\\?$))|,(?=\s*[}\]])', re.DOTALL)
_COMMA = re.compile(r"\s*,\s*")
_DECODER = json.JSONDecoder(strict=False)


def _mended(text: bytes) -> tuple[bytes, bytes]:
    """The event with which a text starts, as a list of one, and the text behind it. In the event,
    halves of surrogate pairs are replaced and commas after the last value left out."""
    plain = _NEEDLESS.sub(lambda found: found[1] or "", paired(text.decode("utf-8", "replace")))
    try:
        _, end = _DECODER.raw_decode(plain)
    except (ValueError, RecursionError):
        return b"", text
    return b"[" + plain[:end].encode() + b"]", plain[end:].strip(", \t\r\n").encode()


class _Phased(Protocol):
    @property
    def ph(self) -> str: ...


_Event = TypeVar("_Event", bound=_Phased)


class DamagedText(Generic[_Event]):
    """Reads the events of a damaged text. Counts the events `read` and `skipped`; `first_skipped`
    is the byte at which the first skipped one starts, `broken_at` the byte at which a truncated
    text ends, -1 for none. `header` is the text around the events. `valid` repairs what it can in
    invalid JSON, `event` is the type to decode."""

    def __init__(self, valid: Callable[[Text], bytes], event: type[_Event]) -> None:
        self.read = self.skipped = 0
        self.first_skipped = self.broken_at = -1
        self.header = b""
        self._valid = valid
        self._event = event
        self._position = 0

    def parts(self, chunks: Iterable[bytes]) -> Iterator[tuple[list[_Event], Text]]:
        """Yield lists of events, each with its text: an object with `traceEvents`."""
        text, enough, started = bytearray(), _PART, False
        for chunk in chunks:
            text += chunk
            if len(text) < enough:
                continue
            if not started:
                started = self._start(text)
            begins = [found.start() for found in _EVENT.finditer(text)] if started else []
            if len(begins) < 2:
                enough = 2 * len(text)
                continue
            yield from self._decoded(text, begins)
            self._remove(text, begins[-1])
            enough = _PART
        if started or self._start(text):
            begins = [found.start() for found in _EVENT.finditer(text)]
            end = self._end(text, begins[-1] if begins else 0)
            yield from self._decoded(text[:end], [*begins, end])

    def _remove(self, text: bytearray, size: int) -> None:
        del text[:size]
        self._position += size

    def _start(self, text: bytearray) -> bool:
        """Move the text before the first event to the header; returns whether an event starts in
        the text."""
        listed = _EVENTS.search(text)
        first = _EVENT.search(text, listed.end() if listed else 0)
        if first is None:
            return False
        self.header += bytes(text[: first.start()])
        self._remove(text, first.start())
        return True

    def _end(self, text: bytearray, last: int) -> int:
        """The end of the last event, which starts at `last`; the text after it is added to the
        header."""
        plain = text[last:].decode("utf-8", "surrogateescape")
        size = 0
        try:
            while plain.startswith("{", size):
                _, size = _DECODER.raw_decode(plain, size)
                between = _COMMA.match(plain, size)
                size = between.end() if between and plain.startswith("{", between.end()) else size
        except (ValueError, RecursionError):
            found = _END.search(plain, size)
            size = found.start() + 1 if found else size
        end = last + len(plain[:size].encode("utf-8", "surrogateescape"))
        rest = plain[size:].strip(", \t\r\n")
        listed = self.header.removeprefix(BYTE_ORDER_MARK).lstrip()[:1] == b"["
        _, closed, behind = rest.partition("]")
        if rest[:1] == "{" or not closed or not ("}" in behind or listed):
            self.broken_at = self._position + len(text) - 1
        self.header += b"," + rest.encode("utf-8", "surrogateescape")
        return end

    def _decoded(self, text: Text, begins: list[int]) -> Iterator[tuple[list[_Event], Text]]:
        """Decode the events between neighbouring places of `begins` in the text."""
        pieces = [bytes(text[begin:end]).rstrip(b", \t\r\n") for begin, end in pairwise(begins)]
        decoder = decoder_of(list[self._event], strict=False)  # type: ignore[name-defined]
        waiting = [(0, len(pieces))] if pieces else []
        while waiting:
            first, last = waiting.pop()
            some = self._valid(b"[" + b",".join(pieces[first:last]) + b"]")
            try:
                events = decoder.decode(some)
            except WRONG:
                if last - first > 1:
                    middle = (first + last) // 2
                    waiting += [(middle, last), (first, middle)]
                    continue
                some, rest = _mended(some[1:-1])
                try:
                    events = decoder.decode(some)
                except WRONG:
                    events, rest = [], pieces[first]
                rest = self._without_border(rest)
                if rest:  # it may have several events, if the start of one was lost
                    self.skipped += max(len(_PHASE.findall(rest)), 1)
                    if self.first_skipped < 0:
                        self.first_skipped = self._position + begins[first]
                if not events:
                    continue
            self.read += sum(event.ph != "" for event in events)
            yield events, b'{"traceEvents":' + some + b"}"

    def _without_border(self, text: bytes) -> bytes:
        """The text without what is between two lists of events, which is added to the header."""
        border = _EVENTS.search(text) if text.startswith(b"]") else None
        if border is None:
            return text
        self.header += b"," + text[1 : border.start()]
        return text[border.end() :].strip()

    def notes(self) -> Iterator[HealthNote]:
        """The health notes for the manifest."""
        if self.skipped:
            total = self.read + self.skipped
            yield HealthNote(
                rule=HealthRule.NO_JSON,
                count=self.skipped,
                total=total,
                share=self.skipped / total,
                at_byte=self.first_skipped,
                action=HealthAction.LEFT_OUT,
            )
        if self.broken_at >= 0:
            yield HealthNote(rule=HealthRule.BROKEN_OFF, count=self.read, at_byte=self.broken_at)

    def header_with(self, keys: Iterable[str]) -> bytes:
        """A JSON object with those of the keys that can be read in the header."""
        found = [b'"traceEvents":[]']
        for key in keys:
            for place in re.finditer(rb'"%b"\s*:\s*' % re.escape(key.encode()), self.header):
                outside = _TEXT.sub(b"", self.header[: place.start()])
                if outside.count(b"{") - outside.count(b"}") > 1:  # the key is in another object
                    continue
                plain = paired(self._valid(self.header[place.end() :]).decode("utf-8", "replace"))
                try:
                    value, _ = _DECODER.raw_decode(plain)
                    found.append(msgspec.json.encode(key) + b":" + msgspec.json.encode(value))
                except (*WRONG, ValueError):
                    continue
                break
        return b"{" + b",".join(found) + b"}"
