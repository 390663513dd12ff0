"""Imports for as long as they are needed: foreign traces as bundles in a folder that goes again.

with Imports() as imports:
    run = load_source(imports.ready(found.newest))
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from profiler.errors import OutputError
from profiler.sources.resolve import Kind, Source

__all__ = ["Imports"]


class Imports:
    """Imports foreign sources: into the folder `keep`, else into a temporary one that goes with
    `close`, when nothing refers to this any longer, or at the interpreter's exit."""

    def __init__(
        self, keep: Path | None = None, leave: Callable[[object], None] | None = None
    ) -> None:
        """`leave` is given what importers read, before it is freed."""
        self._keep = keep
        self._leave = leave
        self._folder: Path | None = None
        self._remove: weakref.finalize[[Path, int], Imports] | None = None

    def __enter__(self) -> Imports:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Imports], tuple[Path | None]]:
        """A copy in another process holds nothing: the folder is this one's."""
        return Imports, (self._keep,)

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies in a temporary folder."""
        return self._folder is None

    def ready(self, source: Source) -> Source:
        """`source` itself, or the bundle that was made of it where it is foreign. Raises
        InputError where it cannot be imported, OutputError where nothing can be written."""
        if source.kind is not Kind.FOREIGN or source.foreign is None:
            return source
        from profiler.importers.importing import import_all_with, import_with

        foreign = source.foreign
        out = self._keep or self._temporary()
        given = (foreign.importer, foreign.paths, foreign.options, out)
        if self._keep is None:
            bundle = import_with(*given, leave=self._leave)
        else:
            bundle, *_ = import_all_with(*given, leave=self._leave)
        return Source(bundle, Kind.BUNDLE, origin=None if self._keep else source.path)

    def close(self) -> None:
        """Remove what is temporary; again without effect."""
        if self._remove is not None:
            self._remove()

    def _temporary(self) -> Path:
        if self._folder is None:
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="profile-sd3-import-"))
            except OSError as error:
                reason = error.strerror or str(error)
                raise OutputError(
                    f"no temporary folder can be made ({reason}): set TMPDIR to one with room"
                ) from error
            self._remove = weakref.finalize(self, _removed, self._folder, os.getpid())
        return self._folder


def _removed(folder: Path, process: int) -> None:
    """Remove a folder in the process that made it; a forked child leaves it to its parent."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
