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

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import Drop, DropKind
from profiler.files import write_atomically
from profiler.notes import Note
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
    drops = {(drop.kind, drop.where): drop for drop in _absent(directory, sizes)}
    for drop in known.info.drops:
        if drop.kind != DropKind.MISSING_FILE or not (directory / drop.where).is_file():
            drops[drop.kind, drop.where] = drop
    info = structs.replace(known.info, drops=tuple(drops.values()))
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
        advice = "nothing can be recovered, remove the folder and run again"
        raise InputError(f"{directory} is of a run that was killed before its first call: {advice}")
    manifest_path = directory / MANIFEST_NAME
    info = RunInfo(producer="merge")
    if manifest_path.is_file():
        info = read_manifest(manifest_path).info
    lost = _write_noted(directory, noted)
    info = structs.replace(info, drops=tuple(dict.fromkeys((*info.drops, *lost))))
    _rebuild(directory, call_files(directory), info)
    shutil.rmtree(directory / WORK_NAME, ignore_errors=True)
    for part in directory.glob(".*.part"):
        part.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (directory / JOURNAL_NAME).unlink()
    return directory / MERGED_NAME


def _write_noted(directory: Path, noted: dict[int, JournalEntry]) -> list[Drop]:
    """Write the calls of a journal that have no file; what is lost of them."""
    there = {path.name for path in call_files(directory)}
    writer, nothing = BundleWriter(directory), CommandBuilder().build()
    without: Counter[str] = Counter()
    for entry in noted.values():
        if entry.call.file_name not in there:
            writer.write_call(replace(entry.call, ops_traced=False), nothing)
            without[entry.call.submodule] += entry.awaits_operators
    detail = Note.of(DropReason.KILLED_BEFORE_READ)
    return [
        Drop(DropKind.UNTRACED_CALL, name, n, "calls", detail) for name, n in without.items() if n
    ]


def _rebuild(directory: Path, files: Sequence[Path], info: RunInfo) -> None:
    """Write the manifest of a run that ended before it could, from what its files say; `info` is
    what is known of it otherwise."""
    entries: list[CallEntry] = []
    drops = list(info.drops)
    whole: dict[str, int] = {}
    for path in (*files, *host_file(directory)):
        size = path.stat().st_size
        try:
            trace = read_trace(path)
        except InputError as error:
            whole[path.name] = 0
            detail = Note.of(DropReason.ERROR, error=str(error))
            drops.append(Drop(DropKind.TRUNCATED_FILE, path.name, size, "bytes", detail))
            continue
        cut = _cut_bytes(trace.drops)
        whole[path.name] = size - cut
        drops.extend(trace.drops)
        if trace.calls:
            entries.append(CallEntry(trace.calls[0], path.name, size, len(trace.slices)))
        elif path.name != HOST_NAME and not cut:
            advice = "it was not written by profile-sd3, remove it"
            raise InputError(f"{path} holds no call: {advice}")
    drops.extend(_missing_files(directory, entries))
    info = structs.replace(info, drops=tuple(drops))
    write_manifest(directory, info, entries, merge_files(directory, whole))


def _absent(directory: Path, names: Iterable[str]) -> Iterator[Drop]:
    """Files that the manifest names and that are not there."""
    for name in names:
        if name != MERGED_NAME and not (directory / name).is_file():
            detail = Note.of(DropReason.NOT_THERE, file=name)
            yield Drop(DropKind.MISSING_FILE, name, 1, "files", detail)


def _missing_files(directory: Path, entries: Sequence[CallEntry]) -> Iterator[Drop]:
    """What a rebuilt run lacks, as far as the files that are there tell."""
    found = {entry.call.index for entry in entries}
    absent = sorted(set(range(max(found, default=-1))) - found)
    if absent:
        detail = Note.of(DropReason.CALLS_NOT_THERE, calls=tuple(absent[:20]))
        where = f"call {', '.join(map(str, absent[:20]))}"
        yield Drop(DropKind.MISSING_FILE, where, len(absent), "files", detail)
    if not host_file(directory):
        detail = Note.of(DropReason.HOST_NOT_WRITTEN)
        yield Drop(DropKind.MISSING_FILE, HOST_NAME, 1, "files", detail)


def _whole_bytes(path: Path) -> int:
    """The bytes up to the end of the last whole packet; 0 where there is none."""
    try:
        drops = read_trace(path).drops
    except InputError:
        return 0
    return path.stat().st_size - _cut_bytes(drops)


def _cut_bytes(drops: Sequence[Drop]) -> int:
    return sum(drop.count for drop in drops if drop.kind == DropKind.TRUNCATED_FILE)
