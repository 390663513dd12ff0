"""Who came last to each collective, and how long the others waited.

    transfer = last end - latest begin      wait of a rank = latest begin - its own

A rank is the last where the one before it began earlier by more than the clocks are known.
"""

from __future__ import annotations

import polars as pl

from profiler.analysis.ranks.columns import COLLECTIVE_ARRIVALS
from profiler.run.columns import schema
from profiler.trace.manifest_fields import Job

__all__ = ["arrivals", "matched"]


def matched(members: pl.DataFrame, job: Job | None) -> pl.DataFrame:
    """The `members` of collectives that several ranks on one clock recorded, with `latest_ns`, the
    last begin, and `known_ns`, how well the clock of their rank is known."""
    ranks = job.ranks if job is not None else ()
    known = {one.rank: one.residual_ns or 0 for one in ranks if one.aligned is not False}
    clocks = pl.DataFrame(
        list(known.items()), schema={"rank": pl.Int32, "known_ns": pl.Int64}, orient="row"
    )
    own = members.drop_nulls("number").join(clocks, on="rank", maintain_order="left")
    several = pl.col("rank").n_unique().over("number") > 1
    return own.filter(several).with_columns(latest_ns=pl.col("start_ns").max().over("number"))


def arrivals(own: pl.DataFrame) -> pl.DataFrame:
    """One row a collective of `matched`, in order of its begin: its `number`, and the columns
    `COLLECTIVE_ARRIVALS`."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    late = start.max() - start.sort().slice(pl.len() - 2, 1).first()
    known = pl.col("known_ns").max()
    found = own.group_by("number", maintain_order=True).agg(
        pl.col("kind", "group").first(),
        pl.col("message_bytes").max(),
        begin_ns=start.min(),
        ranks=pl.col("rank").n_unique(),
        last_rank=pl.when(late > known).then(pl.col("rank").sort_by("start_ns").last()),
        late_ns=late,
        spread_ns=start.max() - start.min(),
        waited_ns=(start.max() - start).sum(),
        transfer_ns=end.max() - start.max(),
        ends_apart_ns=end.max() - end.min(),
    )
    types = schema(COLLECTIVE_ARRIVALS)
    return found.select("number", *(pl.col(name).cast(dtype) for name, dtype in types.items()))
