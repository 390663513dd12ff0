"""Runs as the commands take them: whole where times count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profiler.errors import InputError
from profiler.events import DropKind

if TYPE_CHECKING:
    from profiler.events import Loss
    from profiler.table.run import Run

__all__ = ["damaged_files", "load_whole", "runs_at"]

_DAMAGE = (DropKind.TRUNCATED_FILE, DropKind.MISSING_FILE, DropKind.CHANGED_FILE)


def damaged_files(run: Run) -> list[Loss]:
    """The files of `run` that are cut, missing or changed."""
    return [loss for loss in run.losses if loss.kind in _DAMAGE]


def runs_at(path: Path) -> list[Path]:
    """The runs at a path, oldest first: itself, or the bundles in a folder."""
    from profiler.table.parquet import is_parquet_run
    from profiler.trace.bundle import find_bundles

    if path.is_file() or is_parquet_run(path):
        return [path]
    return find_bundles(path)[::-1]


def load_whole(source: Path) -> Run:
    """Load a run. Raises InputError where it has no call, or files of it are damaged: times that
    lack a part compare with nothing and predict nothing."""
    from profiler.table.load import load

    run = load(source)
    damaged = damaged_files(run)
    if damaged:
        detail = damaged[0].detail.partition(":")[0]
        raise InputError(
            f"{source} is not whole ({damaged[0].where}: {detail}): copy it again or record the "
            "run again"
        )
    if run.calls.is_empty():
        raise InputError(
            f"{source} holds no call of a submodule: give a bundle, or convert another profiler's "
            "trace with `profile-sd3 import`"
        )
    return run
