"""The `Importer` interface: how another profiler's files are recognized and read.

    IMPORTER = Importer(
        name="toy",
        accepts="a trace of Toy's profiler (.toy)",
        recognises=lambda path, head: head.startswith(b"TOY1"),
        read=read_run,                        # paths, options → ForeignRun
        options=(Option("steps", int, "denoising steps", least=1),),
        capabilities=frozenset({"timeline"}),
    )

A folder of this package has one as `IMPORTER`, `formats.py` those of single files. Other packages
register theirs under the entry point group `profile_sd3.importers`.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from profiler.errors import InputError
from profiler.files import opened, size_of
from profiler.trace.compression import may_unpack_to, too_small

if TYPE_CHECKING:
    from profiler.trace.bundle import BundleWriter
    from profiler.trace.manifest import RunInfo


# --- The start of a file, by which importers recognise it, and all of a small one.


GZIP, SQLITE = b"\x1f\x8b", b"SQLite format 3\0"
"""What such files start with."""
_HEAD = 1 << 20  # bytes of decompressed text
_LARGEST = 1 << 30  # bytes of files that are read at once, unpacked
_LONGEST_LINE = 1 << 16  # bytes of a table's header; a JSON text may be one long line


def head_of(path: Path) -> bytes:
    """The first MiB of a file, unpacked if it is a `.gz`; b"" for a folder.

    Raises InputError if it cannot be read.
    """
    return b"" if path.is_dir() else bytes_of(path, _HEAD)[0]


def first_line(head: bytes) -> str:
    """The first line of a file with this start, such as a table's header, up to 64 KiB."""
    return head[:_LONGEST_LINE].partition(b"\n")[0].decode("utf-8-sig", "replace")


def content_of(path: Path, largest: int = _LARGEST) -> bytes:
    """The whole content of a file; a `.gz` is unpacked as far as possible.

    Raises InputError if it cannot be read or is larger than `largest` bytes.
    """
    data, _ = bytes_of(path, largest + 1)
    if len(data) > largest:
        raise InputError(f"{path} is larger than the limit of {largest:,} bytes: record less")
    return data


def bytes_of(path: Path, most: int = -1) -> tuple[bytes, bool]:
    """The first bytes of a file, about `most` or all, and whether unpacking ended early. A `.gz` is
    unpacked as far as possible.

    Raises InputError if it cannot be read, or unpacks to more than is allowed.
    """
    try:
        with opened(path) as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            if not packed:
                return file.read(most), False
            bound, data = may_unpack_to(size_of(file), in_memory=True), bytearray()
            with gzip.GzipFile(fileobj=file) as stream:
                try:
                    while (most < 0 or len(data) < most) and (chunk := stream.read1(_HEAD)):
                        data += chunk
                        if len(data) > bound:
                            raise too_small(str(path))
                except (EOFError, gzip.BadGzipFile, zlib.error):
                    return bytes(data), True
            return bytes(data), False
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error


def real(text: str | None) -> float:
    """The number in a text, NaN if there is none."""
    try:
        return float(text or "")
    except ValueError:
        return nan


# --- What an importer is: data and two functions.


_DIGITS = 18  # of a number in an option


class Option(Struct, frozen=True):
    """An option of an importer; `type` is str, int or Path, `least` the smallest number.

    `meaning` is a phrase for help texts: "denoising steps".
    """

    name: str
    type: type[str] | type[int] | type[Path]
    meaning: str
    least: int = 0

    def read(self, value: object) -> str | int | Path:
        """`value`, a text or a value of the option's type, as the type. Raises InputError if it
        does not fit."""
        if self.type is not int:
            if not isinstance(value, str | os.PathLike) or not os.fspath(value):
                raise InputError(f"{self.name}={value!r} is no text: give {self.meaning}")
            return self.type(os.fspath(value))
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[: _DIGITS + 1])
        if type(value) is not int or not self.least <= value < 10**_DIGITS:
            raise InputError(
                f"{self.name}={value!r:.40} is no number from {self.least}: give {self.meaning}"
            )
        return value


class ForeignRun(Protocol):
    """What an importer has read; nothing is written yet."""

    @property
    def name(self) -> str:
        """The run's name if the user gives none."""

    @property
    def capabilities(self) -> Collection[str]:
        """Those of the importer's `capabilities` that these files have: `shapes` if they contain
        any."""

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write calls and host work into `bundle`. Return the rest of the manifest."""


@runtime_checkable
class Landmarked(Protocol):
    """A run with ranges that the program named. Other recorders may have them, too, which relates
    their clocks."""

    def landmarks(self) -> Iterable[tuple[str, int]]:
        """The name and start of each range, on the clock of the written run."""


class Importer(Struct, frozen=True):
    """Turns the files of one producer into bundles.

    `accepts` says in words what to give, `title` is its name in a list of formats: `name` if it is
    "". `recognises` sees one file and its first MiB, unpacked, or one folder and b"". `read` takes
    the files that belong together and the options that were given, each read by its `Option`; it
    raises InputError for what it cannot use. `capabilities` are codes of what its runs may have:
    timeline, launches, shapes, memory, … (`analysis.dropped_data` says what they mean). `seen`
    names the versions of the producer whose files were read. `beside` names further files that
    `read` uses beside a given one and that are no trace by themselves. `together` groups the files
    of a folder into runs; None means that all are one run. An importer with `if_asked` reads what
    it recognises only if one of its options is given.
    """

    name: str
    accepts: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Sequence[Path], Mapping[str, Any]], ForeignRun]
    options: tuple[Option, ...] = ()
    capabilities: frozenset[str] = frozenset()
    seen: str = ""
    together: Callable[[Sequence[Path]], Sequence[Sequence[Path]]] | None = None
    title: str = ""
    beside: Callable[[Path], Sequence[Path]] | None = None
    if_asked: bool = False

    def values(self, given: Mapping[str, object]) -> dict[str, str | int | Path]:
        """The options in `given`, read. Raises InputError for an unknown one or a wrong value."""
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                use = f"use {', '.join(known)}" if known else "it has none"
                raise InputError(f"the importer {self.name} has no option {name}: {use}")
        return {name: known[name].read(value) for name, value in given.items()}


def reader(
    package: str, one: str = "", reads: str = "read:read_run"
) -> Callable[[Sequence[Path], Mapping[str, Any]], Any]:
    """A function that reads files by one in a module of `package`, imported on use; `reads` names
    module and function. If a run is a single path, `one` says what to give."""
    module, _, function = reads.partition(":")

    def read(paths: Sequence[Path], options: Mapping[str, Any]) -> Any:
        of_format = getattr(import_module(f"{package}.{module}"), function)
        return of_format(only_path(paths, one) if one else paths, **options)

    return read


def recognised_by(path: Path, head: bytes, importer: Importer) -> bool:
    """Whether an importer recognises a path. False if it raises an error on unknown content, or
    must be asked for."""
    try:
        return not getattr(importer, "if_asked", False) and bool(importer.recognises(path, head))
    except Exception:  # noqa: BLE001 - a file of another format must not end in a traceback
        return False


def only_path(paths: Sequence[Path], accepts: str) -> Path:
    """The one path in `paths`. Raises InputError if there are several."""
    if len(paths) != 1:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(f"{named} are {len(paths)} paths, and a run here is one: give {accepts}")
    return paths[0]
