"""The tables of ranks and of their collectives."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.ranks.arrivals import arrivals, matched
from profiler.analysis.ranks.collective_table import collective_table
from profiler.analysis.ranks.columns import (
    COLLECTIVE_ARRIVALS,
    COLLECTIVES,
    RANK_IMBALANCE,
    RANKS,
)
from profiler.analysis.ranks.members import members
from profiler.analysis.ranks.rank_table import imbalance_table, rank_table
from profiler.analysis.table import Table

__all__ = ["TABLES"]


@shared
def _matched(of: Inputs) -> pl.DataFrame:
    return matched(members(of), of.run.info.job)


@shared
def _arrived(of: Inputs) -> pl.DataFrame:
    return arrivals(_matched(of))


TABLES = (
    Table(
        name="ranks",
        row="one rank of a job",
        section="ranks",
        columns=RANKS,
        make=lambda of: rank_table(of.run, members(of), _matched(of), _arrived(of)),
        title="Ranks",
        about="Rows cover the whole run, whatever is selected. The table is empty where the run "
        "has a single process.",
    ),
    Table(
        name="collectives",
        row="the collectives of a kind, process group and size of message",
        section="ranks",
        columns=COLLECTIVES,
        make=lambda of: collective_table(members(of), _matched(of), _arrived(of)),
        rank=("-total_ns",),
        title="Collectives",
        about="Rows cover the whole run, whatever is selected. Times are sums over all ranks. "
        "The exposed time of a single rank, in which overlapping collectives count once, is in "
        "`ranks`.",
    ),
    Table(
        name="collective_arrivals",
        row="one collective that several ranks recorded on one clock",
        section="ranks",
        columns=COLLECTIVE_ARRIVALS,
        make=lambda of: _arrived(of).drop("number"),
        rank=("-late_ns",),
        title="Who came last",
        about="Rows cover the whole run, whatever is selected.",
    ),
    Table(
        name="rank_imbalance",
        row="one module of a submodule that several ranks executed",
        section="ranks",
        columns=RANK_IMBALANCE,
        make=lambda of: imbalance_table(of.run),
        rank=("-above_mean_ns",),
        title="Imbalance between ranks",
        about="Rows cover the whole run, whatever is selected. Collectives are left out, because "
        "each lasts as long as the slowest rank makes it.",
    ),
)
