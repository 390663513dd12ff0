"""The table of what was executed but is not in the trace."""

from __future__ import annotations

import polars as pl

from profiler.analysis.drops.columns import DROPS
from profiler.analysis.inputs import Inputs
from profiler.analysis.table import Table
from profiler.run.columns import schema
from profiler.text import notes_text

__all__ = ["TABLES"]


def _drops(of: Inputs) -> pl.DataFrame:
    rows = [
        (
            drop.kind,
            drop.kind.time_missing,
            drop.where,
            drop.count,
            drop.unit,
            notes_text([drop.detail]),
        )
        for drop in of.run.drops
    ]
    return pl.DataFrame(rows, schema=schema(DROPS), orient="row")


TABLES = (
    Table(
        name="drops",
        row="one thing that was executed but is not in the trace",
        section="provenance",
        columns=DROPS,
        make=_drops,
        title="What the trace lacks",
        about="The table is empty where nothing was dropped. `analysis.drops` has the same rows "
        "as objects.",
    ),
)
