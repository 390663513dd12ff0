"""Ranks of a job: their collectives, and their clocks aligned by these.

A collective ends on all ranks at about the same time, so the difference of the recorded ends is
the clock offset. The offset is the median of the differences. A drift is added if a line at
least halves the residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec import Struct

from profiler.grammars.names import CollectiveKind
from profiler.text import Note
from profiler.trace.columns import Int64s
from profiler.trace.events import Drop, DropKind, DropReason
from profiler.trace.manifest_fields import Collective, Job, MatchedBy, Rank

Among = tuple[str, ...]


class RankCollective(Struct, frozen=True):
    """One collective on one rank, in ns of its file. `among` says which others it is counted with,
    `number` its place among them; `size` is that of the group. None is what nobody tells."""

    start_ns: int
    end_ns: int
    kind: CollectiveKind
    group: str
    size: int | None
    sent_bytes: int | None
    received_bytes: int | None
    among: Among
    number: int
    matched_by: MatchedBy

    @property
    def has_details(self) -> bool:
        """Whether its producer recorded more than the name of its kernel."""
        return self.matched_by is not MatchedBy.STREAM_ORDER


# --- The clocks of a job's ranks, laid onto each other by their collectives.
#
# A collective ends on all ranks at about the same moment: nobody has its result before the last has
# given its part. So the difference of the ends that two ranks recorded is the difference of their
# clocks. The offset is the median of these differences, of those alone that are within 1 ms of
# most; a drift is added if a line through them leaves at most half of what the offset leaves.


FEWEST = 3  # collectives in common, from which on two clocks are related
_OFF_NS = 1_000_000
_SHIFTS = tuple(sorted(range(-8, 9), key=abs))  # recordings may start some collectives apart
_FOR_A_LINE = 8  # pairs
_MOST_POINTS = 200  # of the pairs, between which slopes are taken
_APART = (  # kinds whose ranks may end apart: who has sent is done
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
    CollectiveKind.SEND_RECV,
    CollectiveKind.OTHER,
)
Key = tuple[Among, int]


@dataclass(frozen=True, slots=True, eq=False)
class AlignedRank:
    """A rank whose times become those of the job by `moved`: `offset_ns`, and `drift` ns a ns from
    `origin_ns` on. `pairs` collectives tell them, `left_out` do not fit; the ends then differ by
    `residual_ns` in the median and `worst_ns` at most. `matched` are its collectives by what they
    are called in the whole job. `aligned` is None of the rank whose clock is the job's."""

    offset_ns: int = 0
    drift: float = 0.0
    origin_ns: int = 0
    pairs: int = 0
    left_out: int = 0
    residual_ns: int | None = None
    worst_ns: int | None = None
    aligned: bool | None = None
    matched: Mapping[Key, RankCollective] = field(default_factory=dict)

    @property
    def quality(self) -> tuple[int, int]:
        """How good a way of matching it is: the more pairs, then the nearer the clocks."""
        return self.pairs, -abs(self.offset_ns)

    def moved(self, times_ns: Int64s) -> Int64s:
        """Times of the rank as times of the job, int64."""
        drifted = np.rint((times_ns - self.origin_ns) * self.drift).astype(np.int64)
        found: Int64s = times_ns + self.offset_ns + drifted
        return found


def aligned_ranks(ranks: Sequence[Sequence[RankCollective]]) -> list[AlignedRank]:
    """The ranks of a job, by their collectives, on the clock of the first one. Each is aligned with
    the first of those that already are with which it has enough in common."""
    found: dict[int, AlignedRank] = {0: AlignedRank(matched=_named(ranks[0]))}
    tried: set[tuple[int, int]] = set()
    while pairs := [
        (own, other)
        for own in range(len(ranks))
        for other in found
        if own not in found and (own, other) not in tried
    ]:
        own, other = pairs[0]
        tried.add((own, other))
        aligned = _aligned(ranks[own], found[other])
        if aligned is not None:
            found[own] = aligned
    return [found.get(number, AlignedRank(aligned=False)) for number in range(len(ranks))]


def _named(own: Sequence[RankCollective], shift: int = 0) -> dict[Key, RankCollective]:
    """Collectives by what they are called; those known by order alone `shift` places further."""
    return {
        (one.among, one.number + (0 if one.matched_by is MatchedBy.SEQUENCE else shift)): one
        for one in own
    }


def _aligned(own: Sequence[RankCollective], other: AlignedRank) -> AlignedRank | None:
    """`own` on the clock on which `other` is; None if too few collectives relate them.

    If order alone tells which are the same, and one has some that the other lacks, either may
    have lost the first ones: of equally good ways the one with the nearest clocks counts.
    """
    best: AlignedRank | None = None
    theirs = {one.among for one in own}
    most = max(len(own), sum(among in theirs for among, _ in other.matched))
    for shift in _SHIFTS:
        named = _named(own, shift)
        common = [key for key in named if key in other.matched]
        together = [key for key in common if named[key].kind not in _APART]
        found = _fitted(named, other, together if len(together) >= FEWEST else common)
        if found is not None and (best is None or found.quality > best.quality):
            best = found
        if best is not None and shift == 0 and 10 * best.pairs >= 9 * most:
            break
    return best


def _fitted(
    named: Mapping[Key, RankCollective], other: AlignedRank, common: Sequence[Key]
) -> AlignedRank | None:
    """The rank with these collectives, aligned by those that are `common`."""
    if len(common) < FEWEST:
        return None
    ends = np.array([named[key].end_ns for key in common], dtype=np.int64)
    theirs = np.array([other.matched[key].end_ns for key in common], dtype=np.int64)
    apart = other.moved(theirs) - ends
    origin = int(ends.min())
    offset, drift = _line(ends - origin, apart)
    left = apart - offset - np.rint((ends - origin) * drift).astype(np.int64)
    fits = np.abs(left) <= _OFF_NS
    if fits.sum() < FEWEST:
        return None
    kept = {key for key, fit in zip(common, fits.tolist(), strict=True) if fit}
    return AlignedRank(
        offset_ns=offset,
        drift=drift,
        origin_ns=origin,
        pairs=int(fits.sum()),
        left_out=int((~fits).sum()),
        residual_ns=round(float(np.median(np.abs(left[fits])))),
        worst_ns=int(np.abs(left[fits]).max()),
        aligned=True,
        matched={  # by number; by order only if the ends agree, or if nobody else has it
            key: one
            for key, one in named.items()
            if one.matched_by is MatchedBy.SEQUENCE or key in kept or key not in other.matched
        },
    )


def _line(at: Int64s, apart: Int64s) -> tuple[int, float]:
    """The offset and the drift that differences at some moments tell."""
    near = _most(apart)
    offset = round(float(np.median(apart[near])))
    if len(at) < _FOR_A_LINE or at.max() <= 0:
        return offset, 0.0
    chosen = np.unique(np.linspace(0, len(at) - 1, _MOST_POINTS).astype(np.int64))
    order = np.argsort(at, kind="stable")[chosen]
    x, y = at[order].astype(np.float64), apart[order].astype(np.float64)
    first, last = np.triu_indices(len(x), 1)
    wide = x[last] - x[first] > at.max() / 10  # slopes between neighbours are all noise
    if not wide.any():
        return offset, 0.0
    drift = float(np.median((y[last] - y[first])[wide] / (x[last] - x[first])[wide]))
    level = round(float(np.median(apart - at * drift)))
    by_line, by_offset = np.abs(apart - level - at * drift), np.abs(apart - offset)
    if 2 * np.median(by_line) > np.median(by_offset):
        return offset, 0.0
    return level, drift


def _most(apart: Int64s) -> Int64s:
    """Where the most differences lie within 1 ms of each other's middle; of several such places
    the one nearest to none at all."""
    order = np.argsort(apart, kind="stable")
    values = apart[order]
    last = np.searchsorted(values, values + 2 * _OFF_NS, side="right")
    count = last - np.arange(len(values))
    middle = np.abs((values + values[last - 1]) // 2)
    first = int(np.lexsort((middle, -count))[0])
    found: Int64s = order[first : int(last[first])]
    return found


# --- What the manifest says of a job of several ranks.


class InJob(msgspec.Struct, frozen=True):
    """Which of how many processes of a job something is of; `name` is the launcher's of the job."""

    rank: int
    world_size: int
    backend: str = ""
    name: str = ""

    @property
    def size_and_name(self) -> str:
        """How many ranks the job has, and what tells it from others."""
        return f"{self.world_size} ranks ({self.backend or self.name or 'no backend'})"


def job_of_ranks(
    jobs: Sequence[InJob], sources: Sequence[str], aligned: Sequence[AlignedRank]
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
        for one, source, clock in zip(jobs, sources, aligned, strict=True)
    )
    ways = {one.matched_by for clock in aligned[1:] for one in clock.matched.values()}
    return Job(
        world_size=jobs[0].world_size,
        name=jobs[0].name,
        backend=jobs[0].backend,
        reference=jobs[0].rank,
        matched_by=max(ways, key=list(MatchedBy).index, default=None),  # the weakest
        ranks=ranks,
        collectives=tuple(_of_job(jobs, aligned)),
    )


def _of_job(jobs: Sequence[InJob], aligned: Sequence[AlignedRank]) -> Iterable[Collective]:
    """The collectives that more than one rank recorded, or of which their producer tells more than
    their kernels' names, in order of their first begin."""
    found: dict[Key, list[tuple[int, RankCollective, int]]] = {}
    for one, clock in zip(jobs, aligned, strict=True):
        own = list(clock.matched.items())
        starts = clock.moved(np.array([c.start_ns for _, c in own], dtype=np.int64)).tolist()
        for (key, collective), start in zip(own, starts, strict=True):
            found.setdefault(key, []).append((one.rank, collective, start))
    kept = [of for of in found.values() if len(of) > 1 or of[0][1].has_details]
    for of in sorted(kept, key=lambda of: min(start for _, _, start in of)):
        yield matched_collective([c for _, c, _ in of], [(rank, start) for rank, _, start in of])


def matched_collective(own: Sequence[RankCollective], members: list[tuple[int, int]]) -> Collective:
    """One collective of the job, as all ranks have it that recorded it; `members` has their starts
    by rank."""
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
