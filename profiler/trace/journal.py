"""The journal of a run that is still going on: one line for each call that has returned.

    journal = Journal.create(directory)
    journal.add(call, awaits_operators=True)
    journal.remove()

It lies in the bundle as `.calls` until the run has ended; a process that is killed leaves it, and
`profile-sd3 merge` makes call files of its lines. A line is handed to the system in one write, so
it outlives the process, though not a machine that goes down.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from profiler.events import Call
from profiler.files import file_mode, not_writable
from profiler.interruptions import let_pass
from profiler.typed_json import decoder_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "JOURNAL_NAME",
    "Journal",
    "JournalEntry",
    "JournalReader",
    "is_running",
    "read_journal",
]

JOURNAL_NAME = ".calls"
_encoder = msgspec.json.Encoder()
_own: dict[tuple[int, int], int] = {}  # journals that this process writes: file → process


class JournalEntry(Struct, frozen=True):
    """A call that has returned; `awaits_operators`: its operators were to be read later."""

    call: Call
    awaits_operators: bool


class Journal:
    """Appends to the journal of one bundle. It is locked while its process lives."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, directory: Path) -> Journal:
        """Begin the journal of a bundle. Raises OutputError."""
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
        """Append one call; whether it was written whole. Each line begins with its line break, so
        that one that was cut by a full disk spoils no other."""
        line = b"\n" + _encoder.encode(JournalEntry(call, awaits_operators))
        try:
            return os.write(self._descriptor, line) == len(line)
        except OSError as error:
            let_pass(error)
            return False

    def remove(self) -> None:
        """The run is whole without its journal; again without effect."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Write no more, and leave the journal where it is; again without effect."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _own.pop(_identity(os.fstat(descriptor)), None)
            os.close(descriptor)


def read_journal(directory: Path) -> dict[int, JournalEntry]:
    """The calls of a journal by index; lines that are cut or no calls are left out."""
    decoder = decoder_of(JournalEntry)
    found: dict[int, JournalEntry] = {}
    with (directory / JOURNAL_NAME).open("rb") as file:
        for line in file:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                entry = decoder.decode(line)
                if _sound(entry.call):
                    found[entry.call.index] = entry  # a later line has the labels for good
    return found


class JournalReader:
    """Reads the journal of a run that goes on, each line once."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL_NAME
        self._offset = 0
        self._decoder = decoder_of(JournalEntry)

    def read(self) -> list[JournalEntry]:
        """The calls that have been added since the last time; none once the journal is gone. A
        last line that is not whole yet is read again; others that are cut are left out."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        found = []
        *lines, last = data.split(b"\n")
        for line in lines:
            found += self._entry(line)
        whole = self._entry(last)
        self._offset += len(data) - (0 if whole else len(last))
        return found + whole

    def _entry(self, line: bytes) -> list[JournalEntry]:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            entry = self._decoder.decode(line)
            return [entry] if _sound(entry.call) else []
        return []


def is_running(directory: Path) -> bool:
    """Whether the process that writes the bundle still lives; False where nobody can tell.

    A process that closes a file loses all its locks on it, so it must not open its own journal.
    """
    path = directory / JOURNAL_NAME
    try:
        if _own.get(_identity(path.stat())) == os.getpid():  # a forked child's are its parent's
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
    """Whether its numbers fit the tables and its name is a file of the bundle."""
    numbers = 0 <= call.index < 1 << 31 and -1 <= call.step < 1 << 31
    numbers = numbers and -1 <= call.pipeline < 1 << 31 and -1 <= call.iteration < 1 << 31
    times = 0 <= call.start_ns < 1 << 62 and -1 <= call.duration_ns < 1 << 62
    noted = (call.device_lag_ns, call.device_duration_ns)
    times = times and all(-1 <= each < 1 << 60 for each in noted)
    return numbers and times and len(call.file_name) < 200
