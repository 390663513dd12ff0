"""The bundle of a run: a folder with call files, `host.pb`, `merged.pb` and a manifest.

    with BundleWriter.create(Path("traces"), "20261121-093000-sd3") as bundle:
        bundle.write_call(call, commands)
        bundle.write_host(spans, host_commands, ROOT_DEVICE)
        bundle.finish(RunInfo(producer="capture"))

Files are written under another name and renamed, so a file that exists is complete. Until the
run ends, the journal `.calls` has one line per returned call. A killed process leaves it, and
`profile-sd3 merge` completes the bundle from it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections import Counter as CountOf
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from profiler.errors import InputError, OutputError
from profiler.files import (
    appearing,
    decoder_of,
    file_mode,
    folder_mode,
    not_writable,
    opened,
    read_file,
    sync_to_disk,
    write_atomically,
    write_small,
)
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.columns import CommandBuilder, CommandColumns, Counter, read_trace
from profiler.trace.compression import Compression, Packed
from profiler.trace.events import Call, Drop, DropKind, DropReason, Span
from profiler.trace.manifest import MANIFEST_NAME, CallEntry, Manifest, RunInfo, read_manifest
from profiler.trace.writer import begin_file, call_chunks, finish_file, host_chunks, text_table

HOST_NAME = "host.pb"
MERGED_NAME = "merged.pb"
WORK_NAME = ".operators"  # where capture keeps ONNX Runtime's profiles until the run ends
Sync = Literal["never", "finish", "always"]
"""When files are synced to disk: never, all when the run is finished, or each before it gets its
name."""

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
        self._entries = Packed[CallEntry]()
        self._host_pieces = 0
        self._host_bytes = 0  # in these pieces
        self._call_bytes = 0  # in files of calls

    @classmethod
    def create(
        cls, parent: Path, run_id: str, *, compress: Compression = "none", sync: Sync = "finish"
    ) -> BundleWriter:
        """Create `parent/run_id`, or `run_id-2`, … if it exists: an existing bundle is never
        changed. Raises OutputError."""
        try:
            parent.mkdir(parents=True, exist_ok=True)
            return cls(_new_folder(parent, run_id), compress=compress, sync=sync)
        except OSError as error:
            raise not_writable(parent, error) from error

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave an abandoned bundle as it is, but remove an empty directory."""
        if kind is not None and self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()

    @property
    def written_bytes(self) -> int:
        """The size of the bundle with what is written so far, twice because `merged.pb` repeats
        it."""
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
        """Write some host work ahead of the rest; `write_host` adds the rest. Until then it is in
        `host.pb` under a temporary name. An OutputError leaves what was written before."""
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
        """Write a first manifest without calls, so that a killed run can be identified; `finish`
        replaces it."""
        write_manifest(self.directory, info, (), {}, sync=self._sync == "always")

    def finish(self, info: RunInfo) -> Path:
        """Merge the files and write the manifest; returns the bundle's directory."""
        sync = self._sync != "never"
        files = merge_files(self.directory, {}, sync=sync)
        if self._sync == "finish":
            for path in (*host_file(self.directory), *call_files(self.directory)):
                sync_to_disk(path)
        entries = {entry.call.index: entry for entry in self._entries}
        write_manifest(self.directory, info, entries.values(), files, sync=sync)
        if sync:
            sync_to_disk(self.directory)
        return self.directory


def _new_folder(parent: Path, name: str) -> Path:
    """Create the folder `parent/name`, or `name-2`, … if that exists. Raises OutputError."""
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        directory = parent / f"{name}{suffix}"
        try:
            directory.mkdir(folder_mode())
        except FileExistsError:
            continue
        return directory
    raise OutputError(f"{parent} holds 999 runs named {name}: choose another --out folder")


def call_files(directory: Path) -> list[Path]:
    """The call files of a bundle, in call order."""
    files = [path for path in directory.iterdir() if is_call_file(path.name)]
    return sorted(files, key=lambda path: (int(path.name.split("_", 1)[0]), path.name))


def is_call_file(name: str) -> bool:
    """Whether a bundle's file of this name contains a call."""
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
    write_atomically(directory / MANIFEST_NAME, manifest.chunks(), sync=sync)


def merge_files(directory: Path, whole: Mapping[str, int], *, sync: bool = False) -> dict[str, int]:
    """Write `merged.pb`. Return the sizes in bytes of the bundle's files that are not calls.

    `host.pb`, whose spans start before all calls, comes first, so that a reader that sorts events
    by time has little to buffer. `whole` has, for damaged files, the number of bytes before the
    damage.
    """
    host, merged = host_file(directory), directory / MERGED_NAME
    with appearing(merged, sync=sync) as target:
        for path in (*host, *call_files(directory)):
            if path.name in whole:
                target.write(read_file(path)[: whole[path.name]])
                continue
            with opened(path) as source:
                shutil.copyfileobj(source, target, 1 << 20)
    return {path.name: path.stat().st_size for path in (*host, merged)}


def host_file(directory: Path) -> list[Path]:
    """`host.pb` of a bundle in a list, which is empty if there is none."""
    return [path for path in (directory / HOST_NAME,) if path.is_file()]


# --- The journal of a run that is still going on: one line for each call that has returned.
#
#     journal = Journal.create(directory)
#     journal.add(call, awaits_operators=True)
#     journal.remove()
#
# It is the bundle's file `.calls` until the run has ended; a killed process leaves it, and
# `profile-sd3 merge` makes call files from its lines. A line is passed to the system in one write,
# so it survives a crash of the process, but not of the machine.


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

JOURNAL_NAME = ".calls"
_encoder = msgspec.json.Encoder()
_own: dict[tuple[int, int], int] = {}  # journals that this process writes: file → process


class JournalEntry(Struct, frozen=True):
    """A call that has returned. `awaits_operators`: its operators had not been read yet."""

    call: Call
    awaits_operators: bool


class Journal:
    """Appends to the journal of one bundle, which is locked while its process lives."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, directory: Path) -> Journal:
        """Start the journal of a bundle. Raises OutputError."""
        path = directory / JOURNAL_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, file_mode())
        except OSError as error:
            raise not_writable(path, error) from error
        if fcntl is not None:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:  # some network file systems have no locks
                let_pass(error)
        _own[_identity(os.fstat(descriptor))] = os.getpid()
        return cls(path, descriptor)

    def add(self, call: Call, *, awaits_operators: bool) -> bool:
        """Append one call and return whether its line was written completely. Lines start with a
        line break, so that a line cut by a full disk does not spoil the next."""
        line = b"\n" + _encoder.encode(JournalEntry(call, awaits_operators))
        try:
            return os.write(self._descriptor, line) == len(line)
        except OSError as error:
            let_pass(error)
            return False

    def remove(self) -> None:
        """Remove the journal, because the run is complete; again without effect."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the journal and leave its file; again without effect."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _own.pop(_identity(os.fstat(descriptor)), None)
            os.close(descriptor)


def read_journal(directory: Path) -> dict[int, JournalEntry]:
    """The calls of a journal by index, without lines that are cut or not calls."""
    with opened(directory / JOURNAL_NAME) as file:  # a later line has the final labels
        return {entry.call.index: entry for line in file for entry in _noted(line)}


class JournalReader:
    """Reads the journal of a running run, each line once."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL_NAME
        self._offset = 0

    def read(self) -> list[JournalEntry]:
        """The calls added since the last read; none if the journal is gone. An incomplete last line
        is read again next time; other cut lines are skipped."""
        try:
            with opened(self._path) as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        *lines, last = data.split(b"\n")
        whole = _noted(last)
        self._offset += len(data) - (0 if whole else len(last))
        return [*(entry for line in lines for entry in _noted(line)), *whole]


def _noted(line: bytes) -> list[JournalEntry]:
    """The call of a line; none of one that is cut or not a call."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        entry = decoder_of(JournalEntry).decode(line)
        return [entry] if _sound(entry.call) else []
    return []


def is_running(directory: Path) -> bool:
    """Whether the process that writes the bundle is alive; False if that cannot be determined.

    A process that closes a file loses all its locks on it, so it must not open its own journal.
    """
    path = directory / JOURNAL_NAME
    try:
        if _own.get(_identity(path.stat())) == os.getpid():  # a forked child has its parent's
            return True
        if fcntl is None:
            return False
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _sound(call: Call) -> bool:
    """Whether the call's numbers are within bounds and its file name is not too long."""
    numbers = 0 <= call.index < 1 << 31 and -1 <= call.step < 1 << 31
    numbers = numbers and -1 <= call.pipeline < 1 << 31 and -1 <= call.iteration < 1 << 31
    times = 0 <= call.start_ns < 1 << 62 and -1 <= call.duration_ns < 1 << 62
    noted = (call.device_lag_ns, call.device_duration_ns)
    times = times and all(-1 <= each < 1 << 60 for each in noted)
    return numbers and times and len(call.file_name) < 200


# --- Merge a bundle again from its files, complete one whose run was killed, and rebuild a manifest
# that was never written.


def merge_bundle(directory: Path) -> Path:
    """Write `merged.pb` again from the call files and `host.pb`; rebuild a missing manifest.

    Calls of a killed run that have no file get one from the journal. Of a cut file, the whole
    packets are merged. Returns the path of `merged.pb`. Raises InputError if there is nothing to
    merge, or if the run is still going on.
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
    write_atomically(manifest_path, replace(known, info=info, files=merged).chunks())
    return directory / MERGED_NAME


def _complete(directory: Path) -> Path:
    """Complete the bundle of a killed process from its files and its journal."""
    if is_running(directory):
        raise InputError(f"the run in {directory} is still going on: end it first")
    try:
        noted = read_journal(directory)
    except OSError as error:
        raise InputError(f"cannot read {directory}: {error.strerror or error}") from error
    if not noted and not call_files(directory):
        advice = "nothing can be recovered, remove the folder and run again"
        raise InputError(f"{directory} is of a run that was killed before its first call: {advice}")
    path = directory / MANIFEST_NAME
    info = read_manifest(path).info if path.is_file() else RunInfo(producer="merge")
    _write_noted(directory, noted)
    awaiting = {index for index, entry in noted.items() if entry.awaits_operators}
    _rebuild(directory, call_files(directory), info, awaiting)
    shutil.rmtree(directory / WORK_NAME, ignore_errors=True)
    for part in directory.glob(".*.part"):
        part.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (directory / JOURNAL_NAME).unlink()
    return directory / MERGED_NAME


def _write_noted(directory: Path, noted: dict[int, JournalEntry]) -> None:
    """Write a file for each call of a journal that has none."""
    there = {path.name for path in call_files(directory)}
    writer, nothing = BundleWriter(directory), CommandBuilder().build()
    for entry in noted.values():
        if entry.call.file_name not in there:
            writer.write_call(replace(entry.call, ops_traced=False), nothing)


def _rebuild(
    directory: Path, files: Sequence[Path], info: RunInfo, awaiting: Container[int] = ()
) -> None:
    """Write the manifest of a run that ended before it could, from its files. `info` is what else
    is known of the run; the calls `awaiting` should have got operators. Repeating a merge that was
    killed reports each loss once."""
    entries: list[CallEntry] = []
    drops: list[Drop] = []
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
            raise InputError(f"{path} holds no call: it was not written by profile-sd3, remove it")
    drops.extend(_missing_files(directory, entries))
    calls = [entry.call for entry in entries if entry.call.index in awaiting]
    without = CountOf(call.submodule for call in calls if not call.ops_traced)
    detail = Note.of(DropReason.KILLED_BEFORE_READ)
    lost = (Drop(DropKind.UNTRACED_CALL, name, n, "calls", detail) for name, n in without.items())
    info = structs.replace(info, drops=tuple(dict.fromkeys((*info.drops, *lost, *drops))))
    write_manifest(directory, info, entries, merge_files(directory, whole))


def _absent(directory: Path, names: Iterable[str]) -> Iterator[Drop]:
    """A drop for each file that the manifest names but that does not exist."""
    for name in names:
        if name != MERGED_NAME and not (directory / name).is_file():
            detail = Note.of(DropReason.NOT_THERE, file=name)
            yield Drop(DropKind.MISSING_FILE, name, 1, "files", detail)


def _missing_files(directory: Path, entries: Sequence[CallEntry]) -> Iterator[Drop]:
    """Drops for what a rebuilt run lacks, as far as its files show: calls and `host.pb`."""
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
    """The bytes up to the end of the last whole packet; 0 if there is none."""
    try:
        drops = read_trace(path).drops
    except InputError:
        return 0
    return path.stat().st_size - _cut_bytes(drops)


def _cut_bytes(drops: Sequence[Drop]) -> int:
    return sum(drop.count for drop in drops if drop.kind == DropKind.TRUNCATED_FILE)


# --- A bundle that appears complete: written in a scratch folder, then moved.


def place_bundle(bundle: Path, parent: Path) -> Path:
    """Move a finished bundle into `parent`, on the same file system, and return its new path. If
    its name is taken it becomes `NAME-2`, …, in its manifest, too. Raises OutputError."""
    try:
        target = _new_folder(parent, bundle.name)  # reserves the name
        if target.name != bundle.name:
            manifest = replace(read_manifest(bundle / MANIFEST_NAME), run_id=target.name)
            write_atomically(bundle / MANIFEST_NAME, manifest.chunks())
        if os.name == "nt":
            target.rmdir()
        bundle.replace(target)
    except OSError as error:
        raise not_writable(parent, error) from error
    return target


# --- The bundles below a folder and the state of each, determined once.
#
# found = search(Path("traces"))
# found.whole         # newest first
# found.unfinished    # running, killed, never merged, or without a call


_LEVELS = 2


class State(Enum):
    """The state of a run's directory; `merge_bundle` completes those that are cut or not merged."""

    WHOLE = "whole"
    EMPTY = "empty"  # whole, but the run ended before its first call
    RUNNING = "running"  # its process still writes it
    CUT = "cut"  # its process is gone and has left the journal
    UNMERGED = "unmerged"  # call files without a manifest


class Unfinished(Struct, frozen=True):
    """A run that is not complete."""

    path: Path
    state: State

    def error(self) -> InputError:
        """The error for reading this run: what is wrong with it, and what to do."""
        rebuild = f"`profile-sd3 merge {self.path}`"
        if self.state is State.EMPTY:
            return InputError(
                f"{self.path} holds no call: the run ended before its first, record it again"
            )
        if self.state is State.RUNNING:
            text = f"the run in {self.path} is still going on: wait for its end"
        elif self.state is State.CUT:
            text = f"{self.path} is of a run that has not ended: if it was killed, {rebuild}"
            text += " completes it"
        else:
            text = f"{self.path} holds call files but no {MANIFEST_NAME}: run {rebuild} to rebuild"
            text += " it"
        return InputError(text)


class Bundles(Struct, frozen=True):
    """The runs found at `path`: `path` itself if it is a run, else those below it."""

    path: Path
    whole: tuple[Path, ...]
    unfinished: tuple[Unfinished, ...]

    @property
    def is_one_run(self) -> bool:
        """Whether `path` itself is the run."""
        return self.path in (*self.whole, *(entry.path for entry in self.unfinished))

    @property
    def running(self) -> tuple[Path, ...]:
        """The runs that are still being recorded."""
        return tuple(one.path for one in self.unfinished if one.state is State.RUNNING)

    def check(self) -> None:
        """Raise InputError with what to do if no run is complete."""
        if self.whole:
            return
        if self.unfinished:
            raise self.unfinished[0].error()
        raise InputError(
            f"no bundle in {self.path}: record one with `profile-sd3 run --out {self.path}`"
        )


def state_of(directory: Path) -> State | None:
    """The state of the run in `directory`, None if there is none. Raises OSError."""
    with os.scandir(directory) as entries:
        names = {entry.name for entry in entries}
    if JOURNAL_NAME in names:
        return State.RUNNING if is_running(directory) else State.CUT
    has_calls = any(map(is_call_file, names))
    if MANIFEST_NAME in names:
        return State.WHOLE if has_calls or _lists_calls(directory) else State.EMPTY
    return State.UNMERGED if has_calls else None


def _lists_calls(directory: Path) -> bool:
    """Whether a manifest without call files lists calls (these are lost) or cannot be read. Both
    are reported by whoever reads the run."""
    try:
        return bool(read_manifest(directory / MANIFEST_NAME).calls)
    except InputError:
        return True


def search(path: Path) -> Bundles:
    """The runs at `path`: the folder itself, or those up to two levels below it. Folders below that
    cannot be read are skipped. A run without calls counts as complete only if it is `path` itself.
    Raises OSError if `path` cannot be read."""
    whole: list[Path] = []
    rest: list[Unfinished] = []
    for directory, state in _states(path, _LEVELS, state_of(path)):
        if state is State.WHOLE or (state is State.EMPTY and directory == path):
            whole.append(directory)
        else:
            rest.append(Unfinished(directory, state))
    rest.sort(key=lambda entry: entry.path)
    return Bundles(path, tuple(sorted(whole, key=_age)), tuple(rest))


def _states(directory: Path, levels: int, state: State | None) -> list[tuple[Path, State]]:
    if state is not None:
        return [(directory, state)]
    found: list[tuple[Path, State]] = []
    for entry in directory.iterdir() if levels else ():
        try:
            scratch = entry.name.startswith(".") and entry.name.endswith(".part")
            if entry.is_dir() and not scratch:
                found += _states(entry, levels - 1, state_of(entry))
        except OSError:  # no permission, or removed meanwhile
            continue
    return found


def find_bundles(path: Path) -> list[Path]:
    """Finished bundles at `path`, newest first: `path` itself, or those below it.

    Raises InputError with what to do if there is none.
    """
    try:
        if not path.exists():
            raise InputError(f"{path} does not exist: give a bundle or a folder of bundles")
        if not path.is_dir():
            raise InputError(f"{path} is a file: give a bundle or a folder of bundles")
        found = search(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    found.check()
    return list(found.whole)


def _age(bundle: Path) -> tuple[int, str]:
    try:
        return (-(bundle / MANIFEST_NAME).stat().st_mtime_ns, bundle.name)
    except OSError:  # removed meanwhile: its reader reports it
        return (0, bundle.name)
