"""The table of what was executed but is not in the trace."""

from __future__ import annotations

from dataclasses import asdict

import polars as pl

from profiler.analysis.drops.columns import LOSSES
from profiler.analysis.inputs import Inputs
from profiler.analysis.table import Table
from profiler.table.columns import schema

__all__ = ["TABLES"]


def _losses(of: Inputs) -> pl.DataFrame:
    return pl.DataFrame([asdict(loss) for loss in of.run.losses], schema=schema(LOSSES))


TABLES = (
    Table(
        name="losses",
        row="one thing that was executed but is not in the trace",
        section="provenance",
        columns=LOSSES,
        make=_losses,
        title="What the trace lacks",
        about="It is empty where nothing was lost. `analysis.losses` has the same as objects.",
    ),
)
