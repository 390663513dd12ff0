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
        about="Of the whole run, whatever is selected; none where the run is of one process.",
    ),
    Table(
        name="collectives",
        row="the collectives of a kind, process group and size of message",
        section="ranks",
        columns=COLLECTIVES,
        make=lambda of: collective_table(members(of), _matched(of), _arrived(of)),
        rank=("-total_ns",),
        title="Collectives",
        about="Of the whole run, whatever is selected. Times are those of all ranks together; a "
        "rank's own exposed time, in which those that overlap count once, is in `ranks`.",
    ),
    Table(
        name="collective_arrivals",
        row="one collective that several ranks recorded on one clock",
        section="ranks",
        columns=COLLECTIVE_ARRIVALS,
        make=lambda of: _arrived(of).drop("number"),
        rank=("-late_ns",),
        title="Who came last",
        about="Of the whole run, whatever is selected.",
    ),
    Table(
        name="rank_imbalance",
        row="one module of a submodule that several ranks executed",
        section="ranks",
        columns=RANK_IMBALANCE,
        make=lambda of: imbalance_table(of.run),
        rank=("-above_mean_ns",),
        title="Imbalance between ranks",
        about="Of the whole run, whatever is selected; collectives are left out, because they are "
        "as long as the slowest rank makes them.",
    ),
)
