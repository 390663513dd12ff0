"""The table of operators."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.kind_cells import kind_cells
from profiler.analysis.operators.columns import OPERATORS
from profiler.analysis.operators.folds import Folds, fold
from profiler.analysis.operators.partials import fold_parts
from profiler.analysis.operators.table import operator_table
from profiler.analysis.partials import Partials
from profiler.analysis.roles.tables import cell_partials, work_cells
from profiler.analysis.table import Table
from profiler.analysis.timelines import timelines_of

__all__ = ["TABLES", "folds"]


@shared
def folds(of: Inputs) -> Folds:
    """The selected commands, folded into operators."""
    return fold(of.calls, of.frame, of.commands, of.kinds)


def _operators(of: Inputs) -> pl.DataFrame:
    overhead_ratio = of.table("submodules").select("submodule", "overhead_ratio")
    return operator_table(
        folds(of),
        kind_cells(of),
        of.kinds.table["op_type"],
        overhead_ratio,
        of.host_times,
        timelines_of(of.run.calls, of.run.drops),
    )


def _partials(of: Inputs) -> tuple[Partials, ...]:
    return cell_partials(of), fold_parts(folds(of), work_cells(of))


TABLES = (
    Table(
        name="operators",
        row="one operator of a submodule, its commands aggregated",
        section="roofline",
        columns=OPERATORS,
        make=_operators,
        title="Operators",
        about="All operators are listed, longest `total_ns` first. Commands of the host (its own "
        "work, launches of operators, waits for accelerators) have rows apart from those of "
        "devices, as `host` says. The shares of all rows with `host` false add up to 1, and so "
        "do those with `host` true; where parts were recorded one by one, they add up to 1 in "
        "each part. [operators.md](operators.md) has details.",
        reads=("submodules",),
        rank=("-total_ns",),
        shown=15,
        partials=_partials,
    ),
)
