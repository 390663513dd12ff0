"""One row a rank: what it did, what its collectives cost it, and whom it kept waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from profiler.analysis.ranks.columns import RANK_IMBALANCE, RANKS
from profiler.analysis.ranks.members import stretches_of
from profiler.run.columns import empty, schema
from profiler.run.run import Run
from profiler.trace.events import NO_RANK
from profiler.trace.manifest_fields import Rank

__all__ = ["imbalance_table", "rank_table"]


def rank_table(
    run: Run, members: pl.DataFrame, own: pl.DataFrame, arrived: pl.DataFrame
) -> pl.DataFrame:
    """One row a rank (`RANKS`); none of a run of one process. `members` are the commands of all
    collectives, `own` those that several ranks recorded, `arrived` who was last in these."""
    clocks = {one.rank: one for one in run.info.job.ranks} if run.info.job is not None else {}
    calls = dict(run.calls.group_by("rank").len().iter_rows())
    if not {*clocks, *calls} - {NO_RANK} and _highest(run.commands["rank"]) == NO_RANK:
        return empty(RANKS)
    work = _work(run)
    ranks = sorted({*clocks, *calls, *work["rank"].unique()} - {NO_RANK})
    if not ranks:
        return empty(RANKS)
    rows = []
    for rank in ranks:
        of_rank = pl.col("rank") == rank
        rows.append(
            {
                "rank": rank,
                "calls": calls.get(rank, 0),
                **_device_work(work.filter(of_rank), members.filter(of_rank)),
                **_lateness(rank, own.filter(of_rank), arrived),
                **_clock(clocks, rank),
            }
        )
    return pl.DataFrame(rows, schema=schema(RANKS))


def _highest(ranks: pl.Series) -> int:
    """The highest rank of commands, `NO_RANK` where none is known."""
    found = ranks.max()
    return found if isinstance(found, int) else NO_RANK


def imbalance_table(run: Run) -> pl.DataFrame:
    """One row a module of a submodule that several ranks executed (`RANK_IMBALANCE`): the work of
    its commands but collectives, which are as long as the slowest rank makes them."""
    if run.info.job is None or len(run.info.job.ranks) < 2:
        return empty(RANK_IMBALANCE)
    work = _work(run).filter((pl.col("category") != "collective") & (pl.col("rank") != NO_RANK))
    calls = run.calls.select("call", pl.col("submodule").cast(pl.String))
    named = work.join(calls, on="call", how="left").with_columns(pl.col("module").cast(pl.String))
    took = (pl.col("end_ns") - pl.col("start_ns")).sum()
    by_rank = named.group_by("submodule", "module", "rank").agg(took_ns=took)
    by_rank = by_rank.sort("submodule", "module", "rank")
    found = by_rank.group_by("submodule", "module", maintain_order=True).agg(
        ranks=pl.len(),
        mean_ns=pl.col("took_ns").mean().round(),
        max_ns=pl.col("took_ns").max(),
        slowest_rank=pl.col("rank").sort_by("took_ns").last(),
    )
    above = pl.col("max_ns") - pl.col("mean_ns")
    found = found.filter((pl.col("ranks") > 1) & (pl.col("mean_ns") > 0)).with_columns(
        imbalance=pl.col("max_ns") / pl.col("mean_ns"), above_mean_ns=above
    )
    return found.select(pl.col(name).cast(dtype) for name, dtype in schema(RANK_IMBALANCE).items())


def _work(run: Run) -> pl.DataFrame:
    """What devices did, with `end_ns`."""
    columns = ("call", "rank", "device", "category", "module", "start_ns", "duration_ns")
    works = ~pl.col("category").is_in(["host", "sync"]) & pl.col("device").is_not_null()
    rows = run.commands.lazy().select(columns).filter(works & (pl.col("duration_ns") > 0))
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    return rows.with_columns(end, pl.col("device").cast(pl.String)).collect()


def _device_work(work: pl.DataFrame, members: pl.DataFrame) -> dict[str, Any]:
    """What the devices of a rank did, and how much of its collectives nothing hides."""
    busy = collective = exposed = 0
    devices = work["device"].unique().sort().to_list()
    for device in devices:
        own = work.filter(pl.col("device") == device)
        together = stretches_of(members.filter(pl.col("device") == device))
        others = stretches_of(own.filter(pl.col("category") != "collective"))
        busy += stretches_of(own).length
        collective += together.length
        exposed += together.minus(others).length
    first, last = work["start_ns"].min(), work["end_ns"].max()
    span = last - first if isinstance(first, int) and isinstance(last, int) else 0
    return {
        "devices": ", ".join(devices),
        "span_ns": span,
        "busy_ns": busy,
        "collective_ns": collective,
        "exposed_ns": exposed,
        "exposed_share": exposed / span if span else None,
    }


def _lateness(rank: int, own: pl.DataFrame, arrived: pl.DataFrame) -> dict[str, Any]:
    """How long a rank waited for others in its collectives, `own`, and they for it."""
    told = arrived.filter(
        pl.col("last_rank").is_not_null() & pl.col("number").is_in(own["number"].implode())
    )
    last = told.filter(pl.col("last_rank") == rank)
    return {
        "waited_ns": int((own["latest_ns"] - own["start_ns"]).sum()) if len(own) else None,
        "compared": len(told),
        "last": len(last),
        "last_share": len(last) / len(told) if len(told) else None,
        "late_ns": int(last["late_ns"].sum()),
    }


def _clock(clocks: Mapping[int, Rank], rank: int) -> dict[str, Any]:
    """How the clock of a rank was laid onto the job's."""
    clock = clocks.get(rank)
    names = ("offset_ns", "drift_ppm", "residual_ns", "aligned")
    return {name: getattr(clock, name) if clock is not None else None for name in names}
