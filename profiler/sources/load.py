"""Whatever names a run → `Run`.

run = load("traces/")                    # newest bundle below the folder
run = load("traces/20261121-093000-sd3") # one bundle
run = load("any.pb")                     # any Perfetto trace: its slices are commands
run = load("parquet_folder")             # what `write_parquet` wrote
run = load("sd35.json.gz")               # what another profiler wrote
run = load("rbln_traces", import_options={"pipeline": "sd3", "steps": 28})
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from profiler.run.load import load_bundle, load_trace, read_parquet
from profiler.run.run import Run
from profiler.sources.imports import Imports
from profiler.sources.resolve import Found, Kind, Source, as_paths, check_kept, resolve

__all__ = ["load", "load_found", "load_source"]


def load(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    import_options: Mapping[str, object] = MappingProxyType({}),
    out: str | os.PathLike[str] | None = None,
) -> Run:
    """Load one run: a bundle, the newest of a folder of bundles (`run.others` names the others), a
    `.pb`, a Parquet folder, or what an importer recognises: a file, a folder, or the several files
    of one run. `import_options` are the importer's, such as `{"pipeline": "sd3", "steps": 28}`.

    What is imported lies in a temporary folder until `run.close()`, or until the run is no longer
    used; the folder `out` keeps it. Raises InputError, in one sentence with what to do, where that
    cannot be.
    """
    (found,) = resolve([as_paths(path)], import_options)
    return load_found(found, out)


def load_found(found: Found, out: str | os.PathLike[str] | None = None) -> Run:
    """The newest run of `found`; it knows the others, and holds what was imported for it, where no
    folder `out` keeps that. Raises InputError for an `out` without anything to keep."""
    check_kept([found], out)
    imports = Imports(None if out is None else Path(out))
    try:
        run = load_source(imports.ready(found.newest))
    except BaseException:
        imports.close()
        raise
    if imports.is_empty and not found.others:
        return run
    return replace(run, others=found.others, held=None if imports.is_empty else imports)


def load_source(source: Source) -> Run:
    """The run of a source that is no foreign one. Raises InputError where it cannot be read."""
    if source.kind is Kind.TRACE:
        return load_trace(source.path)
    if source.kind is Kind.PARQUET:
        return read_parquet(source.path)
    return load_bundle(source.path)
