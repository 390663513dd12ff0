"""Merge a bundle anew from what its files hold, complete one whose run was killed, and rebuild a
manifest that was never written."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from profiler.errors import InputError
from profiler.events import DropKind, Loss
from profiler.files import write_atomically
from profiler.trace.bundle import (
    HOST_NAME,
    MERGED_NAME,
    WORK_NAME,
    BundleWriter,
    call_files,
    host_file,
    merge_files,
    write_manifest,
)
from profiler.trace.columns import CommandBuilder
from profiler.trace.journal import JOURNAL_NAME, JournalEntry, is_running, read_journal
from profiler.trace.manifest import MANIFEST_NAME, CallEntry, RunInfo, read_manifest
from profiler.trace.reader import read_trace

__all__ = ["merge_bundle"]


def merge_bundle(directory: Path) -> Path:
    """Write `merged.pb` anew from the call files and `host.pb`; rebuild a missing manifest.

    Of a run that was killed, calls that have no file yet get one from the journal. Of a file that
    is cut, its whole packets are merged. Returns the path of `merged.pb`. Raises InputError where
    there is nothing to merge, or where the run is still going on.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is not a folder: give the folder of one run")
    if (directory / JOURNAL_NAME).is_file():
        return _complete(directory)
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
        _rebuild(directory, files, RunInfo(producer="merge"))
        return directory / MERGED_NAME
    known = read_manifest(manifest_path)
    sizes = dict(known.files) | {entry.file: entry.bytes for entry in known.calls}
    files += host_file(directory)
    changed = [path for path in files if path.stat().st_size != sizes.get(path.name)]
    merged = merge_files(directory, {path.name: _whole_bytes(path) for path in changed})
    losses = {(loss.kind, loss.where): loss for loss in _absent(directory, sizes)}
    for loss in known.info.losses:
        if loss.kind != DropKind.MISSING_FILE or not (directory / loss.where).is_file():
            losses[loss.kind, loss.where] = loss
    info = structs.replace(known.info, losses=tuple(losses.values()))
    write_atomically(manifest_path, replace(known, info=info, files=merged).to_json().encode())
    return directory / MERGED_NAME


def _complete(directory: Path) -> Path:
    """Turn what a killed process left into a bundle: its files, its journal, its manifest."""
    if is_running(directory):
        raise InputError(f"the run in {directory} is still going on: end it first")
    try:
        noted = read_journal(directory)
    except OSError as error:
        raise InputError(f"cannot read {directory}: {error.strerror or error}") from error
    if not noted and not call_files(directory):
        remedy = "nothing can be recovered, remove the folder and run again"
        raise InputError(f"{directory} is of a run that was killed before its first call: {remedy}")
    manifest_path = directory / MANIFEST_NAME
    info = RunInfo(producer="merge")
    if manifest_path.is_file():
        info = read_manifest(manifest_path).info
    lost = _write_noted(directory, noted)
    info = structs.replace(info, losses=tuple(dict.fromkeys((*info.losses, *lost))))
    _rebuild(directory, call_files(directory), info)
    shutil.rmtree(directory / WORK_NAME, ignore_errors=True)
    for part in directory.glob(".*.part"):
        part.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (directory / JOURNAL_NAME).unlink()
    return directory / MERGED_NAME


def _write_noted(directory: Path, noted: dict[int, JournalEntry]) -> list[Loss]:
    """Write the calls of a journal that have no file; what is lost of them."""
    there = {path.name for path in call_files(directory)}
    writer, nothing = BundleWriter(directory), CommandBuilder().build()
    without: Counter[str] = Counter()
    for entry in noted.values():
        if entry.call.file_name not in there:
            writer.write_call(replace(entry.call, ops_traced=False), nothing)
            without[entry.call.submodule] += entry.awaits_operators
    detail = "the run was killed before what was traced of them was read"
    return [
        Loss(DropKind.UNTRACED_CALL, name, n, "calls", detail) for name, n in without.items() if n
    ]


def _rebuild(directory: Path, files: Sequence[Path], info: RunInfo) -> None:
    """Write the manifest of a run that ended before it could, from what its files say; `info` is
    what is known of it otherwise."""
    entries: list[CallEntry] = []
    losses = list(info.losses)
    whole: dict[str, int] = {}
    for path in (*files, *host_file(directory)):
        size = path.stat().st_size
        try:
            trace = read_trace(path)
        except InputError as error:
            whole[path.name] = 0
            losses.append(Loss(DropKind.TRUNCATED_FILE, path.name, size, "bytes", str(error)))
            continue
        cut = _cut_bytes(trace.losses)
        whole[path.name] = size - cut
        losses.extend(trace.losses)
        if trace.calls:
            entries.append(CallEntry(trace.calls[0], path.name, size, len(trace.slices)))
        elif path.name != HOST_NAME and not cut:
            remedy = "it was not written by profile-sd3, remove it"
            raise InputError(f"{path} holds no call: {remedy}")
    losses.extend(_missing_files(directory, entries))
    info = structs.replace(info, losses=tuple(losses))
    write_manifest(directory, info, entries, merge_files(directory, whole))


def _absent(directory: Path, names: Iterable[str]) -> Iterator[Loss]:
    """Files that the manifest names and that are not there."""
    for name in names:
        if name != MERGED_NAME and not (directory / name).is_file():
            detail = f"{name} is named in the manifest but is not there: copy it back or run again"
            yield Loss(DropKind.MISSING_FILE, name, 1, "files", detail)


def _missing_files(directory: Path, entries: Sequence[CallEntry]) -> Iterator[Loss]:
    """What a rebuilt run lacks, as far as the files that are there tell."""
    found = {entry.call.index for entry in entries}
    absent = sorted(set(range(max(found, default=-1))) - found)
    if absent:
        detail = f"no readable file of call {', '.join(map(str, absent[:20]))}"
        where = f"call {', '.join(map(str, absent[:20]))}"
        yield Loss(DropKind.MISSING_FILE, where, len(absent), "files", detail)
    if not host_file(directory):
        detail = "the run ended before it was written: accounting is not possible"
        yield Loss(DropKind.MISSING_FILE, HOST_NAME, 1, "files", detail)


def _whole_bytes(path: Path) -> int:
    """The bytes up to the end of the last whole packet; 0 where there is none."""
    try:
        losses = read_trace(path).losses
    except InputError:
        return 0
    return path.stat().st_size - _cut_bytes(losses)


def _cut_bytes(losses: Sequence[Loss]) -> int:
    return sum(loss.count for loss in losses if loss.kind == DropKind.TRUNCATED_FILE)
