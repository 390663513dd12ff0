"""`profile-sd3 import`: turn another profiler's trace into a bundle.

Its options are the command's, followed by those that the importers declare. Importers of other
packages are loaded only for an import, so typer does not know their options: `_split` finds them
between the paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

import typer

from profiler.cli import options as shared
from profiler.cli.runs import DAMAGED_EXIT, damage_line, tell_failed
from profiler.cli.subcommands import Declared, Subcommand, arg, cli_options, opt
from profiler.cli.terminal import keep_to_the_end, of_many, progress, tell
from profiler.errors import InputError
from profiler.importers.importer import Importer, Option
from profiler.importers.importing import built_in

_METAVARS: dict[type, str] = {str: "NAME", int: "N", Path: "PATH"}


def _of_importers() -> dict[str, Declared]:
    """Return a text option for each option that importers of this package declare."""
    by_name: dict[str, list[tuple[Importer, Option]]] = {}
    for importer in built_in():
        for option in importer.options:
            by_name.setdefault(option.name, []).append((importer, option))
    return {name: _declared(name, declaring) for name, declaring in by_name.items()}


def _declared(name: str, declaring: Sequence[tuple[Importer, Option]]) -> Declared:
    meanings = (f"{importer.name.upper()}: {option.meaning}." for importer, option in declaring)
    declared: Declared = opt(f"--{name} {_METAVARS[declaring[0][1].type]}  {' '.join(meanings)}")
    return declared


@cli_options
class ImportOptions:
    """Options of `profile-sd3 import`."""

    words: list[str] = arg(
        "PATH  A file or folder in a format that --list names; several if they are of one run.",
        default=None,
    )
    out: Path = shared.BUNDLE_FOLDER
    name: str | None = opt("NAME  Name of the run.  [default: the file's name]")
    compress: str = shared.COMPRESS
    list_formats: bool = opt("--list  Print the formats, and what each contains and lacks.")
    every: bool = opt("--all  Import each path as a run of its own.")
    workers: int = shared.LOCAL_WORKERS
    scheduler: str = shared.SCHEDULER
    strict: bool = shared.STRICT


def import_(options: ImportOptions, **of_importers: str | None) -> None:
    """Import a trace that another profiler recorded.

    Makes a run of it, with one file per submodule call. For torch, record with
    torch.profiler.profile(with_stack=True, record_shapes=True): submodule calls come from the
    Python stacks. Importers that other packages add may take further options.
    """
    if options.list_formats:
        for line in _formats():
            tell(line)
        return
    from profiler.analysis.dropped_data import beside
    from profiler.importers.importing import import_all
    from profiler.trace.compression import check_compression
    from profiler.trace.manifest import MANIFEST_NAME, read_manifest

    packing = check_compression(options.compress)
    paths, further = _split(options.words)
    given = {key: value for key, value in of_importers.items() if value is not None} | further
    if options.every or options.workers or options.scheduler:
        _import_each(options, paths, given)
        return
    keep_to_the_end()
    with progress(f"importing {', '.join(map(str, paths))}", of=paths[0]):
        bundles = import_all(paths, options.out, options.name, packing, options=given)
    for bundle in bundles:
        tell(bundle)
    # Say which files of the folder are not in the bundle, and why.
    for line in beside(read_manifest(bundles[0] / MANIFEST_NAME).info):
        tell(line, err=True)
    if options.strict:
        _exit_if_damaged(bundles)


def _import_each(options: ImportOptions, paths: Sequence[Path], given: Mapping[str, str]) -> None:
    """Import each of `paths` as a separate run, with the importers' options that are `given`.
    Raises InputError, after all others are done, if some could not be read."""
    from profiler.fleet.add import import_many
    from profiler.fleet.workers import Workers

    workers = Workers(options.workers, options.scheduler)
    with progress("importing", after_s=0.5) as show:
        done = import_many(paths, options.out, given, workers, say=of_many(show))
    for bundle in (bundle for one in done for bundle in one.written):
        tell(bundle)
    tell_failed(done, "left out", "read")
    if options.strict:
        _exit_if_damaged([bundle for one in done for bundle in one.written])


def _exit_if_damaged(bundles: Sequence[Path | str]) -> None:
    """Say which bundles are of damaged recordings; raises typer.Exit(3) if any is."""
    from profiler.trace.manifest import MANIFEST_NAME, read_manifest

    infos = {Path(bundle): read_manifest(Path(bundle) / MANIFEST_NAME).info for bundle in bundles}
    lines = [line for bundle, info in infos.items() for line in damage_line(bundle, info)]
    for line in lines:
        tell(line, err=True)
    if lines:
        raise typer.Exit(DAMAGED_EXIT)


def _split(words: Sequence[str]) -> tuple[list[Path], dict[str, str]]:
    """Paths, and the options between them that typer does not know: `--key value` or
    `--key=value`. Raises InputError if there is no path or an option has no value."""
    paths: list[Path] = []
    options: dict[str, str] = {}
    rest: Iterator[str] = iter(words)
    for word in rest:
        if not word.startswith("--"):
            paths.append(Path(word))
            continue
        key, has_value, value = word[2:].partition("=")
        options[key] = value if has_value else next(rest, "")
        if not options[key]:
            raise InputError(f"--{key} has no value: give one behind it")
    if not paths:
        raise InputError(
            "no path was given: name what to import (`profile-sd3 import --list` says what can be)"
        )
    return paths, options


def _formats() -> Iterator[str]:
    """A paragraph for each importer, those of other packages too, and one on mixed folders."""
    from profiler.analysis.dropped_data import not_recorded, recorded
    from profiler.importers.importing import ACCEPTS_MIXED, MIXED, importers

    for importer in importers():
        yield f"{importer.name}: {importer.accepts}"
        paragraphs = {
            "versions seen": importer.seen,
            "tells": "; ".join(recorded(importer.capabilities)),
            "cannot tell": "; ".join(not_recorded(importer.capabilities)),
            "options": ", ".join(f"--{option.name}" for option in importer.options),
        }
        for title, text in paragraphs.items():
            if text:
                yield from wrap(
                    f"{title}: {text}", 80, initial_indent="  ", subsequent_indent="    "
                )
    yield f"{MIXED}: {ACCEPTS_MIXED}"


_FURTHER = _of_importers()

SUBCOMMAND = Subcommand(
    import_,
    place=30,
    settings={"ignore_unknown_options": True},
    about_runs=True,
    further=_FURTHER,
    examples=(
        ("profile-sd3 import trace.json.gz", "a file of torch.profiler"),
        ("profile-sd3 import report.sqlite", "what `nsys export --type sqlite` wrote"),
        ("profile-sd3 import --list", "all formats"),
    ),
    panels={
        "What to show": "list_formats",
        "Files": "out name every compress",
        "What the file does not say": " ".join(_FURTHER),
    },
)
