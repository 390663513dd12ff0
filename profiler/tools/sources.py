"""`load` and `analyze`: read a run from any path and return its analysis.

    run = load("traces/")                    # newest bundle below the folder
    run = load("traces/20261121-093000-sd3") # one bundle
    run = load("any.pb")                     # any Perfetto trace: its slices are commands
    run = load("parquet_folder")             # written by `write_parquet`
    run = load("sd35.json.gz")               # written by another profiler
    run = load("rbln_traces", import_options={"pipeline": "sd3", "steps": 28})

Folders are searched two levels deep. Foreign traces are imported into a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

from msgspec import Struct, field

from profiler.analysis.analyze import analyze as analyze_run
from profiler.analysis.context import Selection
from profiler.analysis.device_profiles import find_profiles, read_profiles
from profiler.analysis.memory import sizes_by_device
from profiler.analysis.result import Analysis
from profiler.errors import InputError, OutputError
from profiler.run.health import checked
from profiler.run.load import load_bundle, load_trace
from profiler.run.run import Run, is_parquet_run, read_parquet
from profiler.text import name_list
from profiler.trace.bundle import Unfinished, search
from profiler.trace.manifest import ranks_of_newest

if TYPE_CHECKING:
    from profiler.compare.compare import Comparison
    from profiler.importers.importer import Importer
    from profiler.prediction.predict import Prediction
    from profiler.prediction.scenario import Scenario

# --- Resolve a user's path to runs, in one place.
#
# Bundle, folder of bundles (searched two levels deep), `.pb`, Parquet folder, or the files of
# another profiler that an importer recognises.


class Kind(Enum):
    """How a run is stored."""

    BUNDLE = "bundle"
    TRACE = "trace"
    PARQUET = "parquet"
    FOREIGN = "foreign"


class Foreign(Struct, frozen=True):
    """The files of one run of another profiler, its importer, and the importer's options."""

    importer: Importer
    paths: tuple[Path, ...]
    options: Mapping[str, object] = field(default_factory=dict)


class Source(Struct, frozen=True):
    """One run: its path and form. `foreign` says how a foreign one is imported; `origin` is where a
    temporarily imported bundle came from."""

    path: Path
    kind: Kind
    foreign: Foreign | None = None
    origin: Path | None = None

    @property
    def place(self) -> Path:
        """The path of the run as the user knows it."""
        return self.origin or self.path


class Found(Struct, frozen=True):
    """The runs that `given` resolves to, newest first, at least one; and the unfinished ones."""

    given: Path
    sources: tuple[Source, ...]
    unfinished: tuple[Unfinished, ...] = ()

    @property
    def newest(self) -> Source:
        """The newest run, for commands that take one."""
        return self.sources[0]

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the other runs, relative to `given`."""
        return tuple(str(source.path.relative_to(self.given)) for source in self.sources[1:])


def resolve(
    names: Sequence[Sequence[Path]], options: Mapping[str, object] = MappingProxyType({})
) -> list[Found]:
    """Resolve each of `names`, one path or the several files of one foreign run, to runs.

    `options` go to the importers of foreign runs. Raises InputError, in one sentence, for what
    cannot be read, has no run, or is not recognised by any importer, and for options that no
    importer used here has, or whose value is wrong.
    """
    found = [_found(tuple(paths), options) for paths in names]
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


def _found(paths: tuple[Path, ...], options: Mapping[str, object]) -> Found:
    path = paths[0]
    if len(paths) > 1:
        found = _of_importer(paths, options)
        if found is None:
            named = ", ".join(map(str, paths[:3]))
            raise InputError(
                f"{named} are no files of one run that an importer reads: give one run, and "
                "compare several with `profile-sd3 diff`"
            )
        return found
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return _folder(path, options)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: give a bundle or a folder of bundles") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is neither a file nor a folder: give a bundle or a trace")
    found = _of_importer(paths, options)
    if found is not None:
        return found
    from profiler.importers.importer import head_of
    from profiler.importers.importing import unread
    from profiler.importers.refusals import producer
    from profiler.trace.compression import begins_with_packet

    head = head_of(path)
    if (head and not begins_with_packet(head)) or producer(head) is not None:
        raise unread(path)
    return Found(path, (Source(path, Kind.TRACE),))


def _folder(path: Path, options: Mapping[str, object]) -> Found:
    if is_parquet_run(path):
        return Found(path, (Source(path, Kind.PARQUET),))
    bundles = search(path)
    if not bundles.whole and not bundles.is_one_run:
        found = _of_importer((path,), options)
        if found is not None:
            return found
    if not bundles.whole and not bundles.unfinished:
        from profiler.importers.refusals import likeness

        raise InputError(
            f"no bundle in {path}, {likeness(path, b'')}: record one with `profile-sd3 run --out "
            f"{path}`, or name a file that can be imported (`profile-sd3 import --list`)"
        )
    bundles.check()
    sources = [Source(bundle, Kind.BUNDLE) for bundle in bundles.whole]
    ranks = ranks_of_newest(bundles.whole)
    if len(ranks) > 1:  # together they are one run
        from profiler.importers.formats import BUNDLES

        joined = Source(path, Kind.FOREIGN, Foreign(BUNDLES, tuple(ranks)))
        sources = [joined, *(source for source in sources if source.path not in ranks)]
    return Found(path, tuple(sources), bundles.unfinished)


def _of_importer(paths: tuple[Path, ...], options: Mapping[str, object]) -> Found | None:
    """The run of the importer that reads the paths with these options, if one does."""
    # These modules know every format, which no bundle needs.
    from profiler.importers.importing import importer_of

    importer = importer_of(paths, options)
    return None if importer is None else _foreign(importer, paths)


def _foreign(importer: Importer, paths: tuple[Path, ...]) -> Found:
    return Found(paths[0], (Source(paths[0], Kind.FOREIGN, Foreign(importer, paths)),))


def _given(found: Found, options: Mapping[str, object]) -> Found:
    """Give a foreign run those of the options that its importer has."""
    source = found.newest
    if source.foreign is None:
        return found
    importer = source.foreign.importer
    names = {option.name for option in importer.options}
    values = importer.values({name: one for name, one in options.items() if name in names})
    foreign = Foreign(importer, source.foreign.paths, values)
    return Found(found.given, (Source(source.path, source.kind, foreign),))


def check_kept(found: Sequence[Found], out: str | os.PathLike[str] | None) -> None:
    """Raise InputError if a folder for imports is given, but nothing is imported."""
    if out is not None and all(each.newest.foreign is None for each in found):
        raise InputError(f"--out keeps what is imported, and {found[0].given} is not: leave it out")


def as_paths(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Return one path or several as a tuple of paths."""
    if isinstance(given, str | os.PathLike):
        return (Path(given),)
    return tuple(map(Path, given))


# --- Imports for as long as they are needed: foreign traces as bundles in a folder that goes again.


class Imports:
    """Imports foreign sources into the folder `keep`, else into a temporary one, which is removed
    by `close`, when this object is collected, or at the interpreter's exit."""

    def __init__(self, keep: Path | None = None) -> None:
        self._keep = keep
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
        """Copy without the temporary folder, which belongs to this process."""
        return Imports, (self._keep,)

    @property
    def is_empty(self) -> bool:
        """Whether there is no temporary folder."""
        return self._folder is None

    def ready(self, source: Source) -> Source:
        """Return `source` itself, or for a foreign one the bundle imported from it. Raises
        InputError if it cannot be imported, OutputError if nothing can be written."""
        if source.kind is not Kind.FOREIGN or source.foreign is None:
            return source
        from profiler.importers.importing import import_all_with

        foreign = source.foreign
        out = self._keep or self._temporary()
        given = (foreign.importer, foreign.paths, foreign.options, out)
        bundle, *_ = import_all_with(*given, alone=self._keep is None)
        return Source(bundle, Kind.BUNDLE, origin=None if self._keep else source.path)

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
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


# --- Whatever names a run → `Run`.


def load(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    import_options: Mapping[str, object] = MappingProxyType({}),
    out: str | os.PathLike[str] | None = None,
) -> Run:
    """Load one run: a bundle, the newest of a folder of bundles (`run.others` names the others), a
    `.pb`, a Parquet folder, or what an importer recognises: a file, a folder, or the several files
    of one run. `import_options` are the importer's, such as `{"pipeline": "sd3", "steps": 28}`.

    An imported run is in a temporary folder until `run.close()`, or until the run is no longer
    used; the folder `out` keeps it. Raises InputError, in one sentence with what to do, if the run
    cannot be loaded.
    """
    (found,) = resolve([as_paths(path)], import_options)
    return load_found(found, out)


def load_found(found: Found, out: str | os.PathLike[str] | None = None) -> Run:
    """Load the newest run of `found`; it knows the others, and owns its temporary import unless a
    folder `out` keeps that. Raises InputError for an `out` if nothing is imported."""
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
    """Load the run of a source that is not foreign, and check it if it was not checked yet. Raises
    InputError if it cannot be read."""
    load = {Kind.TRACE: load_trace, Kind.PARQUET: read_parquet}.get(source.kind, load_bundle)
    return checked(load(source.path))


# --- `profiler.analyze`: from a path or a run to an `Analysis`, for scripts and notebooks.


_Runs = Run | str | os.PathLike[str] | Sequence[Run | str | os.PathLike[str]]
_Names = str | Iterable[str]


def analyze(
    source: Run | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    stage: _Names = (),
    submodule: _Names = (),
    device: _Names = (),
    step: int | str | Iterable[int | str] = (),
    device_profile: str | os.PathLike[str] | None = None,
    device_memory: int | str | Mapping[str, int | str] = MappingProxyType({}),
    import_options: Mapping[str, object] = MappingProxyType({}),
) -> Analysis:
    """Analyze a run: one that is loaded, or the one that `load(source)` would load.

    `stage`, `submodule`, `device` and `step` (7, "0-3,7", "last") limit the tables to what they
    name, as the options of `profile-sd3 analyze` do: several in a list, or with commas.
    `device_profile` is a file that `benchmark-device` wrote; without it the one in or beside the
    bundle counts, if there is one. `device_memory` is the memory of all devices or by device, for
    the head-room: bytes or a text ("16GiB"). `import_options` are for the importer, if `source`
    is another profiler's. Raises InputError, in one sentence, if the run cannot be read or does
    not have what is named.
    """
    profiles = read_profiles(Path(device_profile)) if device_profile is not None else ()
    if isinstance(source, Run):
        run = source
    else:
        (found,) = resolve([as_paths(source)], import_options)
        run = load_found(found)
        profiles = profiles or find_profiles(found.newest.path)
    selection = Selection(*map(name_list, (stage, submodule, device, step)))
    return analyze_run(run, selection, profiles, sizes_by_device(device_memory))


def diff(base: _Runs, new: _Runs) -> Comparison:
    """Compare `new` with `base`: each a run, the path of one, or a list of these, whose scatter
    then distinguishes changes from noise. Raises InputError if a run cannot be read or a side has
    none."""
    from profiler.compare.compare import compare_runs

    return compare_runs(_runs(base), _runs(new))


def predict(
    source: Run | str | os.PathLike[str], scenario: Scenario, pipeline: int | None = None
) -> Prediction:
    """Predict what a run, or the run at a path, would take under `scenario`
    (`profiler.prediction.scenario.Scenario`). Of several pipeline calls `pipeline` is the number of
    the one to start from. Raises InputError if the run cannot answer it."""
    from profiler.prediction.predict import predict as predict_run

    run = source if isinstance(source, Run) else load(source)
    return predict_run(run, analyze_run(run), scenario, pipeline)


def _runs(given: _Runs) -> list[Run]:
    several = [given] if isinstance(given, Run | str | os.PathLike) else given
    return [each if isinstance(each, Run) else load(each) for each in several]


# --- The default path of a run's page.


_HEAD = 4096  # bytes in which our pages name us


def page_path(source: Source, *, filtered: bool, folder: Path = Path()) -> Path:
    """Return the default path of a run's page: `report.html` in a bundle, `report.selection.html`
    for a part of it; for a single trace or a foreign run, its name with that suffix in `folder`, by
    default the current one.

    Raises OutputError if there is a file of that name that is not our page.
    """
    name = "report.selection.html" if filtered else "report.html"
    given = source.origin or (source.path if source.kind is Kind.TRACE else None)
    if given is None:
        return source.path / name
    whole = given if given.name not in ("", "..") else given.resolve()
    from profiler.importers.importer import head_of

    stem = whole.name.removesuffix(".gz")
    path = folder / f"{Path(stem).stem if given.is_file() else stem}.{name}"
    if path.is_file() and b"profile-sd3" not in head_of(path)[:_HEAD]:
        raise OutputError(f"{path} is there already and is no page of ours: give --html FILE")
    return path
