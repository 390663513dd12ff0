"""Import a zip or tar archive that contains the trace files of one run.

    import_trace(Path("run.zip"), Path("traces"))      # nsys, Kineto and ORT files of one run

Links and devices are skipped. The unpacked size is limited by the archive's size and by 8 GiB
(`--max-unpacked`).
The temporary folder lives as long as the run, because an importer may read it later.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from profiler.errors import InputError
from profiler.importers.archive import unpack
from profiler.importers.importer import ForeignRun, Importer, Landmarked
from profiler.trace.bundle import BundleWriter
from profiler.trace.manifest import RunInfo

_ENDINGS = (".zip", ".tar.gz", ".tgz", ".tar")


class _Scratch:
    """A temporary folder that goes with this object, or with the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="profile-sd3-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveRun:
    """What an importer read of the files in an archive, which lie in `scratch`."""

    path: Path
    run: ForeignRun
    scratch: _Scratch

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def capabilities(self) -> Collection[str]:
        return self.run.capabilities

    @property
    def others(self) -> tuple[ArchiveRun, ...]:
        """The runs of files that nothing relates to the first."""
        found = getattr(self.run, "others", ())
        return tuple(ArchiveRun(self.path, one, self.scratch) for one in found)

    def landmarks(self) -> Iterable[tuple[str, int]]:
        return self.run.landmarks() if isinstance(self.run, Landmarked) else ()

    def write(self, bundle: BundleWriter) -> RunInfo:
        info, held = self.run.write(bundle), str(self.scratch.path)
        words = (str(self.path) if one.startswith(held) else one for one in info.command_line)
        recording = info.recording
        if recording is not None:
            recording = structs.replace(recording, source=self.path.name)
        return structs.replace(info, command_line=tuple(words), recording=recording)


def read_archive(
    path: Path,
    recognised: Callable[[Sequence[Path]], Importer | None],
    given: Mapping[str, Any],
) -> ArchiveRun:
    """Read an archive as the folder that it holds, or as its only file.

    Raises InputError if it cannot be unpacked, or holds nothing that can be read.
    """
    scratch = _Scratch()
    try:
        # the archive's name without what says how it is packed
        ending = next((one for one in _ENDINGS if path.name.lower().endswith(one)), "")
        stem = path.name[: len(path.name) - len(ending)].strip(". ") or "archive"
        held = scratch.path / stem
        held.mkdir()
        unpack(path, held)
        run = _read(path, _inmost(held), recognised, given)
    except InputError as error:
        scratch.remove()
        text = str(error).replace(f"{scratch.path}/", "")
        raise InputError(f"{path}: {text}" if text != str(error) else text) from error
    return ArchiveRun(path, run, scratch)


def _read(
    path: Path,
    place: Path,
    recognised: Callable[[Sequence[Path]], Importer | None],
    given: Mapping[str, Any],
) -> ForeignRun:
    importer = recognised([place])
    if importer is None:
        raise InputError(f"{path} holds no trace that is read here: give one, or its folder")
    run: ForeignRun = importer.read([place], importer.values(given))
    return run


def _inmost(folder: Path) -> Path:
    """What a folder holds, if that is one folder or one file: archives have their name once
    more, and what is alone is read as itself."""
    while folder.is_dir() and len(found := list(folder.iterdir())) == 1:
        folder = found[0]
    return folder
