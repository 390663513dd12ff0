"""Ranks of a distributed job: what each did, whom it kept waiting, and imbalance between them.

Who came last to a collective, and how long the others waited, is in `collectives`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
from msgspec import Struct

from profiler.analysis.collectives import (
    COMPUTES,
    LATE,
    arrived_of,
    collective_parts,
    exposed_shares,
    matched_of,
    members,
    stretches_of,
)
from profiler.analysis.context import Inputs, shared
from profiler.analysis.document import Part, SectionGroup, SectionKind
from profiler.analysis.finding_text import MATERIAL, Rule, Words, end_to_end_ns, share
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding, ReportInput, Where
from profiler.analysis.table_text import table
from profiler.run.columns import (
    BOOL,
    FACTOR,
    FLOAT64,
    INT64,
    NS,
    SHARE,
    STEP,
    STRING,
    Column,
    col,
    empty,
    schema,
    typed,
)
from profiler.run.intervals import Stretches
from profiler.run.run import Run
from profiler.text import count, counted, duration, said, sentence
from profiler.trace.events import NO_RANK
from profiler.trace.manifest_fields import Job, Rank

# --- Rule: one rank keeps the others waiting.


FEWEST_COLLECTIVES = 5  # with a last rank, or with all ranks: fewer show no pattern


def straggler(analysis: Analysis) -> Finding | None:
    """One rank is the last to start most of its collectives, and the others wait for it.

    By chance each of n ranks is the last in 1/n of them. The rule's limit is halfway between that
    and all (0.75 of two ranks, 0.56 of eight), and a total delay of 1 % of end to end.
    """
    rows = analysis.ranks
    compared = rows.filter(pl.col("compared") >= FEWEST_COLLECTIVES)
    if len(rows) < 2 or compared.is_empty():
        return None
    worst = compared.sort("launch_delay_ns", "rank", descending=[True, False]).row(0, named=True)
    often = (1 + 1 / len(rows)) / 2
    total = end_to_end_ns(analysis)
    if worst["last_share"] < often or share(worst["launch_delay_ns"], total) < MATERIAL:
        return None
    slowest = slowest_rank(analysis.inputs)
    if slowest is not None and slowest.rank != worst["rank"]:
        return None
    waited = int(rows.filter(pl.col("rank") != worst["rank"])["waited_ns"].sum())
    return Finding(
        "straggler",
        {
            "rank": worst["rank"],
            "ranks": len(rows),
            "last": worst["last"],
            "compared": worst["compared"],
            "last_share": worst["last_share"],
            "launch_delay_ns": worst["launch_delay_ns"],
            "others_waited_ns": waited,
        },
        where=Where(device=worst["devices"].partition(", ")[0] or None),
        cost_ns=worst["launch_delay_ns"],
    )


RULES = (
    Rule(
        straggler,
        Words(
            title="Rank {rank} is the last to begin {last} of {compared} collectives, "
            "{launch_delay_ns} in all: the others wait for it",
            caveat="Were it on time, the second latest rank would be the last: the gain is at most "
            "the time by which it is late. Ranks that were not recorded may be later still.",
            recommendation="Find what this rank does beyond the others (imbalance between ranks). "
            "Check its clocks, its neighbours on the machine and its input pipeline. Give all "
            "ranks the same amount of work.",
        ),
        "Find what this rank does beyond the others; check its clocks",
        section="ranks",
        needs=("timeline",),
    ),
)


# --- The columns of ranks, and of imbalance between them.


RANKS: tuple[Column, ...] = (
    col("rank", STEP, "process of the job, from 0"),
    col("devices", STRING, "devices on which it worked, joined with commas", importance=2),
    col("calls", INT64, "calls of its submodules", importance=8),
    col(
        "span_ns",
        NS,
        "from the start of its first device work to the end of the last",
        importance=6,
    ),
    col(
        "busy_ns",
        NS,
        "part of the end-to-end time in which something ran on its devices, summed over them",
        importance=3,
    ),
    col(
        "collective_ns",
        NS,
        "union of its collectives in the end-to-end time, including the wait for the last rank",
        hide_if_zero=True,
    ),
    col(
        "exposed_ns",
        NS,
        "part of collective_ns in which that device computed nothing",
        hide_if_zero=True,
    ),
    col(
        "exposed_share",
        SHARE,
        "share of the end-to-end time in which a collective was exposed, the mean of its devices; "
        "null if nothing ran",
        True,
        label="exposed of end to end",
        importance=5,
    ),
    col(
        "waited_ns",
        NS,
        "time in its collectives before the last rank started; null if no other rank was recorded",
        True,
        label="waited for others",
        hide_if_zero=True,
    ),
    col("compared", INT64, f"its collectives with a known last rank: none {LATE}", importance=7),
    col("last", INT64, "those of them in which it was the last", importance=7),
    col("last_share", SHARE, "last / compared", True, label="was last"),
    col(
        "launch_delay_ns",
        NS,
        "in these, time from the previous rank's start to its own: what the others would wait "
        "less if it were on time",
        label="late by",
        hide_if_zero=True,
    ),
    col(
        "offset_ns",
        NS,
        "offset that was added to its times to get the job's clock; null of a rank given alone",
        True,
        importance=4,
        signed=True,
    ),
    col(
        "drift_ppm",
        FLOAT64,
        "added to offset_ns per second of its recording, in µs",
        True,
        importance=8,
    ),
    col(
        "residual_ns",
        NS,
        "median distance of the ends of its collectives after that",
        True,
        label="clock within",
        importance=4,
    ),
    col(
        "aligned",
        BOOL,
        "whether collectives relate its clock to others; null for the job's own clock",
        True,
        importance=9,
    ),
)

RANK_IMBALANCE: tuple[Column, ...] = (
    col("submodule", STRING, "submodule of the calls; null for work outside of calls", True),
    col("module", STRING, "path of the module, if known", True),
    col("ranks", INT64, "ranks that executed it"),
    col("mean_ns", NS, "mean over these ranks of the time of its commands, without collectives"),
    col("max_ns", NS, "largest time of a rank"),
    col("slowest_rank", STEP, "the rank with that time", label="longest on rank"),
    col("imbalance", FACTOR, "max_ns / mean_ns: 1 is even"),
    col("above_mean_ns", NS, "max_ns - mean_ns"),
)


# --- One row per rank: what it did, what its collectives cost it, and whom it kept waiting.


def rank_table(
    run: Run,
    members: pl.DataFrame,
    own: pl.DataFrame,
    arrived: pl.DataFrame,
    shares: Mapping[str, float],
    counted: Stretches,
) -> pl.DataFrame:
    """One row per rank (`RANKS`); none for a run of one process. `members` are the commands of all
    collectives, `own` those that several ranks recorded, `arrived` their `arrivals`, `shares` are
    `exposed_shares`, `counted` is the end-to-end time."""
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
                **_device_work(work.filter(of_rank), members.filter(of_rank), shares, counted),
                **_lateness(rank, own.filter(of_rank), arrived),
                **_clock(clocks, rank),
            }
        )
    return pl.DataFrame(rows, schema=schema(RANKS))


def _highest(ranks: pl.Series) -> int:
    """The highest rank of commands, `NO_RANK` if none is known."""
    found = ranks.max()
    return found if isinstance(found, int) else NO_RANK


def imbalance_table(run: Run) -> pl.DataFrame:
    """One row per module of a submodule that several ranks executed (`RANK_IMBALANCE`). Only its
    commands other than collectives count: these last as long as the slowest rank makes them."""
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
    return found.select(typed(RANK_IMBALANCE))


def _work(run: Run) -> pl.DataFrame:
    """Return the work of devices, one row per command, with `end_ns`."""
    columns = ("call", "rank", "device", "category", "module", "start_ns", "duration_ns")
    works = ~pl.col("category").is_in(["host", "sync"]) & pl.col("device").is_not_null()
    rows = run.commands.lazy().select(columns).filter(works & (pl.col("duration_ns") > 0))
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    return rows.with_columns(end, pl.col("device").cast(pl.String)).collect()


def _device_work(
    work: pl.DataFrame, members: pl.DataFrame, shares: Mapping[str, float], counted: Stretches
) -> dict[str, Any]:
    """Return the work of a rank's devices, and how much of its collectives is exposed: in the
    end-to-end time, if there is one."""
    busy = collective = exposed = 0
    devices = work["device"].unique().sort().to_list()
    for device in devices:
        own = work.filter(pl.col("device") == device)
        ran, together = map(stretches_of, (own, members.filter(pl.col("device") == device)))
        if counted.length:
            ran, together = ran.both(counted), together.both(counted)
        computed = stretches_of(own.filter(pl.col("category").is_in(COMPUTES)))
        busy += ran.length
        collective += together.length
        exposed += together.minus(computed).length
    from statistics import mean  # takes 2 ms to import; most runs have no ranks

    first, last = work["start_ns"].min(), work["end_ns"].max()
    span = last - first if isinstance(first, int) and isinstance(last, int) else 0
    return {
        "devices": ", ".join(devices),
        "span_ns": span,
        "busy_ns": busy,
        "collective_ns": collective,
        "exposed_ns": exposed,
        "exposed_share": mean([shares.get(name, 0.0) for name in devices]) if devices else None,
    }


def _lateness(rank: int, own: pl.DataFrame, arrived: pl.DataFrame) -> dict[str, Any]:
    """Return how long a rank waited for others in its collectives, `own`, and they for it."""
    late_ranks = arrived.filter(
        pl.col("last_rank").is_not_null() & pl.col("number").is_in(own["number"].implode())
    )
    last = late_ranks.filter(pl.col("last_rank") == rank)
    return {
        "waited_ns": int((own["latest_ns"] - own["start_ns"]).sum()) if len(own) else None,
        "compared": len(late_ranks),
        "last": len(last),
        "last_share": len(last) / len(late_ranks) if len(late_ranks) else None,
        "launch_delay_ns": int(last["launch_delay_ns"].sum()),
    }


def _clock(clocks: Mapping[int, Rank], rank: int) -> dict[str, Any]:
    """Return how the clock of a rank was aligned with the job's; nulls for a rank given alone."""
    clock = clocks.get(rank) if len(clocks) > 1 else None
    names = ("offset_ns", "drift_ppm", "residual_ns", "aligned")
    return {name: getattr(clock, name) if clock is not None else None for name in names}


# --- The tables of ranks.


class Slowest(Struct, frozen=True):
    """The rank that waits least in the `number` collectives that include all ranks: `less_ns` less
    than any other."""

    rank: int
    less_ns: int
    number: int


@shared
def slowest_rank(of: Inputs) -> Slowest | None:
    """The rank whose own work before collectives ends last; None if no two ranks have collectives
    on one clock, or if the clocks are not accurate enough."""
    own, job = matched_of(of), of.run.info.job
    every = pl.col("rank").n_unique().over("number") == own["rank"].n_unique()
    own = own.filter(every)
    waits = own.group_by("rank").agg(ns=(pl.col("latest_ns") - pl.col("start_ns")).sum())
    waits = waits.sort("ns", "rank")
    if job is None or len(waits) < 2:
        return None
    less_ns, number = int(waits["ns"][1] - waits["ns"][0]), own["number"].n_unique()
    if less_ns <= number * max(one.residual_ns or 0 for one in job.ranks):
        return None
    return Slowest(int(waits["rank"][0]), less_ns, number)


TABLES = (
    Table(
        name="ranks",
        row="one rank of a job",
        section="ranks",
        columns=RANKS,
        make=lambda of: rank_table(
            of.run, members(of), matched_of(of), arrived_of(of), exposed_shares(of), of.axis.counted
        ),
        title="Ranks",
        about="Rows cover the whole run, whatever is selected. The table is empty if the run "
        "has a single process.",
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


# --- Ranks of a job: how their clocks were related, what they wait for each other.


def _parts(of: ReportInput) -> tuple[Part, ...]:
    return (*_ranks(of), *collective_parts(of), *_imbalance(of))


def _ranks(of: ReportInput) -> Iterator[Part]:
    job, frame = of.analysis.inputs.run.info.job, of.analysis.ranks
    if job is None or frame.is_empty():
        return
    yield Part(
        said("Ranks, whole run"),
        lead=sentence(_alone(job) if len(job.ranks) == 1 else _clocks(job)),
        table=table("ranks", "ranks", RANKS, RANKS, frame, shown=20),
        notes=tuple(_notes(job)),
    )


def _alone(job: Job) -> str:
    return said(
        "this is rank {rank} of {size}: give the traces of all ranks to see whom it waits for",
        rank=count(job.ranks[0].rank),
        size=count(job.world_size),
    )


def _clocks(job: Job) -> str:
    """How the clocks of the ranks are related."""
    aligned = [one for one in job.ranks if one.aligned]
    if not aligned:
        return said("no clock of a rank is related to another's: each has a timeline of its own")
    pairs = [one.pairs for one in aligned]
    residual = [one.residual_ns or 0 for one in aligned]
    return said(
        "the clocks of {ranks} are aligned by the ends of {pairs} collectives or more each: these "
        "are then {residual} apart in the median of the worst rank, {worst} at most",
        ranks=counted(len(aligned) + 1, "rank"),
        pairs=count(min(pairs)),
        residual=duration(max(residual)),
        worst=duration(max(one.worst_ns or 0 for one in aligned)),
    )


def _notes(job: Job) -> Iterator[str]:
    missing = job.world_size - len(job.ranks)
    if missing and len(job.ranks) > 1:
        yield said(
            "{missing} of {size} ranks were not given: who is last among all is not known.",
            missing=count(missing),
            size=count(job.world_size),
        )
    lost = [str(one.rank) for one in job.ranks if one.aligned is False]
    if lost:
        yield said(
            "Ranks with a timeline of their own, since fewer than three collectives relate them to "
            "others: {ranks}.",
            ranks=", ".join(lost),
        )


def _imbalance(of: ReportInput) -> Iterator[Part]:
    yield Part(
        said("Imbalance between ranks, by module"),
        table=table(
            "rank_imbalance",
            "imbalance between ranks",
            RANK_IMBALANCE,
            RANK_IMBALANCE,
            of.analysis.rank_imbalance,
            shown=of.rows(10),
        ),
    )


SECTION = SectionKind(
    "ranks",
    70,
    said("Ranks and collectives"),
    _parts,
    tables=("ranks", "collectives", "collective_arrivals", "rank_imbalance"),
    group=SectionGroup.DEVICE,
)
