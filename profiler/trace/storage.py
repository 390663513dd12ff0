"""A file of a bundle that grows through the run under a temporary name until it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from profiler.files import file_mode, not_writable

__all__ = ["begin_file", "finish_file"]

_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def begin_file(path: Path, chunks: Iterable[bytes], begun: int) -> int:
    """Append to what will be `path`, of which `begun` bytes are written, under its temporary name;
    returns how many are now. What an OutputError leaves behind them is overwritten."""
    try:
        with _opened(_part_of(path), begun) as file:
            return begun + sum(map(file.write, chunks))
    except OSError as error:
        raise not_writable(path, error) from error


def finish_file(path: Path, chunks: Iterable[bytes], begun: int, *, sync: bool = False) -> int:
    """Write the rest of what `begin_file` has begun, and give it its name; returns its size in
    bytes. `sync` forces it to the disk before. Raises OutputError, and leaves nothing then."""
    part = _part_of(path)
    try:
        with _opened(part, begun) as file:
            size = begun + sum(map(file.write, chunks))
            file.flush()
            if sync:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise not_writable(path, error) from error
        raise
    return size


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _opened(part: Path, begun: int) -> BinaryIO:
    """A file to write behind its first `begun` bytes, which alone are kept."""
    file = os.fdopen(os.open(part, _FLAGS, file_mode()), "wb")
    try:
        file.truncate(begun)
        file.seek(begun)
    except BaseException:
        file.close()
        raise
    return file
