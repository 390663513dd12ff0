"""Whose each file of a folder is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from profiler.errors import InputError
from profiler.importers.head import head_of
from profiler.importers.importer import Importer, recognised_by
from profiler.importers.likeness import likeness
from profiler.importers.refusals import refusal_of
from profiler.plain_text import plain_text
from profiler.trace.manifest_parts import LeftOut

__all__ = ["Contents", "contents_of"]

_LOOKED_AT = 256  # files, before a folder is none of one run
_CAPTURES = "capture_traces"  # of replayed graphs: read with the trace beside them


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of each importer, by its name, and those of nobody."""

    files: dict[str, tuple[Path, ...]]
    left_out: tuple[LeftOut, ...]


def contents_of(folder: Path, importers: Sequence[Importer]) -> Contents:
    """The files in a folder, and in those directly below, by the first importer that recognises
    each."""
    found: dict[str, list[Path]] = {}
    others: dict[Path, str] = {}
    for path in islice(_files(folder), _LOOKED_AT):
        try:
            head = head_of(path)
        except InputError:
            others[path] = "unreadable"
            continue
        matching = filter(partial(recognised_by, path, head), importers)
        importer = next(matching, None)
        if importer is not None:
            found.setdefault(importer.name, []).append(path)
            continue
        refusal = refusal_of(path, head)
        others[path] = refusal.what if refusal is not None else likeness(path, head)
    beside = _read_beside(found, importers)
    left_out = (
        LeftOut(file=plain_text(str(path.relative_to(folder))), what=what)
        for path, what in others.items()
        if path not in beside
    )
    return Contents({name: tuple(files) for name, files in found.items()}, tuple(left_out))


def _read_beside(found: Mapping[str, Sequence[Path]], importers: Sequence[Importer]) -> set[Path]:
    """What the importers of these files look at beside them."""
    return {
        other
        for importer in importers
        if (beside := getattr(importer, "beside", None)) is not None
        for path in found.get(importer.name, ())
        for other in beside(path)
    }


def _files(folder: Path) -> list[Path]:
    """Files by name, those of the folder itself first."""
    entries = _entries(folder)
    below = [one for one in entries if one.is_dir() and one.name != _CAPTURES]
    inside = [file for one in below for file in _entries(one)]
    return [file for file in (*entries, *inside) if file.is_file()]


def _entries(folder: Path) -> list[Path]:
    """What is not hidden, by name; nothing of a folder that may not be read."""
    try:
        return sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    except OSError:
        return []
