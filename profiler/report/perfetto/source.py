"""What the UI is given to open: the files of one trace, in a form that it reads."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from profiler.errors import InputError
from profiler.trace.bundle import MERGED_NAME, call_files, host_file
from profiler.trace.compression import file_bytes, holds_zstd, is_gzip, not_a_trace, without_zstd
from profiler.trace.manifest import MANIFEST_NAME

__all__ = ["ServedTrace", "served_bundle", "served_file"]

_HEAD = 1 << 16  # bytes in which the descriptor of our extension stands
_EXTENSION = b"profile_sd3"
_PACKET = b"\x0a"


@dataclass(frozen=True, slots=True)
class ServedTrace:
    """A trace as it is served: `files`, whose bytes one after another are it, and the `name` that
    the UI shows. `source` is what a user would drop into another Perfetto UI, `ours` says whether
    it holds calls and commands with their fields."""

    name: str
    files: tuple[Path, ...]
    source: Path
    ours: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(path.stat().st_size for path in self.files)


def served_file(path: Path) -> AbstractContextManager[ServedTrace]:
    """One trace (`.pb`, also packed). Raises InputError where it is none."""
    return _unpacked(_file(path))


def served_bundle(directory: Path) -> AbstractContextManager[ServedTrace]:
    """The merged trace of a bundle, or its files in their order. Raises InputError where it has
    none."""
    return _unpacked(_bundle(directory))


@contextmanager
def _unpacked(trace: ServedTrace) -> Iterator[ServedTrace]:
    """`trace`; what the UI does not read, Zstandard, is unpacked into a folder that goes at the
    end."""
    if not any(holds_zstd(_begin(file)) for file in trace.files):
        yield trace
        return
    with TemporaryDirectory(prefix="profile-sd3-view-") as folder:
        target = Path(folder) / "unpacked.pb"
        with target.open("wb") as unpacked:
            for file in trace.files:
                for piece in without_zstd(file_bytes(file), str(file)):
                    unpacked.write(piece)
        yield ServedTrace(trace.name, (target,), trace.source, trace.ours)


def _file(path: Path) -> ServedTrace:
    begin = _begin(path)
    if not begin:
        raise InputError(f"{path} is empty: record or copy it again")
    if not begin.startswith(_PACKET):
        raise not_a_trace(str(path))
    ours = _EXTENSION in begin or holds_zstd(begin)
    return ServedTrace(_shown(path.name), (path,), path, ours)


def _bundle(bundle: Path) -> ServedTrace:
    merged = bundle / MERGED_NAME
    files = [merged] if merged.is_file() else [*host_file(bundle), *call_files(bundle)]
    if not files:
        raise InputError(f"{bundle} holds {MANIFEST_NAME} but no trace: copy its .pb files back")
    return ServedTrace(_shown(f"{bundle.resolve().name}.pb"), tuple(files), merged, True)


def _begin(path: Path) -> bytes:
    """The first bytes of a trace, of a `.gz` unpacked; raises InputError where it is none."""
    try:
        with path.open("rb") as file:
            begin = file.read(_HEAD)
        if not is_gzip(memoryview(begin)):
            return begin
        with gzip.open(path) as unpacked:
            return unpacked.read1(_HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is no whole .gz file ({error}): copy it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _shown(name: str) -> str:
    """A file name as the last part of an address: letters, digits and a few signs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:120] or "trace.pb"
