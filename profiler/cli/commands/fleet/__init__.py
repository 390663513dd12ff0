"""Shared options and output of the `profile-sd3 fleet` subcommands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli.subcommands import Subcommand, arg, command_group, opt
from profiler.cli.terminal import progress, tell
from profiler.errors import InputError

if TYPE_CHECKING:
    from profiler.cli.commands.analyze import AnalyzeOptions
    from profiler.cli.commands.import_ import ImportOptions
    from profiler.fleet.add import Done


# --- Arguments and options that several subcommands of `fleet` have.


DATASET_PLACE = arg("DATASET  Folder of the data set, or a URL that fsspec knows (s3://…).")
WHERE_RUNS = opt(
    "--where KEY=VALUE  Only runs whose column, `time` or `label.NAME` is so: =, !=, <, <=, "
    ">, >=, ~ (contains), and the value `unknown`; may be repeated."
)
ASSUME_SAME = opt(
    "--assume-same FIELD  Take this field of the identity to agree where nobody recorded it; "
    "may be repeated."
)
BAD_QUALITY = opt("--bad-quality  Take runs with drops, residual or costly tracing, too.")
LOCAL_WORKERS = opt(
    "--workers N  Work in N processes of this machine; 0: in this one.", default=0, min=0
)
SCHEDULER = opt(
    "--scheduler ADDRESS  Work on the Dask cluster of this scheduler, such as "
    "tcp://head:8786: one you trust, whose workers see the same paths.",
    default="",
)


# --- `import` and `analyze` of several runs, each by itself, as the commands do it.


def analyze_each(options: AnalyzeOptions) -> None:
    """Analyze every run of the paths, all of a folder. Raises InputError, after all others are
    done, if some could not be read."""
    from profiler.fleet.add import Done, Workers, analyze_many, found_runs
    from profiler.text import duration

    workers = Workers(options.workers, options.scheduler)
    places, failed = found_runs([options.path, *options.more], {})
    with progress("analyzing", after_s=0.5) as show:
        done = analyze_many(places, workers, pages=not options.no_html, say=_said(show))
    for one in done:
        if not one.reason:
            tell("  ".join([one.place, duration(one.end_to_end_ns), *one.written]))
    _tell_failed([*done, *(Done(one.place, reason=one.reason) for one in failed)])


def import_each(options: ImportOptions, paths: Sequence[Path], given: Mapping[str, str]) -> None:
    """Import each of `paths` as a separate run, with the importers' options that are `given`.
    Raises InputError, after all others are done, if some could not be read."""
    from profiler.fleet.add import Workers, import_many

    workers = Workers(options.workers, options.scheduler)
    with progress("importing", after_s=0.5) as show:
        done = import_many(paths, options.out, given, workers, say=_said(show))
    for bundle in (bundle for one in done for bundle in one.written):
        tell(bundle)
    _tell_failed(done)


def _said(show: Callable[[str], None]) -> Callable[[int, int, Done], None]:
    return lambda number, of, done: show(f"{number:,} of {of:,}: {done.place}")


def _tell_failed(done: Sequence[Done]) -> None:
    failed = [one for one in done if one.reason]
    for one in failed:
        where = "" if one.reason.startswith(one.place) else f"{one.place}: "
        tell(f"left out: {where}{one.reason}", err=True)
    if failed:
        raise InputError(
            f"{len(failed):,} of {len(done):,} could not be read: what is wrong with each is said "
            "above"
        )


# --- `profile-sd3 fleet`: the subcommands that work on data sets of many runs.


fleet = command_group("Keep many runs in a data set, and ask what changed.", __name__)

SUBCOMMAND = Subcommand(fleet, place=110)
