"""The events in a profile of ONNX Runtime: blocks of lines at once, one by one where a block has
a line that is none."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from profiler.errors import InputError
from profiler.trace.unpack import may_unpack_to, too_small

__all__ = ["Args", "Event", "Unread", "read_events"]

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 18  # bytes read at once
_Microseconds = Annotated[int, msgspec.Meta(gt=-(1 << 50), lt=1 << 50)]  # 35 years: ns fit int64
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]


@dataclass(slots=True)
class Unread:
    """What of a profile is left out: `lines` that are no events."""

    lines: int = 0


class Args(msgspec.Struct, gc=False):
    """What is read of an event's arguments."""

    op_name: str = ""
    provider: str = ""
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    parameter_size: str = ""
    activation_size: str = ""
    output_size: str = ""
    mem_bytes_in_use: str = ""
    dropped_event_count: msgspec.Raw = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    """An event; times are µs since the profile's begin."""

    name: str
    cat: str = ""
    ts: _Microseconds = 0
    dur: _Microseconds = 0
    tid: _Number = 0
    args: Args | None = None


_EVENT, _ARRAY = msgspec.json.Decoder(Event), msgspec.json.Decoder(list[Event])
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_events(path: Path, unread: Unread | None) -> Iterator[list[Event]]:
    """The events of a file in order, some at a time. Raises InputError where a line is no event,
    once all events ahead of it are given, unless `unread` is there to count it."""
    for number, block in _blocks(path, unread):
        events = _at_once(block)
        if events is None:
            yield from _one_by_one(path, block, number, unread)
        else:
            yield events


def _at_once(block: bytes) -> list[Event] | None:
    """The events of some lines, None where one of them is none."""
    text = block.strip()
    if text.startswith(b"["):
        text = text[1:]
    if text.endswith(b"]"):
        text = text[:-1]
    try:
        events = _ARRAY.decode(b"[%b]" % text.strip().rstrip(b","))
    except _BROKEN:
        return None
    negative = any(event.dur < 0 for event in events)
    return None if negative else events


def _one_by_one(
    path: Path, block: bytes, first: int, unread: Unread | None
) -> Iterator[list[Event]]:
    """The same line by line; a line may be a whole array."""
    found: list[Event] = []
    for number, line in enumerate(block.split(b"\n"), first):
        try:
            found += _of_line(line.strip().rstrip(b","))
        except _BROKEN as error:
            if unread is None:
                yield found
                advice = "the profile was cut or is not ONNX Runtime's: run again"
                raise InputError(
                    f"{path} line {number} is no profile event ({error}): {advice}"
                ) from error
            unread.lines += 1
    yield found


def _of_line(text: bytes) -> list[Event]:
    if text in (b"[", b"]", b""):
        return []
    events = _ARRAY.decode(text) if text.startswith(b"[") else [_EVENT.decode(text)]
    if any(event.dur < 0 and event.cat != "Kernel" for event in events):
        raise msgspec.ValidationError("it ends before it begins")
    return events


def _blocks(path: Path, unread: Unread | None) -> Iterator[tuple[int, bytes]]:
    """Some whole lines at a time and the number of the first; of a damaged file the lines ahead of
    the damage."""
    number, begun = 1, []
    try:
        for piece in _pieces(path):
            end = piece.rfind(b"\n") + 1
            if not end:
                begun.append(piece)
                continue
            block = b"".join((*begun, piece[:end]))
            begun = [piece[end:]]
            yield number, block
            number += block.count(b"\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if unread is None:
            raise InputError(f"{path} is damaged ({error}): copy it again") from error
        unread.lines += 1
    else:
        yield number, b"".join(begun)


def _pieces(path: Path) -> Iterator[bytes]:
    """A file, plain or gzip, in pieces; never more than it may unpack to. Raises InputError."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if not packed:
            while piece := file.read(_PIECE):
                yield piece
            return
        left = may_unpack_to(path.stat().st_size)
        with gzip.GzipFile(fileobj=file) as stream:
            while piece := stream.read1(_PIECE):  # all there is ahead of a damage
                left -= len(piece)
                if left < 0:
                    raise too_small(str(path))
                yield piece
