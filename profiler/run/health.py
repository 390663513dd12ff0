"""A run with the lengths that its recording has for commands which a check shortened.

analyze(as_recorded(run))
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from msgspec import structs

from profiler.run.run import Run
from profiler.trace.manifest_fields import HealthAction


def as_recorded(run: Run) -> Run:
    """`run` with the recorded lengths of commands that a check shortened. Commands that a check set
    aside or shifted stay so."""
    notes = tuple(
        structs.replace(note, action=HealthAction.NOTED)
        if note.action is HealthAction.SHORTENED
        else note
        for note in run.info.health
    )
    length = pl.coalesce("recorded_ns", "duration_ns").alias("duration_ns")
    info = structs.replace(run.info, health=notes)
    return replace(run, commands=run.commands.with_columns(length), info=info)
