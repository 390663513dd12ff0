"""The tables of submodules, of their branches and of their calls."""

from __future__ import annotations

import polars as pl

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.inputs import Inputs
from profiler.analysis.operators.tables import folds
from profiler.analysis.submodules.calls import (
    branch_table,
    calibration_factors,
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
        about="Rows are in order of first calls. Steady calls are all but the first, where there "
        "are more than one: a first call pays for initialization and is told apart. So are "
        "calls that another thread began while the first one ran. `calibration` is the factor "
        "in the manifest where capture measured one, and 1 where the interval that it "
        "measured holds 1: times then count as traced.",
        reads=("calls",),
    ),
    Table(
        name="branches",
        row="one branch of a submodule",
        section="time",
        columns=BRANCHES,
        make=_branches,
        title="Submodules by branch",
        about="The denoiser works for `cond`, `uncond`, `skip_layers` or `batched`, an encoder for "
        "each prompt. Steady calls are those of [submodules](#submodules).",
        reads=("calls",),
    ),
    Table(
        name="calls",
        row="one call, with what its commands add up to",
        section="calls",
        columns=CALLS,
        make=_calls,
        title="Calls",
        about="Rows are in order of calls.",
        shown=15,
    ),
)
