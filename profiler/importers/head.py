"""The begin of a file, by which importers recognise it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from profiler.errors import InputError

__all__ = ["head_of"]

_HEAD = 1 << 20  # bytes of decompressed text
_GZIP = b"\x1f\x8b"


def head_of(path: Path) -> bytes:
    """The first MiB of a file, of a `.gz` unpacked, and b"" of a folder.

    Raises InputError where it cannot be read.
    """
    if path.is_dir():
        return b""
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP
            file.seek(0)
            if not compressed:
                return file.read(_HEAD)
            with gzip.GzipFile(fileobj=file) as stream:
                return _readable(stream)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error


def _readable(stream: gzip.GzipFile) -> bytes:
    """The first MiB, or what of it can be had: the importer says what is wrong with the rest."""
    head = bytearray()
    try:
        while len(head) < _HEAD and (chunk := stream.read1(_HEAD)):
            head += chunk
    except (EOFError, gzip.BadGzipFile, zlib.error):
        pass
    return bytes(head)
