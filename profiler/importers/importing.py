"""`import_trace`: choose the importer of a foreign trace and write its bundle.

    import_trace(Path("sd35.json.gz"), Path("traces"))
    import_trace(Path("rbln_traces"), Path("npu"), options={"pipeline": "sd3", "steps": 28})

Importers are the folders of this package with an `IMPORTER`, and those of the entry point group
`profile_sd3.importers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import structs

from profiler.importers.importer import ForeignRun, Importer
from profiler.importers.registry import choose
from profiler.options import check_run_name, run_name_of
from profiler.trace.bundle import BundleWriter
from profiler.trace.compression import Compression


def import_trace(
    paths: Path | Sequence[Path],
    out: Path,
    name: str | None = None,
    compress: Compression = "none",
    *,
    options: Mapping[str, object] = MappingProxyType({}),
) -> Path:
    """Import a trace of any known format as a bundle `out/name`; returns its directory, the first
    of `import_all`.

    `paths` is a file or folder, or the several that belong together; `name` is by default what
    the importer calls the run; `compress` packs the bundle's packets; `options` are the importer's,
    as texts or values. Raises InputError where no importer recognises the paths, they cannot be
    used or an option is wrong, OutputError where `out` cannot be written.
    """
    return import_all(paths, out, name, compress, options=options)[0]


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


def import_with(
    importer: Importer,
    paths: Sequence[Path],
    options: Mapping[str, object],
    out: Path,
    name: str | None = None,
    compress: Compression = "none",
    *,
    leave: Callable[[object], None] | None = None,
) -> Path:
    """The run of `import_trace` by this importer, without others beside it; `leave` is given what
    it read."""
    run = _read(importer, paths, options, name, leave)
    return _written(run, name or run_name_of(run.name) or importer.name, out, compress)


def import_all_with(
    importer: Importer,
    paths: Sequence[Path],
    options: Mapping[str, object],
    out: Path,
    name: str | None = None,
    compress: Compression = "none",
    *,
    leave: Callable[[object], None] | None = None,
) -> tuple[Path, ...]:
    """`import_all` by this importer; `leave` is given what it read."""
    run = _read(importer, paths, options, name, leave)
    named = [(run, name), *((other, None) for other in getattr(run, "others", ()))]
    return tuple(
        _written(one, called or run_name_of(one.name) or importer.name, out, compress)
        for one, called in named
    )


def _read(
    importer: Importer,
    paths: Sequence[Path],
    options: Mapping[str, object],
    name: str | None,
    leave: Callable[[object], None] | None,
) -> ForeignRun:
    if name is not None:
        check_run_name(name)
    run = importer.read(paths, importer.values(options))
    if leave is not None:
        leave(run)
    return run


def _written(run: ForeignRun, name: str, out: Path, compress: Compression) -> Path:
    with BundleWriter.create(out, name, compress=compress) as bundle:
        info = run.write(bundle)
        return bundle.finish(structs.replace(info, capabilities=tuple(sorted(run.capabilities))))
