"""Runs as the commands take them: whole where times count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from profiler.errors import InputError
from profiler.events import DropKind

if TYPE_CHECKING:
    from profiler.events import Loss
    from profiler.sources.imports import Imports
    from profiler.sources.resolve import Found, Source
    from profiler.table.run import Run

__all__ = ["damaged_files", "left_out", "load_whole", "other_runs"]

_DAMAGE = (DropKind.TRUNCATED_FILE, DropKind.MISSING_FILE, DropKind.CHANGED_FILE)
_NAMED = 4  # other runs that are named


def damaged_files(run: Run) -> list[Loss]:
    """The files of `run` that are cut, missing or changed."""
    return [loss for loss in run.losses if loss.kind in _DAMAGE]


def other_runs(found: Found) -> Iterator[str]:
    """A line that names the older runs of a folder."""
    others = found.others
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        names = ", ".join(others[:_NAMED])
        yield f"the newest of {len(others) + 1} runs in {found.given}; others: {names}{more}"


def left_out(found: Found) -> Iterator[str]:
    """A line for each run that was killed or still goes on: the newest run may be one of them."""
    from profiler.trace.search import State

    for entry in found.unfinished:
        remedy = f"`profile-sd3 merge {entry.path}`"
        if entry.state is State.RUNNING:
            yield f"the run in {entry.path} is still going on and was left out"
        elif entry.state is State.CUT:
            yield f"{entry.path} has not ended and was left out: {remedy}"
        else:
            yield f"{entry.path} has no manifest and was left out: {remedy}"


def load_whole(source: Source, imports: Imports) -> Run:
    """Load a run. Raises InputError where it has no call, or files of it are damaged: times that
    lack a part compare with nothing and predict nothing."""
    from profiler.sources.load import load_source

    run = load_source(imports.ready(source))
    damaged = damaged_files(run)
    if damaged:
        detail = damaged[0].detail.partition(":")[0]
        raise InputError(
            f"{source.place} is not whole ({damaged[0].where}: {detail}): copy it again or record "
            "the run again"
        )
    if run.calls.is_empty():
        raise InputError(
            f"{source.place} holds no call of a submodule: give a bundle, or what another profiler "
            "recorded of a pipeline"
        )
    return run
