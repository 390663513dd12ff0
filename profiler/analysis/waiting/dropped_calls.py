"""Calls of which drops say that commands are missing."""

from __future__ import annotations

from profiler.events import Call
from profiler.table.run import Run

__all__ = ["dropped_calls"]


def dropped_calls(run: Run) -> list[int]:
    """The rows of `run.calls` whose own file a drop names that says that time is missing."""
    named = {drop.where for drop in run.drops if drop.kind.time_missing}
    if not named:
        return []
    columns = ("call", "submodule", "stage", "branch", "step")
    rows = run.calls.select(columns).rows()
    return [
        row
        for row, (call, submodule, stage, branch, step) in enumerate(rows)
        if Call(call, submodule, stage, branch or "", step, "", 0, 0, True).file_name in named
    ]
