"""Write files atomically, and read or write JSON.

    with appearing(path, sync=True) as file:
        file.write(data)

A file is written under a random name and renamed, so a failure leaves nothing. Files are
readable by their owner alone, unless RBLN_PROFILER_SHARED=1 leaves that to the umask. Pipes and
devices are written to directly. Types of msgspec are prepared by one thread at a time, because
msgspec crashes if another thread or a fork uses a half-prepared type.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from io import BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from profiler.errors import OutputError

# --- Files that appear only when complete: written under a random name beside their place, then
# renamed.
#
# Only their owner can read them, since they show what ran, on what and how it was started. The
# random name prevents planted links, and two writers of one file from mixing their output. A pipe,
# /dev/null or /dev/stdout is written to directly. Libraries that write get the opened file.


SHARED = "RBLN_PROFILER_SHARED"
MAX_UNPACKED = "PROFILE_SD3_MAX_UNPACKED"
"""The most bytes that a packed file may unpack to; set by `--max-unpacked`."""
_YES = ("1", "true", "on", "yes")

# Windows has no O_NOFOLLOW and no O_CLOEXEC, other systems no O_BINARY.
_PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | _PLAIN
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_READER_S = 5.0  # in which a reader must open a pipe
_OS_ERROR = re.compile(r"\(os error ([0-9]{1,5})\)")
_DESCRIPTORS = re.compile(
    r"/dev/(?P<name>stdout|stderr)|(?:/dev|/proc/self)/fd/(?P<number>[0-9]{1,9})"
)
_NUMBERS = {"stdout": 1, "stderr": 2}


def file_mode() -> int:
    """The permissions of new files, before the umask: only for their owner, unless shared files are
    requested."""
    return 0o666 if _is_shared() else 0o600


def folder_mode() -> int:
    """The permissions of a new run folder, as `file_mode`."""
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
    """Write a new regular file as `write_atomically` does, in fewer steps: saves some µs for each
    of many files."""
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
    file has that already: then nothing changes, and this returns False. If several writers create
    one file, one succeeds. Raises OutputError."""
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
    """Rename `part` to `path` unless that exists; returns whether it did."""
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: an empty file reserves the name
        try:
            os.close(os.open(path.with_name(f".{path.name}.taken"), _NEW, file_mode()))
        except FileExistsError:
            return False
        part.replace(path)
    return True


@contextmanager
def appearing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a file that gets the name `path` once the block ends, and is removed if the block fails.

    Raises OutputError if it cannot be written, and for an OSError of the block.
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
def folder_appearing(directory: Path, *, over: bool = True) -> Iterator[Path]:
    """Yield a scratch folder whose files move to `directory`, which is created, when the block
    ends: replacing files if `over`, else into an empty folder only. If the block fails, nothing is
    left. Raises OutputError, also for an OSError of the block."""
    if not over and directory.is_dir() and any(directory.iterdir()):
        raise OutputError(f"{directory} is not empty: give a new folder, nothing is overwritten")
    new = list(takewhile(lambda one: not os.path.lexists(one), (directory, *directory.parents)))
    folder = directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with scratch_folder(directory / "files") as folder:
            yield folder
            for path in folder.iterdir():
                path.replace(directory / path.name)
        new = []
    except OutputError as error:
        raise OutputError(str(error).replace(str(folder), str(directory))) from error
    except OSError as error:
        raise not_writable(directory, error) from error
    finally:
        if new and directory.is_dir():
            shutil.rmtree(directory, ignore_errors=True)
        for parent in new[1:]:
            with suppress(OSError):
                parent.rmdir()


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield a private folder beside `path`, for libraries that write several files; files to keep
    are renamed out of it before the block ends. Creates the folder of `path`. Raises
    OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=path.parent)
    except OSError as error:
        raise not_writable(path.parent, error) from error
    with made as folder:
        yield Path(folder)


def _part_of(path: Path) -> Path:
    """An unpredictable name beside `path`, short however long that is."""
    return path.with_name(f".{os.urandom(8).hex()}.part")


def _opened_special(path: Path) -> BinaryIO | None:
    """Open the pipe or device at `path`, which a rename cannot replace; None for a file, or
    nothing. Raises IsADirectoryError for a folder."""
    known = _DESCRIPTORS.fullmatch(os.path.normpath(path))
    if known is not None:  # keeps its offset and append mode, which opening again would lose
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
    if not stat.S_ISFIFO(mode):
        return os.fdopen(os.open(path, os.O_WRONLY | _PLAIN), "wb")
    handle = _opened_pipe(path)
    os.set_blocking(handle, True)
    return os.fdopen(handle, "wb")


def _opened_pipe(path: Path) -> int:
    """Open a named pipe for writing once it is being read. Raises OSError after some seconds
    without a reader, since it may be in place of a file."""
    until = time.monotonic() + _READER_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | _PLAIN)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > until:
                raise
        time.sleep(_READER_S / 100)


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths name the same file, or would."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except OSError:  # one of them does not exist
        return False


def sync_to_disk(path: Path) -> None:
    """Force a file, or the new names in a folder, to the disk, if the system can. Raises
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
    """The error for the user if a file or folder cannot be written."""
    match = _OS_ERROR.search(str(error))  # libraries in Rust have the number only in their text
    number = error.errno or (int(match[1]) if match else None)
    reason = error.strerror or (os.strerror(number) if number else str(error))
    advice = "give a folder you may write to"
    if number == errno.ENXIO:
        reason, advice = "a pipe that nobody reads", "remove it, or read it first"
    if number == errno.EFBIG:
        advice = "raise the limit of a file's size (ulimit -f)"
    if number in (errno.EEXIST, errno.ENOTDIR):
        advice = "something else has that name: give another folder"
    if number in _FULL:
        advice = "make room there, or give a folder elsewhere"
    return OutputError(f"cannot write {path} ({reason}): {advice}")


# --- Reading files of other programs. All such files are opened here: a pipe or a device in their
# place neither blocks nor reads for ever, and checks apply to the opened file, even if its name is
# reused.


_NOT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError if it is not regular or cannot be read."""
    handle = os.open(path, os.O_RDONLY | _NOT_WAITING | _PLAIN)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "no regular file", str(path))


def size_of(file: BinaryIO) -> int:
    """The size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def read_file(path: Path, most: int | None = None) -> bytes:
    """The bytes that a regular file has when it is opened, even if it grows. Raises OSError if it
    is not regular, cannot be read, or has more than `most`."""
    with opened(path) as file:
        size = size_of(file)
        if most is not None and size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read(size)


# --- Documents as JSON text, and as plain values.


def json_text(document: Any, *, indent: int | None = 1) -> str:
    """`document` as JSON text, without a newline at the end; `indent` None: on one line."""
    try:
        text = json.dumps(document, default=plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # a key that is not text, a number that JSON lacks
        text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False)
    text = _HALF.sub("\ufffd", text)
    if indent is None:
        return text
    # json.dumps would indent in Python, slowly.
    return msgspec.json.format(text.encode(), indent=indent).decode()


def ascii_json(data: Any) -> str:
    """Plain values as the shortest ASCII JSON."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """`value` as mappings, lists, text, numbers, booleans and None.

    Dataclasses and structs become objects, objects with a method `as_json` its result, members of
    an enum their value, sequences and sets lists, sets sorted. Numbers that JSON lacks (NaN,
    infinities) become None; other values, such as a path or a time, text.
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float, Decimal)):
        return _number(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, Set)):
        parts = sorted(value, key=str) if isinstance(value, Set) else value
        return [plain(part) for part in parts]
    return _converted(value)


def _converted(value: Any) -> Any:
    for method in ("as_json", "tolist"):  # `tolist` is for NumPy's scalars and arrays
        made = getattr(value, method, None)
        if callable(made):
            return plain(made())
    names = getattr(type(value), "__struct_fields__", None)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    return str(value)


def _number(value: float | Decimal) -> float | None:
    if isinstance(value, int):
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None


_HALVES = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


_HALF = re.compile("[\ud800-\udfff]")


def paired(text: str) -> str:
    """Replace unpaired surrogates in JSON text by U+FFFD: Python's decoder would make strings of
    them that cannot be written."""
    return _HALVES.sub(lambda found: r"\ufffd" if found[1] else found[0], text)


def writable(value: Any) -> Any:
    """Plain values whose texts can be written as UTF-8: unpaired surrogates, as in some file names,
    become U+FFFD."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {writable(key): writable(part) for key, part in value.items()}
    return [writable(part) for part in value] if isinstance(value, (list, tuple)) else value


# --- JSON and plain values as types of msgspec, from any thread.
#
# msgspec prepares a struct's fields at its first use, and crashes if another thread uses the
# half-prepared type. Here one thread prepares it, while others wait, and forks, too, since a child
# would keep the half-prepared type.


_Type = TypeVar("_Type")
_DECODERS: dict[tuple[Any, bool], msgspec.json.Decoder[Any]] = {}
FORKS_WAIT = threading.RLock()
"""While a thread holds it, forks by others wait."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORKS_WAIT.acquire,
        after_in_parent=FORKS_WAIT.release,
        after_in_child=FORKS_WAIT.release,
    )


def decoder_of(kind: type[_Type], *, strict: bool = True) -> msgspec.json.Decoder[_Type]:
    """The cached decoder of JSON as `kind`."""
    known = _DECODERS.get((kind, strict))
    if known is None:
        with FORKS_WAIT:
            known = _DECODERS.get((kind, strict)) or msgspec.json.Decoder(kind, strict=strict)
            _DECODERS[kind, strict] = known
    return cast("msgspec.json.Decoder[_Type]", known)


def decoded(text: bytes | bytearray | str, kind: type[_Type], *, strict: bool = True) -> _Type:
    """Decode JSON as `kind`. Raises what `msgspec.json.decode` does."""
    return decoder_of(kind, strict=strict).decode(text)


def converted(value: object, kind: type[_Type]) -> _Type:
    """Convert plain values to `kind`. Raises ValidationError if they do not fit."""
    decoder_of(kind)
    return msgspec.convert(value, kind)
