"""A folder with files of several recorders → a run, and those beside it.

import_trace(Path("recorded"), Path("traces"))      # nsys, Kineto and ORT files of one run
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import UNKNOWN, Drop, DropKind
from profiler.importers.importer import ForeignRun, Importer
from profiler.importers.mixed.clocks import groups
from profiler.importers.mixed.collected import collected
from profiler.importers.mixed.contents import contents_of
from profiler.importers.mixed.run import MixedRun
from profiler.notes import Note

__all__ = ["read_folder"]


def read_folder(folder: Path, importers: Sequence[Importer], given: Mapping[str, Any]) -> MixedRun:
    """Read all files in a folder that any of `importers` reads; each gets those options of `given`
    that it has.

    Raises InputError where none can be read.
    """
    contents = contents_of(folder, importers)
    by_name = {importer.name: importer for importer in importers}
    parts, errors, unread = [], [], []
    for name, files in contents.files.items():
        importer = by_name[name]
        for some, run in _runs(importer, files, given):
            if isinstance(run, InputError):
                errors.append(run)
                note = Note.of(DropReason.ERROR, error=str(run))
                where = str(some[0].relative_to(folder))
                unread.append(Drop(DropKind.DROPPED_EVENTS, where, UNKNOWN, "events", note))
            else:
                parts.append(collected(importer, some, run))
    if not parts:
        raise errors[0] if errors else InputError(f"{folder} holds no trace: give one")
    name = folder.absolute().name
    first, *others = groups(parts)
    runs = tuple(MixedRun(_name_of(name, group), tuple(group)) for group in others)
    return MixedRun(name, tuple(first), runs, contents.left_out, tuple(unread))


def _runs(
    importer: Importer, files: Sequence[Path], given: Mapping[str, Any]
) -> Iterator[tuple[Sequence[Path], ForeignRun | InputError]]:
    """The runs of an importer's files, or why there is none; each file alone where those that
    should be one run are not."""
    names = {option.name for option in importer.options}
    options = {name: value for name, value in given.items() if name in names}
    together = getattr(importer, "together", None)
    for some in together(files) if together is not None else [files]:
        try:
            yield some, importer.read(some, options)
            continue
        except InputError as error:
            if len(some) == 1:
                yield some, error
                continue
        for file in some:
            try:
                yield [file], importer.read([file], options)
            except InputError as error:
                yield [file], error


def _name_of(folder: str, group: Sequence[Any]) -> str:
    """What to call a run that lay beside another: after its first part."""
    return f"{folder}-{group[0].part.name}"
