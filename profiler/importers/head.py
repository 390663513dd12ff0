"""The begin of a file, by which importers recognise it, and all of a small one."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from profiler.errors import InputError
from profiler.trace.unpack import may_unpack_to, too_small

__all__ = ["GZIP", "SQLITE", "content_of", "head_of"]

GZIP, SQLITE = b"\x1f\x8b", b"SQLite format 3\0"
"""What such files begin with."""
_HEAD = 1 << 20  # bytes of decompressed text
_LARGEST = 1 << 30  # bytes of what is read at once, unpacked


def head_of(path: Path) -> bytes:
    """The first MiB of a file, of a `.gz` unpacked, and b"" of a folder.

    Raises InputError where it cannot be read.
    """
    if path.is_dir():
        return b""
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == GZIP
            file.seek(0)
            if not compressed:
                return file.read(_HEAD)
            with gzip.GzipFile(fileobj=file) as stream:
                return _readable(stream)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error


def content_of(path: Path, largest: int = _LARGEST) -> bytes:
    """All of a file, of a `.gz` unpacked, as far as it can be unpacked.

    Raises InputError where it cannot be read or is larger than `largest` bytes.
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == GZIP
            file.seek(0)
            if compressed:
                bound = may_unpack_to(path.stat().st_size)
                with gzip.GzipFile(fileobj=file) as stream:
                    data = _readable(stream, min(largest, bound) + 1)
                if len(data) > bound:
                    raise too_small(str(path))
            else:
                data = file.read(largest + 1)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error
    if len(data) > largest:
        raise InputError(f"{path} is larger than the limit of {largest:,} bytes: record less")
    return data


def _readable(stream: gzip.GzipFile, most: int = _HEAD) -> bytes:
    """The first MiB, or what of it can be had: the importer says what is wrong with the rest."""
    head = bytearray()
    try:
        while len(head) < most and (chunk := stream.read1(_HEAD)):
            head += chunk
    except (EOFError, gzip.BadGzipFile, zlib.error):
        pass
    return bytes(head)
