"""The events in a profile of ONNX Runtime: blocks of lines at once by the core, one by one where a
block has a line that is none."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

import msgspec

from profiler.errors import InputError
from profiler.ort_profiles.event import Event, Unread
from profiler.ort_profiles.nodes import NodeRows
from profiler.trace.unpack import may_unpack_to, too_small
from profiler.typed_json import decoder_of

__all__ = ["Others", "read_events"]

Others = Iterator[tuple[int, Event]]
"""Events that are no nodes, each with how many nodes lie ahead of it."""

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 18  # bytes read at once
_ELEMENTS = decoder_of(list[msgspec.Raw])
_EVENT, _ARRAY = decoder_of(Event), decoder_of(list[Event])
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_events(path: Path, nodes: NodeRows, unread: Unread | None) -> Others:
    """The events of a file in order: nodes are appended to `nodes`, others that matter are given.
    Raises InputError where a line is no event, once all events ahead of it are read, unless
    `unread` is there to count it."""
    try:
        for begin, block in _blocks(path):
            others = nodes.scan(block)
            if others is not None:
                yield from _decoded(block, others)
            elif begin == 0 and _spread(block):
                yield from _of_document(path, nodes, unread)
                return
            else:
                yield from _one_by_one(path, block, begin, nodes, unread)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if unread is None:
            raise InputError(f"{path} is damaged ({error}): copy it again") from error
        unread.lines += 1


def _decoded(block: bytes, others: list[tuple[int, int, int]]) -> Others:
    """The events of a block that are no nodes."""
    texts = b",".join([block[begin:end] for _, begin, end in others])
    events = _ARRAY.decode(b"[%b]" % texts)
    return zip((ahead for ahead, *_ in others), events, strict=True)


def _spread(block: bytes) -> bool:
    """Whether events go over several lines, as other tools write them: no line is one."""
    for line in block.split(b"\n"):
        try:
            if _of_line(line.strip().rstrip(b",")):
                return False
        except _BROKEN:
            continue
    return True


def _of_document(path: Path, nodes: NodeRows, unread: Unread | None) -> Others:
    """The events of a whole file, wherever its lines end."""
    block = b"".join(piece for _, piece in _blocks(path))
    others = nodes.scan(block)
    if others is not None:
        yield from _decoded(block, others)
        return
    try:
        elements = _ELEMENTS.decode(block)
    except _BROKEN:
        yield from _one_by_one(path, block, 0, nodes, unread)
        return
    yield from _each(path, enumerate(elements, 1), "event", nodes, unread)


def _one_by_one(
    path: Path, block: bytes, begin: int, nodes: NodeRows, unread: Unread | None
) -> Others:
    """The same line by line; a line may be a whole array. The block begins at this byte."""
    first = 1 if unread is not None or not begin else 1 + _lines_ahead(path, begin)
    lines = (line.strip().rstrip(b",") for line in block.split(b"\n"))
    yield from _each(path, enumerate(lines, first), "line", nodes, unread)


def _each(
    path: Path,
    texts: Iterable[tuple[int, bytes | msgspec.Raw]],
    what: str,
    nodes: NodeRows,
    unread: Unread | None,
) -> Others:
    """The events in numbered texts, without those that hold none. Raises InputError for the first
    of these where nobody counts them."""
    for number, text in texts:
        try:
            events = _of_line(bytes(text))
        except _BROKEN as error:
            if unread is None:
                advice = "the profile was cut or is not ONNX Runtime's: run again"
                raise InputError(
                    f"{path} {what} {number} is no profile event ({error}): {advice}"
                ) from error
            unread.lines += 1
            continue
        for event in events:
            if not nodes.add(event):
                yield len(nodes), event


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
