"""The table of critical paths."""

from __future__ import annotations

from profiler.analysis.table import Table
from profiler.analysis.waiting.columns import CRITICAL_PATH
from profiler.analysis.waiting.critical_path import critical_path_table
from profiler.analysis.waiting.tables import if_times_recorded, timeline_of

__all__ = ["TABLES"]


TABLES = (
    Table(
        name="critical_path",
        row="one part of a pipeline call's critical path",
        section="idle",
        columns=CRITICAL_PATH,
        make=if_times_recorded(CRITICAL_PATH, lambda of: critical_path_table(timeline_of(of))),
        title="Critical path",
        about="Rows cover the whole run, the longest of each pipeline call first. "
        "[idle.md](idle.md) says what a path is and what its parts are.",
        rank=("pipeline", "-path_ns"),
        shown=30,
    ),
)
