"""The JSON of a trace in whatever it is packed: plain, gzip, zip, tar, and gzip in these.

Members are read where they lie, as streams: nothing is unpacked to the disk, whatever a member is
called. Of an archive one member must be a trace; how much of it is looked at is bounded.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeVar, cast

__all__ = ["KEYS", "Packed", "PackedError", "holds_trace", "opened", "packed_as"]

KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_TAR = (257, b"ustar")
_HEAD = 1 << 20  # bytes of a member, by which it is known
_MEMBERS = 1000  # that are looked at
_NAMES = (".json", ".json.gz")
_LISTED = 3  # names in a message

Packed = str  # "", "gzip", "zip" or "tar"
_Member = TypeVar("_Member", zipfile.ZipInfo, tarfile.TarInfo)


class PackedError(Exception):
    """What is wrong with an archive, in words that follow the file's name."""

    several = False  # whether it holds more than one trace


def packed_as(head: bytes) -> Packed:
    """What a file is, by its begin: "" where it is not packed."""
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

    Raises PackedError where an archive has no trace, several, or cannot be read.
    """
    file.seek(0)
    found = packed_as(file.read(512))
    file.seek(0)
    stream: BinaryIO = file
    try:
        if found == "gzip":
            buffered = io.BufferedReader(gzip.GzipFile(fileobj=file))
            stream = buffered
            if packed_as(buffered.peek(512)) == "tar":
                found, stream = "tar", _gunzipped(file)
                file.seek(0)
        if found == "zip":
            stream = _plain(_zip_member(file))
        elif found == "tar":
            stream = _plain(_tar_member(stream, limit))
        yield stream, found
    except (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise PackedError(f"is an archive that cannot be read ({error}): unpack it") from error


def _plain(member: BinaryIO) -> BinaryIO:
    """A member, unpacked where it is gzip."""
    packed = member.read(2) == _GZIP
    member.seek(0)
    return _gunzipped(member) if packed else member


def _gunzipped(file: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", gzip.GzipFile(fileobj=file))


def _zip_member(file: BinaryIO) -> BinaryIO:
    archive = zipfile.ZipFile(file)
    entries = [entry for entry in archive.infolist()[:_MEMBERS] if entry.filename.endswith(_NAMES)]
    traces = [entry for entry in entries if _is_trace(cast("BinaryIO", archive.open(entry)))]
    return cast("BinaryIO", archive.open(_only(traces, [entry.filename for entry in traces])))


def _tar_member(stream: BinaryIO, limit: int) -> BinaryIO:
    archive = tarfile.TarFile(fileobj=stream)
    traces = []
    for number, member in enumerate(archive):
        if number >= _MEMBERS or member.offset_data > limit:
            break
        if member.isfile() and member.name.endswith(_NAMES):
            content = archive.extractfile(member)
            if content is not None and _is_trace(cast("BinaryIO", content)):
                traces.append(member)
    content = archive.extractfile(_only(traces, [member.name for member in traces]))
    if content is None:
        raise PackedError("is an archive whose trace cannot be read: unpack it")
    return cast("BinaryIO", content)


def _is_trace(content: BinaryIO) -> bool:
    try:
        head = _plain(content).read(_HEAD)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False
    return any(key in head for key in KEYS)


def _only(traces: list[_Member], names: list[str]) -> _Member:
    if not traces:
        raise PackedError("is an archive without a torch.profiler trace: give one that holds it")
    if len(traces) > 1:
        listed = ", ".join(names[:_LISTED])
        error = PackedError(f"holds {len(traces)} traces ({listed}): unpack it, give one")
        error.several = True
        raise error
    return traces[0]
