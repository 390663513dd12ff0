"""A folder with files of several recorders: one run, where their clocks relate.

No importer of its own: it has no `IMPORTER`, since it needs all the others. `registry` makes one of
them (`mixed_importer`) where a folder holds files that no single importer reads together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.importers.importer import Importer, Option, only_path

if TYPE_CHECKING:
    from profiler.importers.mixed.read import MixedRun


__all__ = ["ACCEPTS", "NAME", "mixed_importer"]


NAME = "mixed"
ACCEPTS = "a folder with files of several of these that are of one run"


def mixed_importer(importers: Sequence[Importer]) -> Importer:
    """What reads a folder whose files are those of any of `importers`; its options are theirs."""
    options: dict[str, Option] = {}
    for importer in importers:
        for option in importer.options:
            options.setdefault(option.name, option)

    def recognises(path: Path, _head: bytes) -> bool:
        from profiler.importers.mixed.align import contents_of

        return path.is_dir() and bool(contents_of(path, importers).files)

    def read(paths: Sequence[Path], given: Mapping[str, Any]) -> MixedRun:
        from profiler.importers.mixed.read import read_folder

        return read_folder(only_path(paths, ACCEPTS), importers, given)

    return Importer(
        name=NAME,
        accepts=ACCEPTS,
        recognises=recognises,
        read=read,
        options=tuple(options.values()),
        capabilities=frozenset[str]().union(*(one.capabilities for one in importers)),
    )
