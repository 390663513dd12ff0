"""What a trace says of the job that its process was one of, and what the manifest says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from profiler.drop_reasons import DropReason
from profiler.events import Drop, DropKind
from profiler.importers.kineto.collectives import RankCollective, collectives_of
from profiler.importers.kineto.rank_clocks import AlignedRank, Key
from profiler.kineto.trace_file import KinetoTrace
from profiler.notes import Note
from profiler.trace.manifest_ranks import Collective, Job, MatchedBy, Rank
from profiler.typed_json import decoded

__all__ = ["InJob", "in_job", "job_drops", "job_of_one", "job_of_ranks"]


class InJob(msgspec.Struct, frozen=True):
    """A trace's `distributedInfo`: which of how many processes it is of."""

    rank: int
    world_size: int
    backend: str = ""


def in_job(trace: KinetoTrace) -> InJob | None:
    """What a trace says of its job; None where it says nothing, or what cannot be."""
    raw = bytes(trace.header.distributedInfo)
    try:
        told = decoded(raw, InJob, strict=False) if raw else None
    except msgspec.MsgspecError:
        return None
    if told is None or not 0 <= told.rank < told.world_size < 1 << 31:
        return None
    return told


def job_of_one(trace: KinetoTrace, source: str) -> Job | None:
    """The job of which one rank alone has a trace; None where it is no job of several."""
    told = in_job(trace)
    if told is None or told.world_size < 2:
        return None
    own = [one for one in collectives_of(trace) if one.told]
    return Job(
        world_size=told.world_size,
        backend=told.backend,
        reference=told.rank,
        ranks=(Rank(rank=told.rank, source=source),),
        collectives=tuple(_collective([one], [(told.rank, one.start_ns)]) for one in own),
    )


def job_of_ranks(
    told: Sequence[InJob], sources: Sequence[str], aligned: Sequence[AlignedRank]
) -> Job:
    """The job of several ranks, in the order of their numbers."""
    ranks = tuple(
        Rank(
            rank=one.rank,
            source=source,
            offset_ns=clock.offset_ns,
            drift_ppm=round(clock.drift * 1e6, 6),
            pairs=clock.pairs,
            left_out=clock.left_out,
            residual_ns=clock.residual_ns,
            worst_ns=clock.worst_ns,
            aligned=clock.aligned,
        )
        for one, source, clock in zip(told, sources, aligned, strict=True)
    )
    return Job(
        world_size=told[0].world_size,
        backend=told[0].backend,
        reference=told[0].rank,
        matched_by=_matched_by(aligned),
        ranks=ranks,
        collectives=tuple(_of_job(told, aligned)),
    )


def _matched_by(aligned: Sequence[AlignedRank]) -> MatchedBy | None:
    """The weakest way by which collectives of these ranks were found to be the same."""
    ways = {one.matched_by for clock in aligned[1:] for one in clock.matched.values()}
    return max(ways, key=list(MatchedBy).index, default=None)


def _of_job(told: Sequence[InJob], aligned: Sequence[AlignedRank]) -> Iterable[Collective]:
    """The collectives that more than one rank recorded, or of which their producer tells more than
    their kernels' names, in order of their first begin."""
    found: dict[Key, list[tuple[int, RankCollective, int]]] = {}
    for one, clock in zip(told, aligned, strict=True):
        own = list(clock.matched.items())
        starts = clock.moved(np.array([c.start_ns for _, c in own], dtype=np.int64)).tolist()
        for (key, collective), start in zip(own, starts, strict=True):
            found.setdefault(key, []).append((one.rank, collective, start))
    kept = [of for of in found.values() if len(of) > 1 or of[0][1].told]
    for of in sorted(kept, key=lambda of: min(start for _, _, start in of)):
        yield _collective([c for _, c, _ in of], [(rank, start) for rank, _, start in of])


def _collective(own: Sequence[RankCollective], members: list[tuple[int, int]]) -> Collective:
    first = own[0]
    sent = [one.sent_bytes for one in own if one.sent_bytes is not None]
    received = [one.received_bytes for one in own if one.received_bytes is not None]
    return Collective(
        kind=first.kind,
        group=first.group,
        size=first.size,
        sent_bytes=max(sent, default=None),
        received_bytes=max(received, default=None),
        members=tuple(members),
    )


def job_drops(job: Job, devices: Mapping[int, str]) -> Iterable[Drop]:
    """What of a job is missing or on a clock of its own; `devices` has one of each rank."""
    missing = job.world_size - len(job.ranks)
    if missing > 0:
        detail = Note.of(DropReason.RANKS_NOT_GIVEN, given=len(job.ranks), size=job.world_size)
        yield Drop(DropKind.MISSING_RANK, "job", missing, "ranks", detail)
    for rank in job.ranks:
        if rank.aligned is False:
            detail = Note.of(DropReason.RANK_UNALIGNED, rank=rank.rank, reference=job.reference)
            yield Drop(DropKind.UNALIGNED_CLOCK, devices[rank.rank], 1, "clocks", detail)
