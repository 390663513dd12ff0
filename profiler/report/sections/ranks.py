"""Ranks of a job: how their clocks were related, what they wait for each other, what their
collectives cost."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.ranks.columns import (
    COLLECTIVE_ARRIVALS,
    COLLECTIVES,
    RANK_IMBALANCE,
    RANKS,
)
from profiler.report.model import Part, ReportInput, SectionKind
from profiler.report.views import renamed, table
from profiler.text import count, counted, duration, said, sentence
from profiler.trace.manifest_fields import Job

__all__ = ["SECTION"]


def _parts(of: ReportInput) -> tuple[Part, ...]:
    return (*_ranks(of), *_collectives(of), *_arrivals(of), *_imbalance(of))


def _ranks(of: ReportInput) -> Iterator[Part]:
    job, frame = of.analysis.inputs.run.info.job, of.analysis.ranks
    if job is None or frame.is_empty():
        return
    names = [column.name for column in RANKS]
    yield Part(
        said("Ranks, whole run"),
        lead=sentence(_alone(job) if len(job.ranks) == 1 else _clocks(job)),
        table=table("ranks", "ranks", names, RANKS, frame, shown=20),
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


def _collectives(of: ReportInput) -> Iterator[Part]:
    frame, ranks = of.analysis.collectives, of.analysis.ranks
    names = [column.name for column in COLLECTIVES]
    all_of = frame if ranks.is_empty() else ranks  # in which those that overlap count once
    total = int(all_of["total_ns" if ranks.is_empty() else "collective_ns"].sum())
    exposed = int(all_of["exposed_ns"].sum())
    yield Part(
        said("Collectives, by total time"),
        lead=said(
            "{exposed} of {total} in collectives are exposed, over all ranks: nothing else ran on "
            "their device.",
            exposed=duration(exposed),
            total=duration(total),
        ),
        table=table("collectives", "collectives", names, COLLECTIVES, frame, shown=of.rows(10)),
    )


def _arrivals(of: ReportInput) -> Iterator[Part]:
    frame = of.analysis.collective_arrivals
    names = [column.name for column in COLLECTIVE_ARRIVALS if column.name != "begin_ns"]
    begin = renamed(COLLECTIVE_ARRIVALS, "begin_ns", meaning="from the begin of the run")
    yield Part(
        said("Which rank came last, and by how much"),
        table=table(
            "collective_arrivals",
            "arrivals at collectives",
            (begin, *names),
            COLLECTIVE_ARRIVALS,
            frame.with_columns(pl.col("begin_ns") - of.begin_ns),
            shown=of.rows(10),
        ),
    )


def _imbalance(of: ReportInput) -> Iterator[Part]:
    names = [column.name for column in RANK_IMBALANCE]
    yield Part(
        said("Imbalance between ranks, by module"),
        table=table(
            "rank_imbalance",
            "imbalance between ranks",
            names,
            RANK_IMBALANCE,
            of.analysis.rank_imbalance,
            shown=of.rows(10),
        ),
    )


SECTION = SectionKind(
    "ranks",
    75,
    said("Ranks"),
    _parts,
    tables=("ranks", "collectives", "collective_arrivals", "rank_imbalance"),
)
