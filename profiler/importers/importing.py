"""`import_trace`: choose the importer of a foreign trace and write its bundle.

    import_trace(Path("sd35.json.gz"), Path("traces"))
    import_trace(Path("rbln_traces"), Path("npu"), options={"pipeline": "sd3", "steps": 28})

Importers are those of `formats.py`, the folders of this package with an `IMPORTER`, and those of
the entry point group `profile_sd3.importers`. Finding them imports no library.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import structs

from profiler.errors import InputError, OutputError
from profiler.files import scratch_folder
from profiler.importers.archive import ACCEPTS, heads_in, is_archive
from profiler.importers.formats import IMPORTERS
from profiler.importers.importer import Importer, Option, head_of, only_path, recognised_by
from profiler.importers.refusals import likeness, refuse
from profiler.kineto import is_chrome_of_another
from profiler.plugins import plugins
from profiler.text import check_run_name, run_name_of
from profiler.trace.compression import Compression


def import_trace(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    name: str | None = None,
    compress: Compression = "none",
    *,
    options: Mapping[str, object] = MappingProxyType({}),
) -> Path:
    """Import a trace of any known format as a bundle `out/name`; returns its directory, the first
    of `import_all`.

    `paths` is a file or folder, or the several that belong together; `name` is by default what
    the importer calls the run; `compress` packs the bundle's packets; `options` are the importer's,
    as texts or values. Raises InputError if no importer recognises the paths, they cannot be
    used or an option is wrong, OutputError if `out` cannot be written.
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    return import_all([*map(Path, given)], Path(out), name, compress, options=options)[0]


def import_all(
    paths: Path | Sequence[Path],
    out: Path,
    name: str | None = None,
    compress: Compression = "none",
    *,
    options: Mapping[str, object] = MappingProxyType({}),
) -> tuple[Path, ...]:
    """Do `import_trace`, and also import other runs in the same folder, those that no clock and no
    event relates to the first. Return all bundles."""
    given = (paths,) if isinstance(paths, Path) else tuple(paths)
    importer = choose(given, options)
    return import_all_with(importer, given, options, out, name, compress)


def import_all_with(
    importer: Importer,
    paths: Sequence[Path],
    options: Mapping[str, object],
    out: Path,
    name: str | None = None,
    compress: Compression = "none",
    *,
    alone: bool = False,
) -> tuple[Path, ...]:
    """Do `import_all` with this importer. If `alone`, the run is read at once and removed: without
    other runs, and not forced to the disk."""
    from profiler.trace.bundle import BundleWriter, place_bundle

    if name is not None:
        check_run_name(name)
    run = importer.read(paths, importer.values(options))
    others = () if alone else getattr(run, "others", ())
    is_new, folder = not out.exists(), out
    try:
        with scratch_folder(out / "run") as folder:  # a killed process leaves no run
            made = []
            for one, given in ((run, name), *((other, None) for other in others)):
                called = given or run_name_of(one.name) or importer.name
                with BundleWriter.create(
                    folder, called, compress=compress, sync="never" if alone else "finish"
                ) as bundle:
                    info = one.write(bundle)
                    capabilities = tuple(sorted(one.capabilities))
                    made.append(bundle.finish(structs.replace(info, capabilities=capabilities)))
            return tuple(place_bundle(one, out) for one in made)
    except OutputError as error:
        raise OutputError(str(error).replace(str(folder), str(out))) from error
    finally:
        if is_new:
            with suppress(OSError):  # it contains runs
                out.rmdir()


# --- The importers that are there, and which of them a file is for.


GROUP = "profile_sd3.importers"
MIXED = "mixed"
"""The name of the importer of a folder with files of several recorders. Like that of archives, it
is no `IMPORTER`, because it needs all the others."""
ACCEPTS_MIXED = "a folder with files of several of these that are of one run"
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
    return tuple(sorted((*IMPORTERS, *found), key=lambda importer: importer.name))


def of_others() -> tuple[Importer, ...]:
    """The importers of other packages, without repeated names and names of ours."""
    by_name: dict[str, Importer] = {}
    for importer in plugins(GROUP, *_NEEDS):
        by_name.setdefault(importer.name, importer)
    ours = {importer.name for importer in built_in()}
    return tuple(importer for name, importer in by_name.items() if name not in ours)


def importers() -> tuple[Importer, ...]:
    """All importers: those of this package, then those of others."""
    return (*built_in(), *of_others())


def recognised(paths: Sequence[Path]) -> Importer | None:
    """The first importer that recognises every path, None if none does. Raises InputError if one
    cannot be read, or another file must be given instead of it."""
    heads = [head_of(path) for path in paths]
    if len(paths) == 1:  # among several, it may belong to another
        refuse(paths, heads)
    given = list(zip(paths, heads, strict=True))
    matching = (
        one
        for there in (built_in, of_others)  # plug-ins only if none of ours reads it
        for one in there()
        if all(recognised_by(*each, one) for each in given)
    )
    found = next(matching, None)
    if len(paths) == 1 and paths[0].is_dir():
        return _of_folder(paths[0], found)
    if len(paths) == 1 and is_archive(paths[0], heads[0]):
        return _of_archive(paths[0], found)
    if found is None:
        refuse(paths, heads)
    return found


def importer_of(paths: Sequence[Path], options: Mapping[str, object]) -> Importer | None:
    """The importer that recognises every path. If it lacks one of the options, or there is none,
    that which reads such a file only on request, if it has one of them."""
    found = recognised(paths)
    if len(paths) > 1 or (found is not None and options.keys() <= _names_of_options(found)):
        return found
    asked = _on_request(paths[0], head_of(paths[0]))
    return asked if asked is not None and options.keys() & _names_of_options(asked) else found


def _on_request(path: Path, head: bytes) -> Importer | None:
    """The importer that reads such a file only on request."""
    there = (one for one in importers() if getattr(one, "if_asked", False))
    return next((one for one in there if one.recognises(path, head)), None)


def _names_of_options(importer: Importer) -> set[str]:
    return {option.name for option in importer.options}


def _of_folder(folder: Path, whole: Importer | None) -> Importer | None:
    """The importer for a folder: `whole`, which recognises it, unless it contains other importers'
    files, too, or a file instead of a trace, which must be named."""
    from profiler.importers.mixed import contents_of

    contents = contents_of(folder, importers())
    there = contents.files
    if whole is not None and there.keys() <= {whole.name} and not contents.is_missing:
        together = getattr(whole, "together", None)  # older packages' importers lack it
        if together is None or len(together(there.get(whole.name, ()))) < 2:
            return whole
    if not there:
        return None

    def read(paths: Sequence[Path], given: Mapping[str, Any]) -> Any:
        from profiler.importers.mixed import read_folder

        return read_folder(only_path(paths, ACCEPTS_MIXED), importers(), given)

    return _of_all(MIXED, ACCEPTS_MIXED, lambda path, _: path.is_dir(), read)


def _of_archive(path: Path, whole: Importer | None) -> Importer | None:
    """The importer for an archive: `whole`, which reads the archive's only trace in place, else one
    that unpacks it; None if no importer recognises any of its files."""
    holders = [
        found
        for name, head in heads_in(path)
        if (found := next((o for o in importers() if recognised_by(Path(name), head, o)), None))
    ]
    if not holders:
        return None
    alone = whole is not None and [one.name for one in holders] == [whole.name]
    if alone:
        return whole

    def read(paths: Sequence[Path], given: Mapping[str, Any]) -> Any:
        from profiler.importers.archive import read_archive

        return read_archive(only_path(paths, ACCEPTS), recognised, given)

    return _of_all("archive", ACCEPTS, is_archive, read)


def _of_all(
    name: str,
    accepts: str,
    recognises: Callable[[Path, bytes], bool],
    read: Callable[[Sequence[Path], Mapping[str, Any]], Any],
) -> Importer:
    """An importer for files of all importers, with all their options."""
    there, options = importers(), dict[str, Option]()
    for option in (option for one in there for option in one.options):
        options.setdefault(option.name, option)
    capabilities = frozenset[str]().union(*(one.capabilities for one in there))
    return Importer(name, accepts, recognises, read, (*options.values(),), capabilities)


def choose(paths: Sequence[Path], options: Mapping[str, object]) -> Importer:
    """The importer that recognises `paths`; if none does, the only one that has all given
    `options`. Raises InputError, with what the first path looks like, if there is none."""
    found = importer_of(paths, options)
    if found is not None:
        return found
    able = [one for one in importers() if options and options.keys() <= _names_of_options(one)]
    if len(able) == 1:
        return able[0]
    for path in paths:
        if recognised([path]) is None:
            raise unread(path)
    named = ", ".join(map(str, paths))
    raise InputError(f"{named} are of different formats, and no importer reads them as one run")


def unread(path: Path) -> InputError:
    """The error for a path that no importer reads: what it looks like, which formats are read, and
    what to give instead if known."""
    head = head_of(path)
    looks = f"{path} looks like {likeness(path, head)}"
    if is_chrome_of_another(head):
        return InputError(
            f"{looks}: say which of its processes or threads are devices, --import device=REGEX, "
            "with a regular expression that finds their names"
        )
    formats = ", ".join(getattr(one, "title", "") or one.name for one in importers())
    return InputError(
        f"{looks}, which is not read here. Formats: "
        f"bundle, Perfetto trace, {formats}. `profile-sd3 import --list` says which file to give "
        "of each"
    )
