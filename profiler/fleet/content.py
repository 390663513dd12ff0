"""What identifies a run by its content: wherever it lies, however often it is imported or merged.

The key is of the run's calls: which submodule, when, for how long, to the nanosecond. It is not of
bytes: importing a file twice makes two manifests of one run, and files that number their texts
otherwise. The digest is of the bytes: a summary is current while nothing in the bundle has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from profiler.errors import InputError
from profiler.run.run import Run
from profiler.sources.resolve import Kind, Source
from profiler.trace.bundle import call_files, host_file
from profiler.trace.manifest import MANIFEST_NAME, read_manifest

__all__ = ["KEY_DIGITS", "bundle_digest", "key_of", "key_of_run"]

KEY_DIGITS = 32
_BLOCK = 1 << 20


def key_of(source: Source) -> str | None:
    """The key of a run by its manifest, None where it has none: then it takes the run. Raises
    InputError where the manifest cannot be read."""
    if source.kind is not Kind.BUNDLE:
        return None
    calls = (entry.call for entry in read_manifest(source.path / MANIFEST_NAME).calls)
    return _key((c.index, c.submodule, c.start_ns, c.duration_ns) for c in calls)


def key_of_run(run: Run) -> str:
    """The key of a run that is loaded; that of its bundle, where it is of one."""
    rows = run.calls.select("call", "submodule", "start_ns", "duration_ns").rows()
    return _key(rows)


def bundle_digest(bundle: Path) -> str:
    """SHA-256 of the bundle's manifest, `host.pb` and call files, one after another, in hex. Raises
    InputError where one cannot be read."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    for path in (bundle / MANIFEST_NAME, *host_file(bundle), *call_files(bundle)):
        try:
            with path.open("rb", buffering=0) as file:
                while size := file.readinto(buffer):
                    digest.update(buffer[:size])
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()


def _key(calls: Iterable[tuple[int, str, int, int | None]]) -> str:
    lines = sorted(
        (index, f"{index} {submodule} {start_ns} {-1 if duration is None else duration}\n")
        for index, submodule, start_ns, duration in calls
    )
    return hashlib.sha256("".join(line for _, line in lines).encode()).hexdigest()[:KEY_DIGITS]
