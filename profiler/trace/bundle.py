"""The bundle: one directory per run, with a file per call, `host.pb`, `merged.pb`, a manifest.

    with BundleWriter.create(Path("traces"), "20261121-093000-sd3") as bundle:
        bundle.write_call(call, commands)
        bundle.write_host(spans, host_commands, ROOT_DEVICE)
        bundle.finish(RunInfo(producer="capture"))

Every file is written beside its place and renamed, so a name that exists is complete, whatever
kills the process. That the machine stays up is another matter: see `Sync`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

from profiler.errors import InputError, OutputError
from profiler.events import Call, Loss, Span
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.compression import Compression
from profiler.trace.manifest import MANIFEST_NAME, CallEntry, Manifest, RunInfo, read_manifest
from profiler.trace.reader import read_trace
from profiler.trace.writer import call_chunks, host_chunks, text_table

__all__ = [
    "HOST_NAME",
    "MERGED_NAME",
    "BundleWriter",
    "Sync",
    "call_files",
    "find_bundles",
    "merge_bundle",
    "write_atomically",
]

HOST_NAME = "host.pb"
MERGED_NAME = "merged.pb"
Sync = Literal["never", "finish", "always"]
"""When files are forced to the disk: never, once the run is finished (`merged.pb`, which holds all
others, and the manifest), or each before it gets its name."""

_CALL_FILE = re.compile(r"\d{3,}_.+\.pb")


class BundleWriter:
    """Writes one bundle. Files already complete stay readable whatever happens later."""

    def __init__(
        self, directory: Path, *, compress: Compression = "none", sync: Sync = "finish"
    ) -> None:
        self.directory = directory
        self._compress: Compression = compress
        self._sync = sync
        self._texts = text_table(run=True)
        self._entries: list[CallEntry] = []

    @classmethod
    def create(
        cls,
        parent: Path,
        run_id: str,
        *,
        compress: Compression = "none",
        sync: Sync = "finish",
    ) -> BundleWriter:
        """Make `parent/run_id`, or `run_id-2`, … : an existing bundle is never written into."""
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
                directory = parent / f"{run_id}{suffix}"
                try:
                    directory.mkdir()
                except FileExistsError:
                    continue
                return cls(directory, compress=compress, sync=sync)
        except OSError as error:
            raise _not_writable(parent, error) from error
        raise OutputError(f"{parent} holds 999 runs named {run_id}: choose another --out folder")

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave an abandoned bundle as it is, but no empty directory."""
        if kind is not None and self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()

    def write_call(
        self, call: Call, commands: CommandColumns, counters: Sequence[Counter] = ()
    ) -> Path:
        """Write one call's file and remember it for the manifest."""
        path = self.directory / call.file_name
        chunks = call_chunks(call, commands, counters, texts=self._texts, compress=self._compress)
        size = _write_chunks(path, chunks, sync=self._sync == "always")
        self._entries.append(CallEntry(call, path.name, size, len(commands)))
        return path

    def write_host(self, spans: Iterable[Span], commands: CommandColumns, device: str) -> Path:
        """Write `host.pb`: spans of the pipeline and host work that belongs to no call."""
        path = self.directory / HOST_NAME
        chunks = host_chunks(spans, commands, device, texts=self._texts, compress=self._compress)
        _write_chunks(path, chunks, sync=self._sync == "always")
        return path

    def finish(self, info: RunInfo) -> Path:
        """Merge the files and write the manifest; returns the bundle's directory."""
        sync = self._sync != "never"
        files = _merged_sizes(self.directory, sync=sync)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        entries = tuple(sorted(self._entries, key=lambda entry: entry.call.index))
        manifest = Manifest(self.directory.name, created, info, entries, files)
        write_atomically(self.directory / MANIFEST_NAME, manifest.to_json().encode(), sync=sync)
        if sync:
            _sync_directory(self.directory)
        return self.directory


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write `path` under a temporary name and rename it. Raises OutputError."""
    _write_chunks(path, [data], sync=sync)


def _write_chunks(path: Path, chunks: Iterable[bytes], *, sync: bool) -> int:
    """The same, piece by piece; returns the size."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            size = sum(map(file.write, chunks))
            if sync:
                _sync_file(file)
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _not_writable(path, error) from error
        raise
    return size


def _sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    """Force new names to the disk, where the system can."""
    if os.name == "nt":
        return
    try:
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise _not_writable(directory, error) from error


def call_files(directory: Path) -> list[Path]:
    """The call files of a bundle, in call order."""
    files = [path for path in directory.iterdir() if _CALL_FILE.fullmatch(path.name)]
    return sorted(files, key=lambda path: (int(path.name.split("_", 1)[0]), path.name))


def find_bundles(path: Path) -> list[Path]:
    """Bundles at `path`, newest first: `path` itself, or those directly below it.

    Raises InputError with the remedy where there is none.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist: give a bundle or a folder of bundles")
    if not path.is_dir():
        raise InputError(f"{path} is a file: give a bundle or a folder of bundles")
    if (path / MANIFEST_NAME).is_file():
        return [path]
    if call_files(path):
        remedy = f"run `profile-sd3 merge {path}` to rebuild it"
        raise InputError(f"{path} holds call files but no {MANIFEST_NAME}: {remedy}")
    below = [entry for entry in path.iterdir() if entry.is_dir()]
    bundles = [entry for entry in below if (entry / MANIFEST_NAME).is_file()]
    unfinished = [entry for entry in below if entry not in bundles and call_files(entry)]
    if not bundles and unfinished:
        remedy = f"run `profile-sd3 merge {unfinished[0]}` to rebuild it"
        raise InputError(f"{unfinished[0]} holds call files but no {MANIFEST_NAME}: {remedy}")
    if not bundles:
        raise InputError(f"no bundle in {path}: record one with `profile-sd3 run --out {path}`")
    return sorted(bundles, key=_age)


def _age(bundle: Path) -> tuple[float, str]:
    return (-(bundle / MANIFEST_NAME).stat().st_mtime, bundle.name)


def merge_bundle(directory: Path) -> Path:
    """Write `merged.pb` anew from the call files and `host.pb`; rebuild a missing manifest.

    Returns the path of `merged.pb`. Raises InputError where there is nothing to merge.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is not a folder: give the folder of one run")
    files = call_files(directory)
    if not files:
        raise InputError(f"{directory} holds no call files: give the folder of one run")
    manifest_path = directory / MANIFEST_NAME
    if manifest_path.is_file():
        known = read_manifest(manifest_path)
        known = replace(known, files=_merged_sizes(directory))
        write_atomically(manifest_path, known.to_json().encode())
        return directory / MERGED_NAME
    _rebuild(directory, files)
    return directory / MERGED_NAME


def _rebuild(directory: Path, files: Sequence[Path]) -> None:
    """Write the manifest of a run that ended before it could, from what its files say."""
    writer = BundleWriter(directory)
    losses: list[Loss] = []
    for path in files:
        trace = read_trace(path)
        losses.extend(trace.losses)
        if not trace.calls:
            raise InputError(f"{path} holds no call: it was not written by profile-sd3, remove it")
        entry = CallEntry(trace.calls[0], path.name, path.stat().st_size, len(trace.slices))
        writer._entries.append(entry)
    if not _host_file(directory):
        detail = "the run ended before it was written: accounting is not possible"
        losses.append(Loss("missing_file", HOST_NAME, 1, "files", detail))
    writer.finish(RunInfo(producer="merge", losses=tuple(losses)))


def _merged_sizes(directory: Path, *, sync: bool = False) -> dict[str, int]:
    """Write `merged.pb`; sizes in bytes of the bundle's files that are no call."""
    merged = _merge_files(directory, sync=sync)
    return {path.name: path.stat().st_size for path in (*_host_file(directory), merged)}


def _host_file(directory: Path) -> list[Path]:
    return [path for path in (directory / HOST_NAME,) if path.is_file()]


def _merge_files(directory: Path, *, sync: bool) -> Path:
    merged = directory / MERGED_NAME
    part = directory / f".{MERGED_NAME}.part"
    try:
        with part.open("wb") as target:
            for path in (*call_files(directory), *_host_file(directory)):
                with path.open("rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
            if sync:
                _sync_file(target)
        part.replace(merged)
    except OSError as error:
        raise _not_writable(merged, error) from error
    return merged


def _not_writable(path: Path, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    return OutputError(f"cannot write {path} ({reason}): give a folder you may write to")
