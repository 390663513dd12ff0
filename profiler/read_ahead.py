"""A small `.gz` file unpacked on a thread, while the program imports what is going to read it.

    begin(path)                # as soon as the command line is known
    text = unpacked(file)      # later, of the open file; None: read it yourself

zlib needs no interpreter lock, so on two cores this is time that nobody waits for. What is not one
whole gzip stream within the limits is left to who reads it, and so are all errors.
"""

from __future__ import annotations

import os
import stat
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["begin", "unpacked"]

_LEAST, _MOST = 1 << 18, 32 << 20  # bytes of a file that is worth it, and that is small
_LARGEST = 96 << 20  # bytes unpacked
_GZIP = b"\x1f\x8b"
_WINDOW = 31  # zlib's number for a gzip stream: its checksum and length are checked

_Identity = tuple[int, int, int, int]


class _Ahead:
    """The thread, and what it found: which file it read, and its text, None where it gave up."""

    def __init__(self, path: Path) -> None:
        self.identity: _Identity | None = None
        self.text: bytes | None = None
        self.thread = threading.Thread(target=self._unpack, args=(path,), daemon=True)
        self.thread.start()

    def _unpack(self, path: Path) -> None:
        with suppress(OSError, ValueError, zlib.error, MemoryError):
            if not path.is_file():  # a pipe would wait, and what is read from one is gone
                return
            with path.open("rb") as file:
                identity = _identity(file)
                if identity is None or file.read(len(_GZIP)) != _GZIP:
                    return
                stream = zlib.decompressobj(_WINDOW)
                text = stream.decompress(_GZIP + file.read(_MOST), _LARGEST)
            if stream.eof and not stream.unused_data:
                self.identity, self.text = identity, text


_begun: list[_Ahead] = []


def begin(path: Path) -> None:
    """Unpack the file at `path`, if it is a small gzip file, until somebody asks for it."""
    _begun[:] = [_Ahead(path)]


def unpacked(file: BinaryIO) -> bytes | None:
    """What this file holds, once; None where nothing was begun, or no whole small gzip file."""
    if not _begun:
        return None
    ahead = _begun.pop()
    ahead.thread.join()
    with suppress(OSError, ValueError):
        if ahead.identity is not None and _identity(file) == ahead.identity:
            return ahead.text
    return None


def _identity(file: BinaryIO) -> _Identity | None:
    """Which file this is, in which state; None where it is not a file of such a size."""
    told = os.fstat(file.fileno())
    if not stat.S_ISREG(told.st_mode) or not _LEAST <= told.st_size <= _MOST:
        return None
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns
