"""Import a zip or tar of one run's files: they are read as the folder that they were.

Like `mixed`, this has no `IMPORTER`, because it needs all the others: `importing` makes one for
archives that contain a trace of any format.

    import_trace(Path("run.zip"), Path("traces"))      # nsys, Kineto and ORT files of one run

Links and devices are skipped. The unpacked size is limited by the archive's size and by 8 GiB
(`--max-unpacked`).
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from msgspec import structs

from profiler.errors import InputError
from profiler.files import opened
from profiler.importers.importer import ForeignRun, Importer, Landmarked
from profiler.kineto import packed_as
from profiler.plugins import plain_text
from profiler.trace.compression import may_unpack_to, too_small

if TYPE_CHECKING:
    from profiler.trace.bundle import BundleWriter
    from profiler.trace.manifest import RunInfo

ACCEPTS = "a zip or tar of the files of one run"


def is_archive(path: Path, head: bytes) -> bool:
    """Whether a file is a zip or a tar, from its start, unpacked."""
    return not path.is_dir() and packed_as(head) in ("zip", "tar")


# --- The files in a zip or tar: their starts, by which they are known, and themselves in a folder.
#
# How much is unpacked is bounded before it is there.


_HEAD = 1 << 20  # bytes of a member, by which it is known
_MEMBERS = 1000  # of an archive of one run
_DEPTH = 8  # folders in each other
_PIECE = 1 << 20
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError, EOFError),
    *(gzip.BadGzipFile, zlib.error, ValueError, UnicodeError, OverflowError),
)


class _Member(NamedTuple):
    """A file in an archive, and its content."""

    name: str
    content: BinaryIO


def heads_in(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the first MiB of each file in an archive, unpacked if it is gzip. Hidden
    files are skipped. Raises InputError if the archive cannot be read."""
    with _opened(path) as members:
        for name, content in members:
            head = content.read(_HEAD)
            if packed_as(head) == "gzip":  # as much of the start as it holds
                packed, head = head, b""
                with suppress(zlib.error):
                    head = zlib.decompressobj(wbits=31).decompress(packed, _HEAD)
            yield name, head


def unpack(path: Path, folder: Path) -> None:
    """Write the files in an archive into an empty folder.

    Raises InputError if the archive cannot be read, exceeds the limits, or has a name that leads
    out of the folder or names two files.
    """
    left = may_unpack_to(path.stat().st_size)
    with _opened(path) as members:
        for name, content in members:
            place = folder.joinpath(*_parts(path, name))
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("xb") as file:
                    while piece := content.read(_PIECE):
                        left -= len(piece)
                        if left < 0:
                            raise too_small(str(path))
                        file.write(piece)
            except OSError as error:
                raise InputError(
                    f"cannot unpack {plain_text(name)} of {path} ({error.strerror or error}): "
                    "unpack it yourself, and give the folder"
                ) from error


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[_Member]]:
    try:
        with opened(path) as file:
            yield _members(path, file)
    except _BROKEN as error:
        raise InputError(
            f"{path} is an archive that cannot be read ({plain_text(str(error))}): copy it again, "
            "or unpack it and give the folder"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error


def _members(path: Path, file: BinaryIO) -> Iterator[_Member]:
    packed = packed_as(file.read(512))
    file.seek(0)
    if packed == "zip":
        yield from _of_zip(path, file)
    else:
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed == "gzip" else file
        yield from _of_tar(path, stream)


def _of_zip(path: Path, file: BinaryIO) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as archive:
        for number, entry in enumerate(archive.infolist()):
            _check(path, number)
            mode = entry.external_attr >> 16
            kind = mode & 0o170000
            if entry.is_dir() or kind not in (0, 0o100000) or _is_hidden(entry.filename):
                continue
            with archive.open(entry) as content:
                yield _Member(entry.filename, cast("BinaryIO", content))


def _of_tar(path: Path, stream: BinaryIO) -> Iterator[_Member]:
    bound = may_unpack_to(path.stat().st_size)
    with tarfile.TarFile(fileobj=stream) as archive:
        for number, member in enumerate(archive):
            _check(path, number)
            if member.offset_data + member.size > bound:
                raise too_small(str(path))
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and not _is_hidden(member.name):
                yield _Member(member.name, cast("BinaryIO", content))


def _check(path: Path, number: int) -> None:
    if number >= _MEMBERS:
        raise InputError(
            f"{path} holds more than {_MEMBERS:,} files: give an archive with those of one run"
        )


def _is_hidden(name: str) -> bool:
    """Whether a member is hidden or added by the packing system: `.DS_Store`, `__MACOSX/`."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return any(part == "__MACOSX" or (part.startswith(".") and part != "..") for part in parts)


def _parts(path: Path, name: str) -> tuple[str, ...]:
    """The folders and the name of a member, checked to stay in the target folder."""
    found = PurePosixPath(name.replace("\\", "/"))
    parts = found.parts
    if found.is_absolute() or not parts or ".." in parts or ":" in parts[0] or "\0" in name:
        raise InputError(
            f"{path} holds {plain_text(name)!r}, which leads out of a folder: pack the files anew, "
            "with names below one folder"
        )
    if len(parts) > _DEPTH:
        raise InputError(
            f"{path} holds folders more than {_DEPTH} deep: pack the run's files alone"
        )
    return parts


# --- What an importer reads of those files. The temporary folder lives as long as the run, because
# an importer may read it later.


_ENDINGS = (".zip", ".tar.gz", ".tgz", ".tar")


class _Scratch:
    """A temporary folder that is removed with this object, or with the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="profile-sd3-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveRun:
    """The run that an importer read from an archive's files, which are in `scratch`."""

    path: Path
    run: ForeignRun
    scratch: _Scratch

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def capabilities(self) -> Collection[str]:
        return self.run.capabilities

    @property
    def others(self) -> tuple[ArchiveRun, ...]:
        """The runs of files that are not related to the first."""
        found = getattr(self.run, "others", ())
        return tuple(ArchiveRun(self.path, one, self.scratch) for one in found)

    def landmarks(self) -> Iterable[tuple[str, int]]:
        return self.run.landmarks() if isinstance(self.run, Landmarked) else ()

    def write(self, bundle: BundleWriter) -> RunInfo:
        info, held = self.run.write(bundle), str(self.scratch.path)
        words = (str(self.path) if one.startswith(held) else one for one in info.command_line)
        recording = info.recording
        if recording is not None:
            recording = structs.replace(recording, source=self.path.name)
        return structs.replace(info, command_line=tuple(words), recording=recording)


def read_archive(
    path: Path, recognised: Callable[[Sequence[Path]], Importer | None], given: Mapping[str, Any]
) -> ArchiveRun:
    """Read an archive as the folder that it holds, or as its only file.

    Raises InputError if it cannot be unpacked, or holds nothing that can be read.
    """
    scratch = _Scratch()
    try:
        # the archive's name without what says how it is packed
        ending = next((one for one in _ENDINGS if path.name.lower().endswith(one)), "")
        stem = path.name[: len(path.name) - len(ending)].strip(". ") or "archive"
        held = scratch.path / stem
        held.mkdir()
        unpack(path, held)
        run = _read(path, _inmost(held), recognised, given)
    except InputError as error:
        scratch.remove()
        text = str(error).replace(f"{scratch.path}/", "")
        raise InputError(f"{path}: {text}" if text != str(error) else text) from error
    return ArchiveRun(path, run, scratch)


def _read(
    path: Path,
    place: Path,
    recognised: Callable[[Sequence[Path]], Importer | None],
    given: Mapping[str, Any],
) -> ForeignRun:
    importer = recognised([place])
    if importer is None:
        raise InputError(f"{path} holds no trace that is read here: give one, or its folder")
    return importer.read([place], importer.values(given))


def _inmost(folder: Path) -> Path:
    """The folder, or, while it contains a single entry, that entry: archives often repeat their
    name as a folder, and a single file is read by itself."""
    while folder.is_dir() and len(found := list(folder.iterdir())) == 1:
        folder = found[0]
    return folder
