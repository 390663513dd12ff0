"""The bytes of a file, packed with gzip or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from profiler.errors import InputError
from profiler.importers.head import GZIP
from profiler.trace.unpack import may_unpack_to, too_small

__all__ = ["plain_bytes"]

_CHUNK = 4 << 20


def plain_bytes(path: Path) -> tuple[bytes, bool]:
    """The bytes, unpacked, and whether the packed stream was cut. Raises InputError where they
    cannot be read."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            if not packed:
                return file.read(), False
            with gzip.GzipFile(fileobj=file) as stream:
                return _unpacked(path, stream)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error


def _unpacked(path: Path, stream: gzip.GzipFile) -> tuple[bytes, bool]:
    data = bytearray()
    most = may_unpack_to(path.stat().st_size)
    try:
        while chunk := stream.read1(_CHUNK):
            data += chunk
            if len(data) > most:
                raise too_small(str(path))
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return bytes(data), True
    return bytes(data), False
