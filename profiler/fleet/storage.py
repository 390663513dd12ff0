"""Where a data set lies: a local folder, or an object store through fsspec.

    storage = open_storage("s3://bucket/fleet")
    storage.create("generations/00000002.json", data)     # False: somebody else has made it

Files never change. `create` makes one whole and only where there is none: a temporary file that is
linked to its name in local folders, one PUT on the condition that nothing is there elsewhere.
"""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from profiler.errors import InputError, OutputError, needing
from profiler.files import create_atomically, folder_mode, not_writable

__all__ = ["LocalStorage", "RemoteStorage", "Storage", "is_url", "open_storage"]

_ATTEMPTS = 5  # of a PUT that meets another one of the same name


class Storage(Protocol):
    """Files by their names below the data set's place, with `/` between parts."""

    @property
    def place(self) -> str:
        """The folder or URL, as messages name it."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file; False where one of that name is there. Raises OutputError."""

    def read(self, name: str) -> bytes:
        """Its bytes. Raises FileNotFoundError where it is gone, InputError for other reasons."""

    def names(self, prefix: str) -> list[str]:
        """Names of all files below the folder `prefix`, sorted; none where it is not there."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; one that is gone is no error."""

    def size(self, name: str) -> int:
        """Bytes of a file. Raises FileNotFoundError."""

    def is_empty(self) -> bool:
        """Whether nothing is at the place, or no place."""

    def input(self, name: str) -> str | io.BytesIO:
        """What Polars reads a Parquet file from. Raises FileNotFoundError."""

    def files(self, names: Sequence[str]) -> tuple[Any, list[str]]:
        """A file system of pyarrow, and the paths of these files there."""


def is_url(place: str) -> bool:
    """Whether `place` is an fsspec URL and no path."""
    return "://" in place


def open_storage(place: str) -> Storage:
    """The storage at a path or a URL. Raises InputError for a URL of no kind that is known here,
    MissingPackageError without fsspec."""
    if not is_url(place):
        return LocalStorage(Path(place))
    with needing("fleet", f"the data set {place}", "fsspec"):
        import fsspec
    try:
        filesystem, path = fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"cannot open {place} ({error}): install what fsspec needs, or give a folder"
        ) from error
    if "file" in _protocols(filesystem):
        return LocalStorage(Path(path))
    if not _creates(filesystem):
        package = type(filesystem).__module__.partition(".")[0]
        raise InputError(
            f"{place}: this version of {package} would write over what is there: update it"
        )
    return RemoteStorage(filesystem, path.rstrip("/"), place)


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder."""

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def create(self, name: str, data: bytes) -> bool:
        path = self.folder / name
        try:
            self._make_folder(path.parent)
        except OSError as error:
            raise not_writable(path, error) from error
        return create_atomically(path, data)

    def read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _not_readable(self.place, name, error) from error

    def names(self, prefix: str) -> list[str]:
        found = []
        for folder, _, files in os.walk(self.folder / prefix):
            below = os.path.relpath(folder, self.folder).replace(os.sep, "/")
            found += [f"{below}/{file}" for file in files if not file.startswith(".")]
        return sorted(found)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                (self.folder / name).unlink(missing_ok=True)
            except OSError as error:
                raise not_writable(self.folder / name, error) from error

    def size(self, name: str) -> int:
        return (self.folder / name).stat().st_size

    def is_empty(self) -> bool:
        try:
            with os.scandir(self.folder) as entries:
                return all(entry.name.startswith(".") for entry in entries)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise _not_readable(self.place, "", error) from error

    def input(self, name: str) -> str:
        return str(self.folder / name)

    def files(self, names: Sequence[str]) -> tuple[Any, list[str]]:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), [str(self.folder.absolute() / name) for name in names]

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(folder_mode(), exist_ok=True)


@dataclass(frozen=True, slots=True)
class RemoteStorage:
    """An object store that fsspec knows; `root` is the data set's path there."""

    filesystem: Any
    root: str
    place: str

    def create(self, name: str, data: bytes) -> bool:
        for _ in range(_ATTEMPTS):
            try:
                self.filesystem.pipe_file(self._path(name), data, mode="create")
            except Exception as error:
                if _is_conflict(error):  # with a PUT or DELETE that goes on: try again
                    continue
                if isinstance(error, FileExistsError) or _is_taken(error):
                    return self._is_own(name, data)
                raise OutputError(
                    f"cannot write {self.place}/{name} ({_reason(error)}): check access and address"
                ) from error
            return True
        raise OutputError(f"cannot write {self.place}/{name}: others write it, too: try again")

    def _is_own(self, name: str, data: bytes) -> bool:
        """Whether what is there is what was to be written: where the answer to a PUT is lost, the
        client sends it again, and meets the first one."""
        try:
            return self.size(name) == len(data) and self.read(name) == data
        except FileNotFoundError:
            return False

    def read(self, name: str) -> bytes:
        try:
            data: bytes = self.filesystem.cat_file(self._path(name))
        except FileNotFoundError:
            raise
        except Exception as error:
            raise _not_readable(self.place, name, error) from error
        return data

    def names(self, prefix: str) -> list[str]:
        try:
            self.filesystem.invalidate_cache()
            found = self.filesystem.find(self._path(prefix))
        except FileNotFoundError:
            return []
        except Exception as error:
            raise _not_readable(self.place, prefix, error) from error
        root = PurePosixPath(self.root)
        return sorted(str(PurePosixPath(path).relative_to(root)) for path in found)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self.filesystem.rm_file(self._path(name))

    def size(self, name: str) -> int:
        return int(self.filesystem.size(self._path(name)))

    def is_empty(self) -> bool:
        try:
            return not self.filesystem.ls(self.root, detail=False)
        except FileNotFoundError:
            return True
        except Exception as error:
            raise _not_readable(self.place, "", error) from error

    def input(self, name: str) -> io.BytesIO:
        return io.BytesIO(self.read(name))

    def files(self, names: Sequence[str]) -> tuple[Any, list[str]]:
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        return PyFileSystem(FSSpecHandler(self.filesystem)), [self._path(name) for name in names]

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


def _protocols(filesystem: Any) -> tuple[str, ...]:
    known = filesystem.protocol
    return (known,) if isinstance(known, str) else tuple(known)


def _creates(filesystem: Any) -> bool:
    """Whether it knows how to create a file only where there is none: older ones ignore it."""
    function = getattr(filesystem, "_pipe_file", filesystem.pipe_file)
    return "mode" in inspect.signature(function).parameters


def _is_taken(error: Exception) -> bool:
    """Whether a conditional PUT failed because something is there (412)."""
    return _says(error, "PreconditionFailed", "412")


def _is_conflict(error: Exception) -> bool:
    """Whether a conditional PUT met another request for the same name (409), which says nothing of
    what is there: it is to be sent again (Amazon S3 API reference, PutObject)."""
    return _says(error, "ConditionalRequestConflict", "409")


def _says(error: Exception, word: str, status: str) -> bool:
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            if code in (word, status):
                return True
    return word in str(error)


def _not_readable(place: str, name: str, error: Exception) -> InputError:
    return InputError(f"cannot read {place}/{name} ({_reason(error)}): check access and address")


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
