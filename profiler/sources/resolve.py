"""What a path that a user gives stands for, decided once.

    (found,) = resolve([[Path("traces")]])
    found.newest        # Source: a path and what it is
    found.others        # older runs of the folder
    found.unfinished    # runs that are not whole

Bundle, folder of bundles (searched two levels deep), `.pb`, Parquet folder, or the files of another
profiler that an importer recognises.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field

from profiler.errors import InputError
from profiler.importers.importer import Importer, head_of
from profiler.importers.registry import likeness, producer, recognised, unread
from profiler.run.load import is_parquet_run
from profiler.trace.bundle import Unfinished, search

__all__ = ["Foreign", "Found", "Kind", "Source", "as_paths", "check_kept", "resolve"]

_PACKET = b"\n"  # what every Perfetto trace begins with


class Kind(Enum):
    """How a run is stored."""

    BUNDLE = "bundle"
    TRACE = "trace"
    PARQUET = "parquet"
    FOREIGN = "foreign"


class Foreign(Struct, frozen=True):
    """The files of one run of another profiler, what reads them, and its options."""

    importer: Importer
    paths: tuple[Path, ...]
    options: Mapping[str, object] = field(default_factory=dict)


class Source(Struct, frozen=True):
    """One run: where it lies and in which form. `foreign` says what a foreign one is read with;
    `origin` is, of a bundle that was imported for this once, what it was imported from."""

    path: Path
    kind: Kind
    foreign: Foreign | None = None
    origin: Path | None = None

    @property
    def place(self) -> Path:
        """Where it lies as the user knows it."""
        return self.origin or self.path


class Found(Struct, frozen=True):
    """The runs that `given` stands for, newest first, at least one; and those left out."""

    given: Path
    sources: tuple[Source, ...]
    unfinished: tuple[Unfinished, ...] = ()

    @property
    def newest(self) -> Source:
        """The run that a command takes which takes one."""
        return self.sources[0]

    @property
    def others(self) -> tuple[str, ...]:
        """The others' names, as they are called below `given`."""
        return tuple(str(source.path.relative_to(self.given)) for source in self.sources[1:])


def resolve(
    names: Sequence[Sequence[Path]], options: Mapping[str, object] = MappingProxyType({})
) -> list[Found]:
    """What each of `names` stands for: one path, or the several files of one foreign run.

    `options` go to the importers of those that are foreign. Raises InputError, in one sentence,
    for what cannot be read, holds no run, or is recognised by no importer, and for options that no
    importer has which is used here, or whose value is wrong.
    """
    found = [_found(tuple(paths)) for paths in names]
    return _with_options(found, options)


def _found(paths: tuple[Path, ...]) -> Found:
    if len(paths) > 1:
        return _several(paths)
    path = paths[0]
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return _folder(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: give a bundle or a folder of bundles") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is neither a file nor a folder: give a bundle or a trace")
    return _file(path)


def _several(paths: tuple[Path, ...]) -> Found:
    importer = recognised(paths)
    if importer is None:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(
            f"{named} are no files of one run that an importer reads: give one run, and compare "
            "several with `profile-sd3 diff`"
        )
    return Found(paths[0], (_foreign(importer, paths),))


def _file(path: Path) -> Found:
    importer = recognised([path])
    if importer is not None:
        return Found(path, (_foreign(importer, (path,)),))
    head = head_of(path)
    if head[:1] not in (b"", _PACKET) or producer(head) is not None:
        raise unread(path)
    return Found(path, (Source(path, Kind.TRACE),))


def _folder(path: Path) -> Found:
    if is_parquet_run(path):
        return Found(path, (Source(path, Kind.PARQUET),))
    bundles = search(path)
    if not bundles.whole and not bundles.is_one_run:
        importer = recognised([path])
        if importer is not None:
            return Found(path, (_foreign(importer, (path,)),))
    if not bundles.whole and not bundles.unfinished:
        raise InputError(
            f"no bundle in {path}, {likeness(path, b'')}: record one with `profile-sd3 run --out "
            f"{path}`, or name a file that can be imported (`profile-sd3 import --list`)"
        )
    bundles.check()
    sources = tuple(Source(bundle, Kind.BUNDLE) for bundle in bundles.whole)
    return Found(path, sources, bundles.unfinished)


def _foreign(importer: Importer, paths: tuple[Path, ...]) -> Source:
    return Source(paths[0], Kind.FOREIGN, Foreign(importer, paths))


def _with_options(found: list[Found], options: Mapping[str, object]) -> list[Found]:
    """`found` with the options for each importer, read by it."""
    if not options:
        return found
    used = [each.newest.foreign.importer for each in found if each.newest.foreign is not None]
    if not used:
        named = ", ".join(options)
        raise InputError(
            f"{found[0].given} is no trace of another profiler: leave out the importer's options "
            f"({named})"
        )
    known = {option.name for importer in used for option in importer.options}
    used[0].values({name: value for name, value in options.items() if name not in known})
    return [_given(each, options) for each in found]


def _given(found: Found, options: Mapping[str, object]) -> Found:
    source = found.newest
    if source.foreign is None:
        return found
    importer = source.foreign.importer
    names = {option.name for option in importer.options} & options.keys()
    values = importer.values({name: options[name] for name in options if name in names})
    foreign = Foreign(importer, source.foreign.paths, values)
    return Found(found.given, (Source(source.path, source.kind, foreign),))


def check_kept(found: Sequence[Found], out: str | os.PathLike[str] | None) -> None:
    """Raises InputError where a folder is named in which to keep what is imported, and nothing
    is."""
    if out is not None and all(each.newest.foreign is None for each in found):
        raise InputError(f"--out keeps what is imported, and {found[0].given} is not: leave it out")


def as_paths(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The paths that a caller gives as one or as several."""
    if isinstance(given, str | os.PathLike):
        return (Path(given),)
    return tuple(map(Path, given))
