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

from profiler.errors import OutputError
from profiler.events import Call, Span
from profiler.files import (
    appearing,
    folder_mode,
    not_writable,
    sync_to_disk,
    write_atomically,
    write_small,
)
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.compression import Compression
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
    "host_file",
    "is_call_file",
    "merge_files",
    "write_manifest",
]

HOST_NAME = "host.pb"
MERGED_NAME = "merged.pb"
WORK_NAME = ".operators"  # where capture keeps ONNX Runtime's profiles until the run ends
Sync = Literal["never", "finish", "always"]
"""When files are forced to the disk: never, all once the run is finished, or each before it gets
its name."""

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
        self._call_bytes = 0  # in files of calls

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
                    directory.mkdir(folder_mode())
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

    @property
    def written_bytes(self) -> int:
        """What the bundle will take, of what has been written by now: `merged.pb` has it again."""
        return 2 * (self._call_bytes + self._host_bytes)

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
        self._call_bytes += size
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

    def write_host(
        self,
        spans: Iterable[Span],
        commands: CommandColumns,
        device: str,
        counters: Sequence[Counter] = (),
    ) -> Path:
        """Write `host.pb`: spans of the pipeline, and host work and samples of no call."""
        path = self.directory / HOST_NAME
        chunks = host_chunks(
            spans, commands, device, None, counters, texts=self._texts, compress=self._compress
        )
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
        if self._sync == "finish":
            for path in (*host_file(self.directory), *call_files(self.directory)):
                sync_to_disk(path)
        write_manifest(self.directory, info, self._entries, files, sync=sync)
        if sync:
            sync_to_disk(self.directory)
        return self.directory


def call_files(directory: Path) -> list[Path]:
    """The call files of a bundle, in call order."""
    files = [path for path in directory.iterdir() if is_call_file(path.name)]
    return sorted(files, key=lambda path: (int(path.name.split("_", 1)[0]), path.name))


def is_call_file(name: str) -> bool:
    """Whether a bundle's file of that name holds a call."""
    return _CALL_FILE.fullmatch(name) is not None


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

    `host.pb`, whose spans begin before all calls, comes first: so a reader that wants events in
    order of time has little to keep back. `whole` says of damaged files how many bytes stand before
    the damage.
    """
    host, merged = host_file(directory), directory / MERGED_NAME
    with appearing(merged, sync=sync) as target:
        for path in (*host, *call_files(directory)):
            if path.name in whole:
                target.write(path.read_bytes()[: whole[path.name]])
                continue
            with path.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
    return {path.name: path.stat().st_size for path in (*host, merged)}


def host_file(directory: Path) -> list[Path]:
    """`host.pb` of a bundle, where there is one."""
    return [path for path in (directory / HOST_NAME,) if path.is_file()]
