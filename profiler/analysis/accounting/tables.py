"""The tables of stages and of pipeline calls, and the accounting that they are a part of."""

from __future__ import annotations

import polars as pl

from profiler.analysis.accounting.account import account
from profiler.analysis.accounting.columns import PIPELINES, STAGES
from profiler.analysis.accounting.identity import Accounting
from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.table import Table

__all__ = ["TABLES", "accounting"]


@shared
def _account(of: Inputs) -> tuple[Accounting, pl.DataFrame, pl.DataFrame]:
    return account(of.run, of.pipelines, of.axis)


def accounting(of: Inputs) -> Accounting:
    """The accounting of the whole run."""
    return _account(of)[0]


TABLES = (
    Table(
        name="pipelines",
        row="one pipeline call",
        section="time",
        columns=PIPELINES,
        make=lambda of: _account(of)[2],
        title="Pipeline calls",
        about="Rows cover the whole run, in order of their begin. Each pipeline call is "
        "accounted for separately. `calls_ns` and the columns derived from it are null where "
        "`accounting.possible` is false. Where `accounting.told_apart` is false, the order in "
        "which pipeline calls began decides which work belongs to which call, so the assignment "
        "is a guess.",
    ),
    Table(
        name="stages",
        row="one stage",
        section="time",
        columns=STAGES,
        make=lambda of: _account(of)[1],
        title="Stages",
        about="Rows cover the whole run, in order of time. `duration_ns`, `host_ns`, `idle_ns` "
        "and `share` are null where `accounting.possible` is false.",
    ),
)
