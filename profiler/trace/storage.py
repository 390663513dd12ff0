"""Files that appear whole: written beside their place, forced to the disk if asked, renamed.

with appearing(path, sync=True) as file:
    file.write(data)
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from profiler.errors import OutputError

__all__ = [
    "appearing",
    "begin_file",
    "not_writable",
    "sync_directory",
    "write_atomically",
    "write_small",
]

_BINARY = getattr(os, "O_BINARY", 0)  # Windows
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def write_atomically(
    path: Path, chunks: bytes | Iterable[bytes], *, sync: bool = False, begun: int = 0
) -> int:
    """Write `path` under a temporary name and rename it; returns its size in bytes.

    `sync` forces it to the disk before it gets its name; `begun` is what `begin_file` has written
    of it. Raises OutputError.
    """
    with appearing(path, sync=sync, begun=begun) as file:
        pieces = [chunks] if isinstance(chunks, bytes) else chunks
        return begun + sum(map(file.write, pieces))


def write_small(path: Path, data: bytes) -> int:
    """As `write_atomically`, in as few steps as there are: some µs less for each of many files."""
    part = _part_of(path)
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
        finally:
            os.close(handle)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise not_writable(path, error) from error
    return len(data)


def begin_file(path: Path, chunks: Iterable[bytes], begun: int) -> int:
    """Append to what will be `path`, of which `begun` bytes are written, under its temporary name;
    returns how many are now. What an OutputError leaves behind them is overwritten."""
    try:
        with _opened(_part_of(path), begun) as file:
            return begun + sum(map(file.write, chunks))
    except OSError as error:
        raise not_writable(path, error) from error


@contextmanager
def appearing(path: Path, *, sync: bool = False, begun: int = 0) -> Iterator[BinaryIO]:
    """A file that gets the name `path` once it is complete, and is removed when it is not. It
    stands behind the `begun` bytes that `begin_file` has written. What is there and no file, such
    as a pipe or /dev/null, is written to and stays."""
    part = _part_of(path)
    try:
        if _stays(path):
            with path.open("wb") as file:
                yield file
            return
        with _opened(part, begun) as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise not_writable(path, error) from error
        raise


def _stays(path: Path) -> bool:
    """Whether a name is that of a pipe or a device, which a rename would take away."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _opened(part: Path, begun: int) -> BinaryIO:
    """A file to write behind its first `begun` bytes, which alone are kept."""
    file = part.open("r+b" if begun else "wb")
    file.truncate(begun)
    file.seek(begun)
    return file


def sync_directory(directory: Path) -> None:
    """Force new names in `directory` to the disk, where the system can. Raises OutputError."""
    if os.name == "nt":
        return
    try:
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise not_writable(directory, error) from error


def not_writable(path: Path, error: OSError) -> OutputError:
    """What to tell the user of a file or folder that cannot be written."""
    reason = error.strerror or str(error)
    remedy = "give a folder you may write to"
    if error.errno in _FULL:
        remedy = "make room there, or give a folder elsewhere"
    return OutputError(f"cannot write {path} ({reason}): {remedy}")
