"""The bundle: one directory per run, with a file per call, `host.pb`, `merged.pb`, a manifest.

    with BundleWriter.create(Path("traces"), "20261121-093000-sd3") as bundle:
        bundle.write_call(call, commands)
        bundle.write_host(spans, host_commands, ROOT_DEVICE)
        bundle.finish(RunInfo(producer="capture"))

Every file is written beside its place and renamed, so a name that exists is complete.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal

from profiler.errors import InputError, OutputError
from profiler.events import Call, Span
from profiler.files import (
    appearing,
    not_writable,
    sync_directory,
    write_atomically,
    write_small,
)
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.compression import Compression
from profiler.trace.journal import JOURNAL_NAME, is_running
from profiler.trace.manifest import MANIFEST_NAME, CallEntry, Manifest, RunInfo
from profiler.trace.storage import begin_file, finish_file
from profiler.trace.writer import call_chunks, host_chunks, text_table

__all__ = [
    "HOST_NAME",
    "MERGED_NAME",
    "WORK_NAME",
    "BundleWriter",
    "Sync",
    "call_files",
    "find_bundles",
    "host_file",
    "is_unfinished",
    "merge_files",
    "write_manifest",
]

HOST_NAME = "host.pb"
MERGED_NAME = "merged.pb"
WORK_NAME = ".operators"  # where capture keeps ONNX Runtime's profiles until the run ends
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
        self._host_pieces = 0
        self._host_bytes = 0  # that they have

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
            raise not_writable(parent, error) from error
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
        if len(commands) or counters or self._sync == "always":
            size = write_atomically(path, chunks, sync=self._sync == "always")
        else:
            size = write_small(path, b"".join(chunks))
        self._entries.append(CallEntry(call, path.name, size, len(commands)))
        return path

    def add_host(self, commands: CommandColumns, device: str) -> None:
        """Write some of the host work ahead of the rest, which `write_host` adds: until then they
        stand under `host.pb`'s temporary name. After an OutputError they are as they were."""
        path, piece = self.directory / HOST_NAME, self._host_pieces
        chunks = host_chunks(
            (), commands, device, piece, texts=self._texts, compress=self._compress
        )
        self._host_bytes = begin_file(path, chunks, self._host_bytes)
        self._host_pieces += 1

    def write_host(self, spans: Iterable[Span], commands: CommandColumns, device: str) -> Path:
        """Write `host.pb`: spans of the pipeline and host work that belongs to no call."""
        path = self.directory / HOST_NAME
        chunks = host_chunks(spans, commands, device, texts=self._texts, compress=self._compress)
        finish_file(path, chunks, self._host_bytes, sync=self._sync == "always")
        return path

    def begin(self, info: RunInfo) -> None:
        """Write a first manifest, without calls, so that a killed run is known for what it is;
        `finish` replaces it."""
        write_manifest(self.directory, info, (), {}, sync=self._sync == "always")

    def finish(self, info: RunInfo) -> Path:
        """Merge the files and write the manifest; returns the bundle's directory."""
        sync = self._sync != "never"
        files = merge_files(self.directory, {}, sync=sync)
        write_manifest(self.directory, info, self._entries, files, sync=sync)
        if sync:
            sync_directory(self.directory)
        return self.directory


def call_files(directory: Path) -> list[Path]:
    """The call files of a bundle, in call order."""
    files = [path for path in directory.iterdir() if _CALL_FILE.fullmatch(path.name)]
    return sorted(files, key=lambda path: (int(path.name.split("_", 1)[0]), path.name))


def find_bundles(path: Path) -> list[Path]:
    """Finished bundles at `path`, newest first: `path` itself, or those directly below it.

    Raises InputError with the remedy where there is none.
    """
    try:
        return _bundles_at(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _bundles_at(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(f"{path} does not exist: give a bundle or a folder of bundles")
    if not path.is_dir():
        raise InputError(f"{path} is a file: give a bundle or a folder of bundles")
    _refuse_unfinished(path)
    if (path / MANIFEST_NAME).is_file():
        return [path]
    below = [entry for entry in path.iterdir() if entry.is_dir()]
    bundles = [entry for entry in below if _is_finished(entry)]
    if not bundles:
        for entry in sorted(below):
            _refuse_unfinished(entry)
        raise InputError(f"no bundle in {path}: record one with `profile-sd3 run --out {path}`")
    return sorted(bundles, key=_age)


def is_unfinished(directory: Path) -> bool:
    """Whether the run in `directory` was killed or is still going on: `merge_bundle` completes
    it."""
    if (directory / JOURNAL_NAME).is_file():
        return True
    return bool(call_files(directory)) and not (directory / MANIFEST_NAME).is_file()


def _is_finished(directory: Path) -> bool:
    return (directory / MANIFEST_NAME).is_file() and not is_unfinished(directory)


def _refuse_unfinished(directory: Path) -> None:
    if (directory / JOURNAL_NAME).is_file():
        if is_running(directory):
            raise InputError(f"the run in {directory} is still going on: wait for its end")
        remedy = f"if it was killed, `profile-sd3 merge {directory}` completes it"
        raise InputError(f"{directory} is of a run that has not ended: {remedy}")
    if is_unfinished(directory):
        remedy = f"run `profile-sd3 merge {directory}` to rebuild it"
        raise InputError(f"{directory} holds call files but no {MANIFEST_NAME}: {remedy}")


def _age(bundle: Path) -> tuple[int, str]:
    return (-(bundle / MANIFEST_NAME).stat().st_mtime_ns, bundle.name)


def write_manifest(
    directory: Path,
    info: RunInfo,
    entries: Iterable[CallEntry],
    files: Mapping[str, int],
    *,
    sync: bool = False,
) -> None:
    """Write `manifest.json`; `files` has the sizes in bytes of the files that are no call."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    ordered = tuple(sorted(entries, key=lambda entry: entry.call.index))
    manifest = Manifest(directory.name, created, info, ordered, files)
    write_atomically(directory / MANIFEST_NAME, manifest.to_json().encode(), sync=sync)


def merge_files(directory: Path, whole: Mapping[str, int], *, sync: bool = False) -> dict[str, int]:
    """Write `merged.pb`; sizes in bytes of the bundle's files that are no call.

    `whole` says of damaged files how many bytes stand before the damage.
    """
    host, merged = host_file(directory), directory / MERGED_NAME
    with appearing(merged, sync=sync) as target:
        for path in (*call_files(directory), *host):
            if path.name in whole:
                target.write(path.read_bytes()[: whole[path.name]])
                continue
            with path.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
    return {path.name: path.stat().st_size for path in (*host, merged)}


def host_file(directory: Path) -> list[Path]:
    """`host.pb` of a bundle, where there is one."""
    return [path for path in (directory / HOST_NAME,) if path.is_file()]
