"""Bundles below a folder, and in which state each is: asked once, and told as a value.

found = search(Path("traces"))
found.whole         # newest first
found.unfinished    # going on, cut short, never merged, or without a call
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from msgspec import Struct

from profiler.errors import InputError
from profiler.trace.bundle import is_call_file
from profiler.trace.journal import JOURNAL_NAME, is_running
from profiler.trace.manifest import MANIFEST_NAME, read_manifest

__all__ = ["Bundles", "State", "Unfinished", "find_bundles", "search", "state_of"]

_LEVELS = 2


class State(Enum):
    """What a directory that belongs to a run holds; `merge_bundle` completes those that are cut or
    not merged."""

    WHOLE = "whole"
    EMPTY = "empty"  # whole, but the run ended before its first call
    RUNNING = "running"  # its process still writes it
    CUT = "cut"  # its process is gone and has left the journal
    UNMERGED = "unmerged"  # call files without a manifest


class Unfinished(Struct, frozen=True):
    """A run that is not whole."""

    path: Path
    state: State

    def error(self) -> InputError:
        """What to say to who wants to read it."""
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
    """What is at `path`: itself where that belongs to a run, else the runs below it."""

    path: Path
    whole: tuple[Path, ...]
    unfinished: tuple[Unfinished, ...]

    @property
    def is_one_run(self) -> bool:
        """Whether `path` itself is the run."""
        return self.path in (*self.whole, *(entry.path for entry in self.unfinished))

    @property
    def running(self) -> tuple[Path, ...]:
        """The runs that go on."""
        return tuple(one.path for one in self.unfinished if one.state is State.RUNNING)

    def check(self) -> None:
        """Raises InputError with what to do where none is whole."""
        if self.whole:
            return
        if self.unfinished:
            raise self.unfinished[0].error()
        raise InputError(
            f"no bundle in {self.path}: record one with `profile-sd3 run --out {self.path}`"
        )


def state_of(directory: Path) -> State | None:
    """The state of the run in `directory`, None where there is none. Raises OSError."""
    with os.scandir(directory) as entries:
        names = {entry.name for entry in entries}
    if JOURNAL_NAME in names:
        return State.RUNNING if is_running(directory) else State.CUT
    has_calls = any(map(is_call_file, names))
    if MANIFEST_NAME in names:
        return State.WHOLE if has_calls or _lists_calls(directory) else State.EMPTY
    return State.UNMERGED if has_calls else None


def _lists_calls(directory: Path) -> bool:
    """Whether the manifest of a directory without call files lists some, which are then lost, or
    cannot be read: whoever reads it says so."""
    try:
        return bool(read_manifest(directory / MANIFEST_NAME).calls)
    except InputError:
        return True


def search(path: Path) -> Bundles:
    """The runs at `path`, a folder: itself, or those up to two levels below it; what is below and
    cannot be read is left out. One without calls is whole where `path` itself is it. Raises OSError
    where `path` cannot be read."""
    found = _states(path, _LEVELS, state_of(path))
    whole: list[Path] = []
    rest: list[Unfinished] = []
    for directory, state in found:
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
            if entry.is_dir() and not _is_scratch(entry.name):
                found += _states(entry, levels - 1, state_of(entry))
        except OSError:  # not ours to read, or gone meanwhile
            continue
    return found


def _is_scratch(name: str) -> bool:
    """Whether a folder of that name is one in which something is being made: `scratch_folder`."""
    return name.startswith(".") and name.endswith(".part")


def find_bundles(path: Path) -> list[Path]:
    """Finished bundles at `path`, newest first: `path` itself, or those below it.

    Raises InputError with what to do where there is none.
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
    except OSError:  # gone meanwhile: whoever reads it says so
        return (0, bundle.name)
