"""`import_trace`: choose the importer of a foreign trace and write its bundle.

    import_trace(Path("sd35.json.gz"), Path("traces"))
    import_trace(Path("rbln_traces"), Path("npu"), options={"pipeline": "sd3", "steps": 28})

Importers are those of `formats.py`, the folders of this package with an `IMPORTER`, and those of
the entry point group `profile_sd3.importers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from msgspec import structs

from profiler.errors import OutputError
from profiler.files import scratch_folder
from profiler.importers.importer import Importer
from profiler.importers.registry import choose
from profiler.text import check_run_name, run_name_of
from profiler.trace.bundle import BundleWriter, place_bundle
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
    """`import_trace`, with the bundles of other runs whose files lie in the same folder behind it:
    what no clock and no event relates to the first."""
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
    leave: Callable[[object], None] | None = None,
    alone: bool = False,
) -> tuple[Path, ...]:
    """`import_all` by this importer, without other runs if `alone`; `leave` is given what it
    read."""
    if name is not None:
        check_run_name(name)
    run = importer.read(paths, importer.values(options))
    if leave is not None:
        leave(run)
    others = () if alone else getattr(run, "others", ())
    is_new, folder = not out.exists(), out
    try:
        with scratch_folder(out / "run") as folder:  # of a process that is killed no run is seen
            made = []
            for one, given in ((run, name), *((other, None) for other in others)):
                called = given or run_name_of(one.name) or importer.name
                with BundleWriter.create(folder, called, compress=compress) as bundle:
                    info = one.write(bundle)
                    capabilities = tuple(sorted(one.capabilities))
                    made.append(bundle.finish(structs.replace(info, capabilities=capabilities)))
            return tuple(place_bundle(one, out) for one in made)
    except OutputError as error:
        raise OutputError(str(error).replace(str(folder), str(out))) from error
    finally:
        if is_new:
            with suppress(OSError):  # it has runs
                out.rmdir()
