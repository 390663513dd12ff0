"""A run with the recorded lengths of commands that a check shortened, and the table of these
commands.

analyze(as_recorded(run))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl
from msgspec import structs

from profiler.analysis.context import Inputs
from profiler.analysis.document import Fact
from profiler.analysis.question import Table
from profiler.run.columns import NS, STRING, Column, col, schema
from profiler.run.run import Run
from profiler.text import counted, duration, said
from profiler.trace.manifest_fields import HealthAction

SHORTENED: tuple[Column, ...] = (
    col("device", STRING, "device that ran it"),
    col("track", STRING, "its queue"),
    col("start_ns", NS, "begin, on the run's clock"),
    col("duration_ns", NS, "its length as corrected"),
    col("recorded_ns", NS, "its length as the file has it"),
)


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


def as_recorded_facts(run: Run) -> Iterator[Fact]:
    """The first screen's line that lengths are those of the file, if any was restored."""
    rows = run.commands.filter(pl.col("recorded_ns") == pl.col("duration_ns"))
    if len(rows):
        corrected = sum(one.duration_ns for one in run.info.shortened)
        excess = int(rows["recorded_ns"].sum()) - corrected
        value = said(
            "{commands} with the lengths of the file, {excess} too long in all: figures are not "
            "corrected",
            commands=counted(len(rows), "command"),
            excess=duration(excess),
        )
        yield Fact(said("As recorded"), value, alert=True)


def _shortened(of: Inputs) -> pl.DataFrame:
    names = [column.name for column in SHORTENED]
    rows = [tuple(getattr(one, name) for name in names) for one in of.run.info.shortened]
    return pl.DataFrame(rows, schema=schema(SHORTENED), orient="row")


TABLES = (
    Table(
        name="shortened",
        row="one command whose recorded length a check corrected",
        section="provenance",
        columns=SHORTENED,
        make=_shortened,
        title="Corrected lengths",
        about="The table has both lengths, whichever of them the analysis uses: see "
        "[trust.md](trust.md#uncorrected-figures).",
        rank=("-recorded_ns",),
    ),
)
