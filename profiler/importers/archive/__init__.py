"""Files of one run in a zip or tar: read as the folder that they were.

No importer of its own, as `mixed` is none: it has no `IMPORTER`, since it needs all the others.
`registry` makes one of them (`archive_importer`) for archives with a trace of any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.importers.importer import Importer, Option, only_path
from profiler.kineto.archives import packed_as

if TYPE_CHECKING:
    from profiler.importers.archive.run import ArchiveRun

__all__ = ["archive_importer", "is_archive"]

_ACCEPTS = "a zip or tar of the files of one run"


def is_archive(path: Path, head: bytes) -> bool:
    """Whether a file is a zip or a tar, by the begin of what it is, unpacked."""
    return not path.is_dir() and packed_as(head) in ("zip", "tar")


def archive_importer(
    importers: Sequence[Importer], recognised: Callable[[Sequence[Path]], Importer | None]
) -> Importer:
    """What reads an archive whose files are those of any of `importers`; its options are theirs.
    `recognised` tells who reads what was unpacked."""
    options: dict[str, Option] = {}
    for importer in importers:
        for option in importer.options:
            options.setdefault(option.name, option)

    def recognises(path: Path, head: bytes) -> bool:
        return is_archive(path, head)

    def read(paths: Sequence[Path], given: Mapping[str, Any]) -> ArchiveRun:
        from profiler.importers.archive.run import read_archive

        return read_archive(only_path(paths, _ACCEPTS), recognised, given)

    return Importer(
        name="archive",
        accepts=_ACCEPTS,
        recognises=recognises,
        read=read,
        options=tuple(options.values()),
        capabilities=frozenset[str]().union(*(one.capabilities for one in importers)),
    )
