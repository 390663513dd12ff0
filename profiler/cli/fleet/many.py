"""`import` and `analyze` of several runs, each by itself, as the commands do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cli.fleet.options import workers_of
from profiler.cli.progress import progress
from profiler.cli.terminal import tell
from profiler.errors import InputError

if TYPE_CHECKING:
    from profiler.fleet.many import Done

__all__ = ["analyze_each", "import_each"]


def analyze_each(paths: Sequence[Path], local: int, scheduler: str | None, *, pages: bool) -> None:
    """Analyze every run at `paths`, all of a folder. Raises InputError, after all others are done,
    where some could not be."""
    from profiler.fleet.adding import found_runs
    from profiler.fleet.many import Done, analyze_many
    from profiler.text import duration

    workers = workers_of(local, scheduler)
    places, failed = found_runs(paths, {})
    with progress("analyzing", after_s=0.5) as show:
        done = analyze_many(places, workers, pages=pages, say=_said(show))
    for one in done:
        if not one.reason:
            tell("  ".join([one.place, duration(one.end_to_end_ns), *one.written]))
    _tell_failed([*done, *(Done(one.place, reason=one.reason) for one in failed)])


def import_each(
    paths: Sequence[Path],
    out: Path,
    options: Mapping[str, str],
    local: int,
    scheduler: str | None,
) -> None:
    """Import each of `paths` as a run of its own. Raises InputError, after all others are done,
    where some could not be."""
    from profiler.fleet.many import import_many

    workers = workers_of(local, scheduler)
    with progress("importing", after_s=0.5) as show:
        done = import_many(paths, out, options, workers, say=_said(show))
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
