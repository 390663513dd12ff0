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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from profiler.errors import InputError, OutputError
from profiler.events import Call, Loss, Span
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.framing import whole_length
from profiler.trace.manifest import MANIFEST_NAME, CallEntry, Manifest, RunInfo, read_manifest
from profiler.trace.reader import read_trace
from profiler.trace.writer import encode_call, encode_host

__all__ = [
    "HOST_NAME",
    "MERGED_NAME",
    "WORK_NAME",
    "BundleWriter",
    "call_files",
    "find_bundles",
    "merge_bundle",
    "write_atomically",
]

HOST_NAME = "host.pb"
MERGED_NAME = "merged.pb"
WORK_NAME = ".operators"  # where capture keeps ONNX Runtime's profiles until the run ends
_CALL_FILE = re.compile(r"\d{3,}_.+\.pb")


class BundleWriter:
    """Writes one bundle. Files already complete stay readable whatever happens later."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._entries: list[CallEntry] = []

    @classmethod
    def create(cls, parent: Path, run_id: str) -> BundleWriter:
        """Make `parent/run_id`, or `run_id-2`, … : an existing bundle is never written into."""
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
                directory = parent / f"{run_id}{suffix}"
                try:
                    directory.mkdir()
                except FileExistsError:
                    continue
                return cls(directory)
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
        data = encode_call(call, commands, counters)
        write_atomically(path, data)
        self._entries.append(CallEntry(call, path.name, len(data), len(commands)))
        return path

    def write_host(self, spans: Iterable[Span], commands: CommandColumns, device: str) -> Path:
        """Write `host.pb`: spans of the pipeline and host work that belongs to no call."""
        path = self.directory / HOST_NAME
        write_atomically(path, encode_host(spans, commands, device))
        return path

    def finish(self, info: RunInfo) -> Path:
        """Merge the files and write the manifest; returns the bundle's directory."""
        files = _merged_sizes(self.directory, {})
        _write_manifest(self.directory, info, self._entries, files)
        return self.directory


def write_atomically(path: Path, data: bytes) -> None:
    """Write `path` under a temporary name and rename it. Raises OutputError."""
    with _appearing(path) as file:
        file.write(data)


@contextmanager
def _appearing(path: Path) -> Iterator[BinaryIO]:
    """A file that gets the name `path` once it is complete, and is removed when it is not."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _not_writable(path, error) from error
        raise


def call_files(directory: Path) -> list[Path]:
    """The call files of a bundle, in call order."""
    files = [path for path in directory.iterdir() if _CALL_FILE.fullmatch(path.name)]
    return sorted(files, key=lambda path: (int(path.name.split("_", 1)[0]), path.name))


def find_bundles(path: Path) -> list[Path]:
    """Bundles at `path`, newest first: `path` itself, or those directly below it.

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
    if (path / MANIFEST_NAME).is_file():
        return [path]
    _refuse_unfinished(path)
    below = [entry for entry in path.iterdir() if entry.is_dir()]
    bundles = [entry for entry in below if (entry / MANIFEST_NAME).is_file()]
    if not bundles:
        for entry in sorted(below):
            _refuse_unfinished(entry)
        raise InputError(f"no bundle in {path}: record one with `profile-sd3 run --out {path}`")
    return sorted(bundles, key=_age)


def _refuse_unfinished(directory: Path) -> None:
    if call_files(directory):
        remedy = f"run `profile-sd3 merge {directory}` to rebuild it"
        raise InputError(f"{directory} holds call files but no {MANIFEST_NAME}: {remedy}")


def _age(bundle: Path) -> tuple[int, str]:
    return (-(bundle / MANIFEST_NAME).stat().st_mtime_ns, bundle.name)


def merge_bundle(directory: Path) -> Path:
    """Write `merged.pb` anew from the call files and `host.pb`; rebuild a missing manifest.

    Of a file that is cut, its whole packets are merged. Returns the path of `merged.pb`. Raises
    InputError where there is nothing to merge.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is not a folder: give the folder of one run")
    files = call_files(directory)
    if not files and (directory / WORK_NAME).is_dir():
        raise InputError(
            f"{directory} is of a run that was killed before its calls were written, which happens "
            "when the run ends: nothing can be recovered, remove the folder and run again"
        )
    if not files:
        raise InputError(f"{directory} holds no call files: give the folder of one run")
    manifest_path = directory / MANIFEST_NAME
    if not manifest_path.is_file():
        _rebuild(directory, files)
        return directory / MERGED_NAME
    known = read_manifest(manifest_path)
    sizes = dict(known.files) | {entry.file: entry.bytes for entry in known.calls}
    files += _host_file(directory)
    changed = [path for path in files if path.stat().st_size != sizes.get(path.name)]
    merged = _merged_sizes(directory, {path.name: _whole_bytes(path) for path in changed})
    write_atomically(manifest_path, replace(known, files=merged).to_json().encode())
    return directory / MERGED_NAME


def _rebuild(directory: Path, files: Sequence[Path]) -> None:
    """Write the manifest of a run that ended before it could, from what its files say."""
    entries: list[CallEntry] = []
    losses: list[Loss] = []
    whole: dict[str, int] = {}
    for path in (*files, *_host_file(directory)):
        size = path.stat().st_size
        try:
            trace = read_trace(path)
        except InputError as error:
            whole[path.name] = 0
            losses.append(Loss("truncated_file", path.name, size, "bytes", str(error)))
            continue
        cut = sum(loss.count for loss in trace.losses if loss.kind == "truncated_file")
        whole[path.name] = size - cut
        losses.extend(trace.losses)
        if trace.calls:
            entries.append(CallEntry(trace.calls[0], path.name, size, len(trace.slices)))
        elif path.name != HOST_NAME and not cut:
            remedy = "it was not written by profile-sd3, remove it"
            raise InputError(f"{path} holds no call: {remedy}")
    losses.extend(_missing_files(directory, entries))
    info = RunInfo(producer="merge", losses=tuple(losses))
    _write_manifest(directory, info, entries, _merged_sizes(directory, whole))


def _missing_files(directory: Path, entries: Sequence[CallEntry]) -> Iterator[Loss]:
    """What a rebuilt run lacks, as far as the files that are there tell."""
    found = {entry.call.index for entry in entries}
    absent = sorted(set(range(max(found, default=-1))) - found)
    if absent:
        detail = f"no readable file of call {', '.join(map(str, absent[:20]))}"
        yield Loss("missing_file", directory.name, len(absent), "files", detail)
    if not _host_file(directory):
        detail = "the run ended before it was written: accounting is not possible"
        yield Loss("missing_file", HOST_NAME, 1, "files", detail)


def _write_manifest(
    directory: Path, info: RunInfo, entries: Iterable[CallEntry], files: Mapping[str, int]
) -> None:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    ordered = tuple(sorted(entries, key=lambda entry: entry.call.index))
    manifest = Manifest(directory.name, created, info, ordered, files)
    write_atomically(directory / MANIFEST_NAME, manifest.to_json().encode())


def _merged_sizes(directory: Path, whole: Mapping[str, int]) -> dict[str, int]:
    """Write `merged.pb`; sizes in bytes of the bundle's files that are no call.

    `whole` says of damaged files how many bytes stand before the damage.
    """
    host, merged = _host_file(directory), directory / MERGED_NAME
    with _appearing(merged) as target:
        for path in (*call_files(directory), *host):
            if path.name in whole:
                target.write(path.read_bytes()[: whole[path.name]])
                continue
            with path.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
    return {path.name: path.stat().st_size for path in (*host, merged)}


def _whole_bytes(path: Path) -> int:
    return whole_length(path.read_bytes())


def _host_file(directory: Path) -> list[Path]:
    return [path for path in (directory / HOST_NAME,) if path.is_file()]


def _not_writable(path: Path, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    return OutputError(f"cannot write {path} ({reason}): give a folder you may write to")
