"""What identifies a run by its content: wherever it lies, however often it is imported.

The key of a bundle is the SHA-256 of its merged trace, read from the call files, so that it is
known before and without `merged.pb`. What the manifest says is not in it: importing a file twice
makes two manifests of one run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from profiler.errors import InputError
from profiler.sources.resolve import Kind, Source
from profiler.trace.bundle import call_files, host_file
from profiler.trace.manifest import MANIFEST_NAME

__all__ = ["KEY_DIGITS", "digest_of", "key_of", "manifest_digest"]

KEY_DIGITS = 32
_BLOCK = 1 << 20


def key_of(source: Source) -> str:
    """The key of a run that is no foreign one. Raises InputError where a file cannot be read."""
    if source.kind is Kind.BUNDLE:
        files: Iterable[Path] = (*host_file(source.path), *call_files(source.path))
    elif source.kind is Kind.PARQUET:
        files = sorted(path for path in source.path.iterdir() if path.is_file())
    else:
        files = (source.path,)
    return digest_of(files)[:KEY_DIGITS]


def digest_of(files: Iterable[Path]) -> str:
    """SHA-256 of the files' bytes one after another, in hex."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    for path in files:
        try:
            with path.open("rb", buffering=0) as file:
                while size := file.readinto(buffer):
                    digest.update(buffer[:size])
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()


def manifest_digest(bundle: Path) -> str:
    """SHA-256 of the manifest, "" where there is none."""
    path = bundle / MANIFEST_NAME
    return digest_of([path]) if path.is_file() else ""
