"""The tables of submodules, of their branches and of their calls."""

from __future__ import annotations

import polars as pl

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.inputs import Inputs
from profiler.analysis.manifest_numbers import calibration_factors
from profiler.analysis.operators.tables import folds
from profiler.analysis.submodules.calls import (
    branch_table,
    call_table,
    first_calls,
    submodule_table,
)
from profiler.analysis.submodules.columns import BRANCHES, CALLS, SUBMODULES
from profiler.analysis.table import Table

__all__ = ["TABLES"]


def _submodules(of: Inputs) -> pl.DataFrame:
    submodule = pl.DataFrame({"submodule": folds(of).submodules}, schema={"submodule": pl.String})
    factors = calibration_factors(of.run.info.submodules)
    return submodule_table(of.table("calls"), submodule, accounting(of).end_to_end_ns, factors)


def _branches(of: Inputs) -> pl.DataFrame:
    return branch_table(of.table("calls"), accounting(of).end_to_end_ns)


def _calls(of: Inputs) -> pl.DataFrame:
    return call_table(of.calls, of.commands, folds(of).call, first_calls(of.run.calls))


TABLES = (
    Table(
        name="submodules",
        row="one submodule",
        section="time",
        columns=SUBMODULES,
        make=_submodules,
        title="Submodules",
        reads=("calls",),
    ),
    Table(
        name="branches",
        row="one branch of a submodule",
        section="time",
        columns=BRANCHES,
        make=_branches,
        title="Submodules by branch",
        reads=("calls",),
    ),
    Table(
        name="calls",
        row="one call, with what its commands add up to",
        section="calls",
        columns=CALLS,
        make=_calls,
        title="Calls",
        shown=15,
    ),
)
