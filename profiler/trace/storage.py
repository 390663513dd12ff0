"""Files that appear whole: written beside their place, forced to the disk if asked, renamed.

with appearing(path, sync=True) as file:
    file.write(data)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from profiler.errors import OutputError

__all__ = ["appearing", "not_writable", "sync_directory", "write_atomically"]


def write_atomically(path: Path, chunks: bytes | Iterable[bytes], *, sync: bool = False) -> int:
    """Write `path` under a temporary name and rename it; returns its size in bytes.

    `sync` forces it to the disk before it gets its name. Raises OutputError.
    """
    with appearing(path, sync=sync) as file:
        pieces = [chunks] if isinstance(chunks, bytes) else chunks
        return sum(map(file.write, pieces))


@contextmanager
def appearing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """A file that gets the name `path` once it is complete, and is removed when it is not."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
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
    return OutputError(f"cannot write {path} ({reason}): give a folder you may write to")
