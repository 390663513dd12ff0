"""Members of zip and tar archives: the one that is a trace, as a stream."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeVar, cast

from profiler.kineto.archives import KEYS, Packed, PackedError, packed_as

__all__ = ["trace_within"]

_HEAD = 1 << 20  # bytes of a member, by which it is known
_MEMBERS = 1000  # that are looked at
_NAMES = (".json", ".json.gz")
_LISTED = 3  # names in a message
_Member = TypeVar("_Member", zipfile.ZipInfo, tarfile.TarInfo)


@contextmanager
def trace_within(stream: BinaryIO, packed: Packed, limit: int) -> Iterator[BinaryIO]:
    """The JSON of the one trace in an archive; none is looked for beyond `limit` bytes of it.

    Raises PackedError where there is none, or several, or the archive cannot be read.
    """
    try:
        yield _plain(_zip_member(stream) if packed == "zip" else _tar_member(stream, limit))
    except (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise PackedError(f"is an archive that cannot be read ({error}): unpack it") from error


def _plain(member: BinaryIO) -> BinaryIO:
    """A member, unpacked where it is gzip."""
    packed = packed_as(member.read(2)) == "gzip"
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
        error = PackedError(
            f"holds {len(traces)} traces ({listed}): unpack it, and give its folder or one"
        )
        error.several = True
        raise error
    return traces[0]
