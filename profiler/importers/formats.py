"""The trace formats that can be imported, and which of them a file is in.

A format is one entry of `FORMATS`: it recognises a file by its beginning and turns it into a
bundle. A further importer adds an entry and nothing else.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from profiler.errors import InputError
from profiler.importers.rbln_files import is_rbln, sample_file
from profiler.trace.compression import Compression

__all__ = ["FORMATS", "Format", "Importer", "import_trace"]

_HEAD = 1 << 20  # bytes of decompressed text that formats are recognised by
_GZIP = b"\x1f\x8b"

Importer = Callable[[Path, Path, str | None, Compression], Path]


@dataclass(frozen=True, slots=True)
class Format:
    """`accepts` says in words what to give; `recognises` sees the first MiB, decompressed;
    `importer` takes the file, the folder of bundles, the run's name and how to pack packets, and
    returns the bundle."""

    name: str
    accepts: str
    recognises: Callable[[bytes], bool]
    importer: Importer


def _is_kineto(head: bytes) -> bool:
    keys = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')
    return head.lstrip()[:1] == b"{" and any(key in head for key in keys)


def _import_kineto(path: Path, out: Path, run_id: str | None, compress: Compression) -> Path:
    from profiler.importers.kineto import import_kineto

    return import_kineto(path, out, run_id, compress)


def _import_rbln(path: Path, out: Path, run_id: str | None, compress: Compression) -> Path:
    from profiler.importers.rbln import import_rbln

    return import_rbln(path, out, run_id, compress=compress)


FORMATS: tuple[Format, ...] = (
    Format(
        "kineto",
        "a torch.profiler trace (Chrome JSON, .json or .json.gz)",
        _is_kineto,
        _import_kineto,
    ),
    Format(
        "rbln",
        "a folder of RBLN's rbln_<date>_<time>_<n>.pb, or one of them",
        is_rbln,
        _import_rbln,
    ),
)


def import_trace(
    path: Path, out: Path, run_id: str | None = None, compress: Compression = "none"
) -> Path:
    """Import a trace of any known format as a bundle `out/run_id`; returns its directory.

    Raises InputError where the file cannot be read, is in none of `FORMATS`, or cannot be used.
    """
    head = _head(path)
    for known in FORMATS:
        if known.recognises(head):
            return known.importer(path, out, run_id, compress)
    accepted = " or ".join(known.accepts for known in FORMATS)
    raise InputError(f"{path} is in no format that can be imported: give {accepted}")


def _head(path: Path) -> bytes:
    if path.is_dir():
        path = sample_file(path)
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP
            file.seek(0)
            if not compressed:
                return file.read(_HEAD)
            with gzip.GzipFile(fileobj=file) as stream:
                return _readable(stream)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error


def _readable(stream: gzip.GzipFile) -> bytes:
    """The first MiB, or what of it can be had: the importer says what is wrong with the rest."""
    head = bytearray()
    try:
        while len(head) < _HEAD and (chunk := stream.read1(_HEAD)):
            head += chunk
    except (EOFError, gzip.BadGzipFile, zlib.error):
        pass
    return bytes(head)
