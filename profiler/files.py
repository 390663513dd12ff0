"""Files that appear whole: written beside their place under a random name, then renamed.

    with appearing(path, sync=True) as file:
        file.write(data)

They are for who writes them alone, unless RBLN_PROFILER_SHARED=1 leaves that to the umask: what
ran, on what and how it was started is nobody else's business.

Nobody can plant a link under the temporary name, two writers of one file cannot tear each other's
output, and what fails leaves nothing. What is there and is no file, such as a pipe, /dev/null or
/dev/stdout, is written to and stays. Libraries that write are given the opened file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from profiler.errors import OutputError

__all__ = [
    "SHARED",
    "appearing",
    "create_atomically",
    "file_mode",
    "folder_mode",
    "not_writable",
    "same_file",
    "scratch_folder",
    "sync_to_disk",
    "write_atomically",
    "write_small",
]

SHARED = "RBLN_PROFILER_SHARED"
_YES = ("1", "true", "on", "yes")

# Windows has no O_NOFOLLOW and no O_CLOEXEC, other systems no O_BINARY.
_PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | _PLAIN
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_DESCRIPTORS = re.compile(
    r"/dev/(?P<name>stdout|stderr)|(?:/dev|/proc/self)/fd/(?P<number>[0-9]{1,9})"
)
_NUMBERS = {"stdout": 1, "stderr": 2}


def file_mode() -> int:
    """With which permissions files are made, before the umask: for their owner alone, where
    nobody asked for shared ones."""
    return 0o666 if _is_shared() else 0o600


def folder_mode() -> int:
    """`file_mode`, of the folder of a run."""
    return 0o777 if _is_shared() else 0o700


def _is_shared() -> bool:
    return os.environ.get(SHARED, "").strip().lower() in _YES


def write_atomically(path: Path, chunks: bytes | Iterable[bytes], *, sync: bool = False) -> int:
    """Write `path` under a temporary name and rename it; returns its size in bytes.

    `sync` forces it to the disk before it gets its name. Raises OutputError.
    """
    with appearing(path, sync=sync) as file:
        return sum(map(file.write, [chunks] if isinstance(chunks, bytes) else chunks))


def write_small(path: Path, data: bytes) -> int:
    """Write a new regular file as `write_atomically` does, in as few steps as there are: some µs
    less for each of many files."""
    part = _part_of(path)
    try:
        handle = os.open(part, _NEW, file_mode())
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


def create_atomically(path: Path, data: bytes) -> bool:
    """Write a new file under a temporary name, force it to the disk, and give it its name unless a
    file has that already: then nothing changes, and this is False. Of several who create one file,
    one succeeds. Raises OutputError."""
    part = _part_of(path)
    try:
        handle = os.open(part, _NEW, file_mode())
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            return _named(part, path)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
    except OSError as error:
        raise not_writable(path, error) from error


def _named(part: Path, path: Path) -> bool:
    """Give `part` the name `path` where nothing has it."""
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: an empty file takes the name first
        try:
            os.close(os.open(path.with_name(f".{path.name}.taken"), _NEW, file_mode()))
        except FileExistsError:
            return False
        part.replace(path)
    return True


@contextmanager
def appearing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """A file that gets the name `path` once it is complete, and is removed when it is not.

    Raises OutputError where it cannot be written, and for an OSError of the block.
    """
    try:
        special = _opened_special(path)
        if special is not None:
            with special:
                yield special
            return
        with _replacing(path, sync=sync) as file:
            yield file
    except OSError as error:
        raise not_writable(path, error) from error


@contextmanager
def _replacing(path: Path, *, sync: bool) -> Iterator[BinaryIO]:
    part = _part_of(path)
    handle = os.open(part, _NEW, file_mode())
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A folder of one's own beside `path`, for libraries that write several files; what is to stay
    is renamed out of it before the block ends. Makes the folder of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=path.parent) as folder:
        yield Path(folder)


def _part_of(path: Path) -> Path:
    """A name beside `path` that nobody can foresee, short whatever `path` is called."""
    return path.with_name(f".{os.urandom(8).hex()}.part")


def _opened_special(path: Path) -> BinaryIO | None:
    """What is at `path` and cannot be replaced by a rename, opened; None for a file, or nothing.
    Raises IsADirectoryError for a folder."""
    known = _DESCRIPTORS.fullmatch(os.path.normpath(path))
    if known is not None:  # its offset and append mode stay, which opening anew would lose
        number = _NUMBERS[known["name"]] if known["name"] else int(known["number"])
        return os.fdopen(os.dup(number), "wb")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISREG(mode):
        return None
    return os.fdopen(os.open(path, os.O_WRONLY | _PLAIN), "wb")


def same_file(one: Path, other: Path) -> bool:
    """Whether two names are of one file, or would be."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except OSError:  # one of them is not there
        return False


def sync_to_disk(path: Path) -> None:
    """Force a file, or the new names in a folder, to the disk, where the system can. Raises
    OutputError."""
    if os.name == "nt":
        return
    try:
        handle = os.open(path, os.O_RDONLY | _PLAIN)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise not_writable(path, error) from error


def not_writable(path: Path, error: OSError) -> OutputError:
    """What to tell the user of a file or folder that cannot be written."""
    reason = error.strerror or str(error)
    advice = "give a folder you may write to"
    if error.errno in _FULL:
        advice = "make room there, or give a folder elsewhere"
    return OutputError(f"cannot write {path} ({reason}): {advice}")
