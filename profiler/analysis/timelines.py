"""Parts of a run that were recorded one by one, each with a clock of its own: whose time a share is
of.

An engine's inferences and the averages of its layers are such parts: the layers are what inferences
consist of. Their times together are no time that anything took, so that a share is one of its own
part.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from profiler.trace.events import Drop, DropReason

__all__ = ["are_apart", "timelines_of"]


def are_apart(drops: Iterable[Drop]) -> bool:
    """Whether parts of the run with these drops were recorded one by one: its pipeline calls are
    these."""
    return any(drop.detail.code == DropReason.TIMELINES_APART for drop in drops)


def timelines_of(calls: pl.DataFrame, drops: Iterable[Drop]) -> pl.DataFrame:
    """`submodule` and `timeline`, Int32: the first pipeline call of each where parts of the run are
    apart, 0 for all of another run. `calls` has the columns `submodule` and `pipeline`."""
    number = pl.col("pipeline").min() if are_apart(drops) else pl.lit(0)
    return calls.group_by(pl.col("submodule").cast(pl.String)).agg(timeline=number.cast(pl.Int32))
