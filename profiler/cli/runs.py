"""Runs as commands take them: recorded or foreign, whole or damaged, one or many.

with opened([path], importing, out) as (found, imports):
    run = load_as_recorded(found[0].newest, imports, notes)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from profiler.cli.terminal import return_freed, tell
from profiler.errors import InputError
from profiler.text import key_values

if TYPE_CHECKING:
    from profiler.run.run import Run
    from profiler.tools.sources import Found, Imports, Source
    from profiler.trace.events import Drop
    from profiler.trace.manifest import RunInfo

_NAMED = 4  # other runs listed by name


@contextmanager
def opened(
    paths: Iterable[Path], importing: Iterable[str] | None, out: Path | None
) -> Iterator[tuple[list[Found], Imports]]:
    """Yield the runs at each of `paths`, and the importer of foreign ones: it uses the options
    `importing` and writes into the folder `out`, or into one that is removed after the block.

    Raises InputError for what cannot be read, and for an `out` if nothing is imported.
    """
    from profiler.tools.sources import Imports, check_kept, resolve

    found = resolve([[path] for path in paths], key_values(importing, "--import", "pipeline=sd3"))
    check_kept(found, out)
    with Imports(out) as imports:
        yield found, imports


def other_runs(found: Found) -> Iterator[str]:
    """Yield a line with the older runs of a folder, and one for each that is left out."""
    others = found.others
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        names = ", ".join(others[:_NAMED])
        yield f"the newest of {len(others) + 1} runs in {found.given}; others: {names}{more}"
    yield from left_out(found)


def left_out(found: Found) -> Iterator[str]:
    """Yield a line for each omitted run: one that was killed, is still running or has no call. The
    newest run may be one of them."""
    from profiler.trace.bundle import State

    for entry in found.unfinished:
        advice = f"`profile-sd3 merge {entry.path}`"
        if entry.state is State.RUNNING:
            yield f"the run in {entry.path} is still going on and was left out"
        elif entry.state is State.EMPTY:
            yield f"{entry.path} holds no call and was left out: its run ended before its first"
        elif entry.state is State.CUT:
            yield f"{entry.path} has not ended and was left out: {advice}"
        else:
            yield f"{entry.path} has no manifest and was left out: {advice}"


def load_as_recorded(
    source: Source, imports: Imports, notes: list[str], *, whole: bool = False
) -> Run:
    """Load a run, and add to `notes` what its manifest lists as missing, as for a run that was
    killed and merged. Raises InputError if it has no call, or files were damaged later; with
    `whole` also for files that were missing already."""
    from profiler.analysis.dropped_data import what_happened
    from profiler.trace.events import DropKind

    run = _loaded(imports.ready(source))
    damaged = damaged_files(run) if whole else unexpected_damage(run)
    if damaged:
        raise InputError(
            f"{source.place} is not whole ({damaged[0].where}: {what_happened(damaged[0])}): copy "
            "it again or record the run again"
        )
    if run.calls.is_empty():
        raise InputError(
            f"{source.place} holds no call of a submodule: give a bundle, or what another profiler "
            "recorded of a pipeline"
        )
    missing = [
        drop for drop in run.info.drops if _is_damage(drop) or drop.kind == DropKind.ABORTED_RUN
    ]
    notes += not_whole(source.place, missing)
    return run


def not_whole(place: Path, drops: Iterable[Drop]) -> Iterator[str]:
    """Yield a line for each thing that is missing of the run at `place`."""
    from profiler.analysis.table_text import worded_note

    for drop in drops:
        yield f"not whole: {place}: {drop.where}: {worded_note(drop.detail)}"


_TRACK = 40  # characters of a track's name


def as_host_work(source: Source) -> tuple[Source, list[str]]:
    """Treat a Perfetto trace without a call of ours as one to import, with all slices as host work;
    the second value is a line that says so. Any other run stays as it is."""
    from profiler.importers.formats import PERFETTO
    from profiler.tools.sources import Foreign, Kind, load_source
    from profiler.tools.sources import Source as Given
    from profiler.trace.manifest import MANIFEST_NAME

    place = source.place
    if source.kind is not Kind.TRACE or (place.parent / MANIFEST_NAME).is_file():
        return source, []
    run = load_source(source)
    if not run.calls.is_empty() or damaged_files(run):
        return source, []
    tracks = run.commands["track"].drop_nulls().head(1).to_list()
    such = f"tracks such as {tracks[0][:_TRACK]}" if tracks else "some tracks"
    line = (
        f"All slices count as host work. If {such} are devices, give --import device=REGEX; for "
        "RBLN's profiler, use profile-sd3 import."
    )
    return Given(source.path, Kind.FOREIGN, Foreign(PERFETTO, (source.path,))), [line]


def load_calls(source: Source) -> Run:
    """Load a run, which may be damaged. Raises InputError if it has no call."""
    run = _loaded(source)
    if run.calls.is_empty():
        check_whole(run, source)
        raise InputError(_without_calls(source))
    return run


def _loaded(source: Source) -> Run:
    """Load a run. What importing it and reading it freed is returned to the system."""
    from profiler.tools.sources import load_source

    return_freed()
    run = load_source(source)
    return_freed()
    return run


def damaged_files(run: Run) -> list[Drop]:
    """Return the files of `run` that are cut, missing or changed."""
    return [drop for drop in run.drops if _is_damage(drop)]


def _is_damage(drop: Drop) -> bool:
    """Whether a file is cut, missing or changed."""
    from profiler.trace.events import DropKind

    return drop.kind in (DropKind.TRUNCATED_FILE, DropKind.MISSING_FILE, DropKind.CHANGED_FILE)


def unexpected_damage(run: Run) -> list[Drop]:
    """Return the files of `run` that are cut, missing or changed and not listed in its manifest;
    the manifest of a run that was killed and merged lists what it lacks."""
    return [drop for drop in damaged_files(run) if drop not in run.info.drops]


def check_whole(run: Run, source: Source) -> None:
    """Raise InputError, with one sentence, if files of the run were cut, removed or changed after
    its manifest was written."""
    damaged = unexpected_damage(run)
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        raise InputError(_damage(source, damaged[0]) + more)


def _damage(source: Source, drop: Drop) -> str:
    from profiler.analysis.dropped_data import what_happened
    from profiler.tools.sources import Kind
    from profiler.trace.events import DropKind

    path = source.place if source.kind is Kind.TRACE else source.place / drop.where
    if drop.kind == DropKind.MISSING_FILE:
        return f"{path} is missing, so the report lacks it: copy it back or record the run again"
    return f"{path} is not whole ({what_happened(drop)}): copy it again or record the run again"


def _without_calls(source: Source) -> str:
    from profiler.tools.sources import Kind

    place = source.place
    if source.kind is not Kind.TRACE:
        return f"{place} holds no call: the run ended before its first, record it again"
    return f"{place} holds no call of its run: give the whole bundle {place.parent}"


def tell_failed(done: Sequence[Any], what: str, verb: str, noun: str = "") -> None:
    """Print the `place` and `reason` of each failed entry. Raises InputError if there is any."""
    from profiler.text import counted

    failed = [one for one in done if one.reason]
    for one in failed:
        where = "" if one.reason.startswith(one.place) else f"{one.place}: "
        tell(f"{what}: {where}{one.reason}", err=True)
    if failed:
        count = counted(len(failed), noun) if noun else f"{len(failed):,}"
        raise InputError(
            f"{count} of {len(done):,} could not be {verb}: what is wrong with each is said above"
        )


# --- Recordings that are damaged according to the check of their events against each other.


DAMAGED_EXIT = 3
"""Exit code of `--strict` for a damaged recording."""


def damage_of(info: RunInfo) -> str:
    """Describe the damage that makes the times of a recording useless; "" if there is none."""
    from profiler.analysis.health import notes_of, sentence_of, worst_damage

    note = worst_damage(notes_of(info))
    return "" if note is None else str(sentence_of(note))


def damage_line(place: Path, info: RunInfo) -> list[str]:
    """Return a line saying that the run at `place` is a damaged recording; none if it is not."""
    damage = damage_of(info)
    return [f"damaged recording: {place}: {damage}"] if damage else []


def refuse_damaged(place: Path, info: RunInfo, wanted: str) -> None:
    """Raises InputError if the recording of the run at `place` is damaged; `wanted` says what that
    prevents."""
    damage = damage_of(info)
    if damage:
        raise InputError(
            f"{place} is a damaged recording, {wanted}: {damage}; record it again "
            f"(`profile-sd3 analyze {place}` reports it)"
        )


def exit_if_damaged(run: Run) -> None:
    """Raises typer.Exit(3) if the recording of a run is damaged, or files of it are cut."""
    if damage_of(run.info) or damaged_files(run):
        raise typer.Exit(DAMAGED_EXIT)


def refuse_contradictory(place: Path, run: Run) -> None:
    """Raise InputError if times of a run contradict each other, so that it cannot be gated."""
    from profiler.analysis.context import Inputs, Selection
    from profiler.analysis.self_check import check_times, sentence_of

    for one in check_times(Inputs(run, Selection(), (), {})):
        raise InputError(f"{place} cannot be gated: {sentence_of(one)}")
