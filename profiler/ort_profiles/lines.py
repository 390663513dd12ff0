"""The events in a profile of ONNX Runtime: blocks of lines at once, one by one where a block has
a line that is none."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec

from profiler.errors import InputError
from profiler.trace.unpack import may_unpack_to, too_small

__all__ = ["Args", "Event", "KernelEvent", "Unread", "read_events"]

_GZIP = b"\x1f\x8b"
_MARGIN = 64  # bytes in which an array may begin or end
_PIECE = 1 << 18  # bytes read at once
_Microseconds = Annotated[int, msgspec.Meta(gt=-(1 << 50), lt=1 << 50)]  # 35 years: ns fit int64
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]


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
    stream: msgspec.Raw = msgspec.Raw(b"")
    parent_name: str = ""


class Event(msgspec.Struct, gc=False):
    """An event; times are µs since the profile's begin."""

    name: str
    cat: str = ""
    ts: _Microseconds = 0
    dur: _Microseconds = 0
    tid: _Number = 0
    args: Args | None = None


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """What a GPU executed, in ns since the profile's begin. `parent` is the node that launched it,
    by begin and name, None where the file does not tell. ONNX Runtime up to 1.9 gave its end as
    its begin."""

    name: str
    op_type: str
    stream: str
    start_ns: int
    duration_ns: int
    parent: tuple[int, str] | None


@dataclass(slots=True)
class Unread:
    """What of a profile is in no run: `lines` that are no events, and what GPUs executed; and how
    many `events` ONNX Runtime recorded itself, of which it records `EVENT_CAP` at most."""

    lines: int = 0
    events: int = 0
    kernels: list[KernelEvent] = field(default_factory=list)


_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT, _ARRAY = msgspec.json.Decoder(Event), msgspec.json.Decoder(list[Event])
_LENGTH = attrgetter("dur")
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_events(path: Path, unread: Unread | None) -> Iterator[list[Event]]:
    """The events of a file in order, some at a time. Raises InputError where a line is no event,
    once all events ahead of it are given, unless `unread` is there to count it."""
    try:
        for begin, block in _blocks(path):
            events = _at_once(block)
            if events is not None:
                yield events
            elif begin == 0 and _spread(block):
                yield from _of_document(path, unread)
                return
            else:
                yield from _one_by_one(path, block, begin, unread)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if unread is None:
            raise InputError(f"{path} is damaged ({error}): copy it again") from error
        unread.lines += 1


def _at_once(block: bytes) -> list[Event] | None:
    """The events of some lines, None where one of them is none."""
    head, tail = block[:_MARGIN].lstrip(), block[-_MARGIN:].rstrip()
    first = len(block[:_MARGIN]) - len(head) + head.startswith(b"[")
    last = len(block) - len(block[-_MARGIN:]) + len(tail.removesuffix(b"]").rstrip().rstrip(b","))
    try:
        events = _ARRAY.decode(b"".join((b"[", memoryview(block)[first:last], b"]")))
    except _BROKEN:
        return None
    return events if min(map(_LENGTH, events), default=0) >= 0 else None


def _spread(block: bytes) -> bool:
    """Whether events go over several lines, as other tools write them: no line is one."""
    for line in block.split(b"\n"):
        try:
            if _of_line(line.strip().rstrip(b",")):
                return False
        except _BROKEN:
            continue
    return True


def _of_document(path: Path, unread: Unread | None) -> Iterator[list[Event]]:
    """The events of a whole file, wherever its lines end."""
    block = b"".join(piece for _, piece in _blocks(path))
    events = _at_once(block)
    if events is not None:
        yield events
        return
    try:
        elements = _ELEMENTS.decode(block)
    except _BROKEN:
        yield from _one_by_one(path, block, 0, unread)
        return
    yield from _each(path, enumerate(elements, 1), unread, "event")


def _one_by_one(
    path: Path, block: bytes, begin: int, unread: Unread | None
) -> Iterator[list[Event]]:
    """The same line by line; a line may be a whole array. The block begins at this byte."""
    first = 1 if unread is not None or not begin else 1 + _lines_ahead(path, begin)
    lines = (line.strip().rstrip(b",") for line in block.split(b"\n"))
    yield from _each(path, enumerate(lines, first), unread, "line")


def _each(
    path: Path, texts: Iterable[tuple[int, bytes | msgspec.Raw]], unread: Unread | None, what: str
) -> Iterator[list[Event]]:
    """The events in numbered texts, without those that hold none. Raises InputError for the first
    of these where nobody counts them."""
    found: list[Event] = []
    for number, text in texts:
        try:
            found += _of_line(bytes(text))
        except _BROKEN as error:
            if unread is None:
                yield found
                advice = "the profile was cut or is not ONNX Runtime's: run again"
                raise InputError(
                    f"{path} {what} {number} is no profile event ({error}): {advice}"
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


def _lines_ahead(path: Path, end: int) -> int:
    """How many lines end ahead of a byte."""
    ahead = takewhile(lambda found: found[0] < end, _blocks(path))
    return sum(block.count(b"\n") for _, block in ahead)


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Some whole lines at a time and the byte at which they begin; of a damaged file the lines
    ahead of the damage."""
    at = 0
    begun: list[bytes | memoryview] = []
    for piece in _pieces(path):
        end = piece.rfind(b"\n") + 1
        if not end:
            begun.append(piece)
            continue
        view = memoryview(piece)
        block = b"".join((*begun, view[:end]))
        begun = [view[end:]]
        yield at, block
        at += len(block)
    yield at, b"".join(begun)


def _pieces(path: Path) -> Iterator[bytes]:
    """A file, plain or gzip, in pieces; never more than it may unpack to. Raises InputError."""
    with path.open("rb", buffering=0) as file:
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
