"""The importers that are there, and which of them a file is for.

A folder of this package with an `IMPORTER` is one; so is what another package names under the
entry point group `profile_sd3.importers`. Nothing lists them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from profiler.errors import InputError
from profiler.importers.archive import archive_importer, is_archive
from profiler.importers.archive.members import heads_in
from profiler.importers.head import head_of
from profiler.importers.importer import Importer, recognised_by
from profiler.importers.likeness import likeness
from profiler.importers.mixed import mixed_importer
from profiler.importers.refusals import refuse
from profiler.plugins import plugins

__all__ = ["GROUP", "accepted", "built_in", "choose", "importers", "recognised", "unread"]

GROUP = "profile_sd3.importers"
_NEEDS = ("name", "accepts", "recognises", "read", "options", "capabilities", "values")


@cache
def built_in() -> tuple[Importer, ...]:
    """The importers of this package, by name; looking for them imports no library."""
    package = import_module("profiler.importers")
    folders = [
        import_module(f"{package.__name__}.{module.name}")
        for module in pkgutil.iter_modules(package.__path__)
        if module.ispkg
    ]
    found = [folder.IMPORTER for folder in folders if hasattr(folder, "IMPORTER")]
    return tuple(sorted(found, key=lambda importer: importer.name))


def importers() -> tuple[Importer, ...]:
    """All importers: those of this package, then those of others, each name once."""
    by_name: dict[str, Importer] = {}
    for importer in (*built_in(), *plugins(GROUP, *_NEEDS)):
        by_name.setdefault(importer.name, importer)
    return tuple(by_name.values())


def recognised(paths: Sequence[Path]) -> Importer | None:
    """The first importer that recognises every path, None where none does. Raises InputError
    where one cannot be read, or is of a kind for which something else must be given."""
    heads = [head_of(path) for path in paths]
    if len(paths) == 1:  # among several it may be what another needs beside it
        refuse(paths, heads)
    given = list(zip(paths, heads, strict=True))
    matching = (one for one in importers() if all(recognised_by(*each, one) for each in given))
    found = next(matching, None)
    if len(paths) == 1 and paths[0].is_dir():
        return _of_folder(paths[0], found)
    if len(paths) == 1 and is_archive(paths[0], heads[0]):
        return _of_archive(paths[0], found)
    if found is None:
        refuse(paths, heads)
    return found


def _of_folder(folder: Path, whole: Importer | None) -> Importer | None:
    """What reads a folder: `whole`, which recognises it, unless files of others lie in it, too."""
    from profiler.importers.mixed.contents import contents_of

    there = contents_of(folder, importers()).files
    if whole is not None and there.keys() <= {whole.name}:
        together = getattr(whole, "together", None)  # later than other packages' importers may be
        if together is None or len(together(there.get(whole.name, ()))) < 2:
            return whole
    return mixed_importer(importers()) if there else None


def _of_archive(path: Path, whole: Importer | None) -> Importer | None:
    """What reads an archive: `whole`, which reads the only trace in it where it lies, else what
    unpacks it; None where no importer recognises any of its files."""
    holders = [
        found
        for name, head in heads_in(path)
        if (found := next((o for o in importers() if recognised_by(Path(name), head, o)), None))
    ]
    if not holders:
        return None
    alone = whole is not None and [one.name for one in holders] == [whole.name]
    return whole if alone else archive_importer(importers(), recognised)


def choose(paths: Sequence[Path], options: Mapping[str, object]) -> Importer:
    """The importer that recognises `paths`; where none does, the only one that has the `options`
    that were given. Raises InputError where there is none, with what the first looks like."""
    found = recognised(paths)
    if found is not None:
        return found
    able = [one for one in importers() if options and options.keys() <= _names(one)]
    if len(able) == 1:
        return able[0]
    for path in paths:
        if recognised([path]) is None:
            raise unread(path, accepted())
    named = ", ".join(map(str, paths))
    raise InputError(f"{named} are of different formats, and no importer reads them as one run")


def unread(path: Path, wanted: str) -> InputError:
    """What to raise for a path that nobody reads; `wanted` says what would be read."""
    return InputError(
        f"{path} looks like {likeness(path, head_of(path))}, which is not read here: give {wanted}"
    )


def accepted() -> str:
    """In words, what importers accept: their names, for what each accepts is a line of its own."""
    names = ", ".join(importer.name for importer in importers())
    return f"a trace in a format that `profile-sd3 import --list` describes ({names})"


def _names(importer: Importer) -> set[str]:
    return {option.name for option in importer.options}
