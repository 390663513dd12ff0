"""Combine the ranks of one job into one run, whichever recorder they have.

    run = JobRun(name, (run_of_rank_0, run_of_rank_1), job)
    run.write(bundle)

Calls are in the order in which they returned on the job's clock. A pipeline call of the job lasts
from the first rank's start to the last one's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import Struct, structs

from profiler.errors import InputError
from profiler.grammars.names import CollectiveKind
from profiler.importers.foreign_run import PlacedCall
from profiler.importers.importer import Landmarked
from profiler.text import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandColumns, Counter, Int64s, join_commands
from profiler.trace.events import (
    ROOT_DEVICE,
    Call,
    Drop,
    DropKind,
    DropReason,
    Span,
    device_of_rank,
)
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    Attribution,
    Collective,
    Coverage,
    Device,
    HealthAction,
    HealthNote,
    HealthRule,
    Job,
    MatchedBy,
    Rank,
    Submodule,
)


class RankRun(Protocol):
    """The run of one rank, on the job's clock and with the job's device names."""

    @property
    def path(self) -> Path:
        """The rank's file or bundle."""

    @property
    def name(self) -> str:
        """The name of the run."""

    @property
    def capabilities(self) -> Iterable[str]:
        """The codes of what was recorded."""

    def call_ends(self) -> Sequence[int]:
        """When each of its calls returned."""

    def call(self, number: int, index: int) -> PlacedCall:
        """Return one of its calls with `index` as its number in the job."""

    def host(self) -> CommandColumns:
        """Return the commands outside calls."""

    def free_counters(self) -> Sequence[Counter]:
        """Return the samples outside calls."""

    def spans(self) -> Iterable[tuple[int, Span]]:
        """Yield its spans, with the numbers of their pipeline calls."""

    def info(self, calls: Sequence[Call]) -> RunInfo:
        """Return its manifest; `calls` are its calls, in order, as they are in the job."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """The ranks of a job, in order of their numbers, on one clock."""

    name: str
    runs: tuple[RankRun, ...]
    job: Job

    @property
    def capabilities(self) -> set[str]:
        """The capabilities of all ranks."""
        return set[str]().union(*(run.capabilities for run in self.runs))

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """The ranges that the program named, of all ranks."""
        for run in self.runs:
            if isinstance(run, Landmarked):
                yield from run.landmarks()

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write one file per call, in the order in which all calls returned."""
        places = [
            (end_ns, rank, number)
            for rank, run in enumerate(self.runs)
            for number, end_ns in enumerate(run.call_ends())
        ]
        calls: list[dict[int, Call]] = [{} for _ in self.runs]
        for index, (_, rank, number) in enumerate(sorted(places)):
            one = self.runs[rank].call(number, index)
            bundle.write_call(one.call, one.commands, one.counters)
            calls[rank][number] = one.call
        host = join_commands(run.host() for run in self.runs)
        counters = [counter for run in self.runs for counter in run.free_counters()]
        bundle.write_host(_spans(self.runs), host, ROOT_DEVICE, counters)
        infos = [
            run.info([of_rank[number] for number in sorted(of_rank)])
            for run, of_rank in zip(self.runs, calls, strict=True)
        ]
        return _merged(infos, self)


def name_of(paths: Sequence[Path], runs: Sequence[RankRun]) -> str:
    """The name of the job's run: that of the folder with all files, else the runs' common name,
    else that of the folder above the first file's."""
    folders = {path.resolve().parent for path in paths}
    if len(folders) == 1:
        return folders.pop().name
    names = {run.name for run in runs}
    return names.pop() if len(names) == 1 else paths[0].resolve().parent.parent.name


def check_one_job(paths: Sequence[Path], jobs: Sequence[InJob]) -> None:
    """Raise InputError if these are not of one job, or if a rank is given twice."""
    owner: dict[int, Path] = {}
    for path, one in zip(paths, jobs, strict=True):
        if structs.replace(one, rank=jobs[0].rank) != jobs[0]:
            raise InputError(
                f"{path} is of a job of {one.size_and_name}, {paths[0]} of one of "
                f"{jobs[0].size_and_name}: give traces of one job"
            )
        if one.rank in owner:
            raise InputError(
                f"{owner[one.rank]} and {path} are both of rank {one.rank}: give one trace a rank"
            )
        owner[one.rank] = path


def placed_ranks(
    times: Sequence[tuple[int, int]], aligned: Sequence[AlignedRank]
) -> list[AlignedRank]:
    """`aligned`, with unaligned ranks moved to the job's start if by their own clock they did not
    run at the same time. `times` are start and end of each rank."""
    first, last = times[0]
    found = []
    for (begin, end), clock in zip(times, aligned, strict=True):
        apart = clock.aligned is False and (begin > last or end < first)
        found.append(replace(clock, offset_ns=first - begin) if apart else clock)
    return found


def _spans(runs: Sequence[RankRun]) -> list[Span]:
    """The spans of the job, each from the first rank's start to the last rank's end. Profiling
    overhead stays per rank."""
    found: dict[tuple[str, str, str, int, int], Span] = {}
    own: list[Span] = []
    for run in runs:
        for number, span in run.spans():
            if span.kind == "profiler":
                own.append(span)
                continue
            name = "" if span.kind == "pipeline" else span.name
            key = (span.kind, name, span.stage, span.step, number)
            one = found.get(key, span)
            start = min(one.start_ns, span.start_ns)
            end = max(one.start_ns + one.duration_ns, span.start_ns + span.duration_ns)
            found[key] = replace(one, start_ns=start, duration_ns=end - start)
    return [*found.values(), *own]


def _on_rank(rank: int, devices: str) -> str:
    """The devices of a rank's note by their names in the job; the rank itself if there are none."""
    named = [device_of_rank(rank, one) for one in devices.split(", ") if one]
    return ", ".join(named) or device_of_rank(rank, "").rstrip("/")


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _first(several: Iterable[Mapping[_Key, _Value]]) -> dict[_Key, _Value]:
    """All entries; for a repeated key the first mapping's value."""
    found: dict[_Key, _Value] = {}
    for one in several:
        found = {**one, **found}
    return found


def _merged(infos: Sequence[RunInfo], run: JobRun) -> RunInfo:
    """The manifest of the whole job. Its overhead is the slowest rank's, for which it waited."""
    first, job = infos[0], run.job
    devices: dict[str, Device] = {}
    of_rank: dict[int, str] = {}
    activities, health = [], []
    for rank, info in zip(job.ranks, infos, strict=True):
        lost = {"aligned": False} if rank.aligned is False else {}
        devices |= {name: structs.replace(one, **lost) for name, one in info.devices.items()}
        of_rank[rank.rank] = device_of_rank(rank.rank, ROOT_DEVICE)
        health += [
            structs.replace(one, device=_on_rank(rank.rank, one.device)) for one in info.health
        ]
        activities += [
            structs.replace(one, thread=device_of_rank(rank.rank, one.thread))
            for one in info.host_activities
        ]

    def every(name: str) -> Iterator[Any]:
        return chain.from_iterable(getattr(info, name) for info in infos)

    recording = first.recording
    if recording is not None:
        recording = structs.replace(recording, source=run.name, files=len(infos))
    unaligned = any(rank.aligned is False for rank in job.ranks)
    return structs.replace(
        first,
        command_line=("profile-sd3", "import", *(str(one.path) for one in run.runs)),
        devices=devices,
        submodules=_submodules(infos),
        pipeline_settings=_first(info.pipeline_settings for info in infos),
        submodule_settings=_first(info.submodule_settings for info in infos),
        attribution=_attribution(infos),
        overhead=max((info.overhead for info in infos), key=lambda one: one.traced_ns or 0),
        coverage=_coverage(infos),
        compilations=tuple(sorted(every("compilations"), key=lambda one: one.start_ns)),
        cached_calls=tuple(sorted(every("cached_calls"), key=lambda one: one.call)),
        recording=recording,
        clocks=structs.replace(first.clocks, aligned=False if unaligned else None),
        host_activities=tuple(sorted(activities, key=lambda one: (one.start_ns, one.duration_ns))),
        drops=(*every("drops"), *job_drops(job, of_rank)),
        health=(*health, *_drifting(job)),
        shortened=tuple(every("shortened")),
        occupancy=tuple(every("occupancy")),
        workless=tuple(sorted(every("workless"))),
        job=job,
    )


_MOST_PPM, _LONG_NS = 100, 300_000_000  # clocks of one job: healthy ones stay below 29


def _drifting(job: Job) -> Iterator[HealthNote]:
    """Yield a note of each rank whose clock drifts more than clocks do. Its collectives put its
    times right."""
    for rank in job.ranks:
        if abs(rank.drift_ppm) <= _MOST_PPM:
            continue
        begun = [start for one in job.collectives for of, start in one.members if of == rank.rank]
        if max(begun, default=0) - min(begun, default=0) >= _LONG_NS:
            yield HealthNote(
                rule=HealthRule.DRIFT,
                device=_on_rank(rank.rank, ""),
                count=rank.pairs,
                total=rank.pairs + rank.left_out,
                share=rank.drift_ppm / 1e6,
                action=HealthAction.SHIFTED,
            )


def _submodules(infos: Sequence[RunInfo]) -> dict[str, Submodule]:
    """The submodules, each as on the first rank that has it, with the calls of all ranks."""
    found: dict[str, Submodule] = {}
    for info in infos:
        again = {
            name: structs.replace(
                found[name],
                runtime_calls=(*found[name].runtime_calls, *one.runtime_calls),
                workloads=(*found[name].workloads, *one.workloads),
            )
            for name, one in info.submodules.items()
            if name in found
        }
        found = {**info.submodules, **found, **again}
    return found


def _attribution(infos: Sequence[RunInfo]) -> dict[str, Attribution]:
    """The attribution of all ranks together: by submodule if they recorded themselves, by device if
    imported."""
    found: dict[str, Attribution] = {}
    for info in infos:
        for name, one in info.attribution.items():
            before = found.get(name)
            if before is None:
                found[name] = one
                continue
            inside, whole = before.attributed_ns + one.attributed_ns, before.total_ns + one.total_ns
            found[name] = structs.replace(
                before, attributed_ns=inside, total_ns=whole, share=inside / whole if whole else 1.0
            )
    return found


def _coverage(infos: Sequence[RunInfo]) -> Coverage | None:
    """The coverage of calls on all ranks together."""
    known = [info.coverage for info in infos if info.coverage is not None]
    if not known:
        return None
    captured = sum(one.captured_ns for one in known)
    rest = sum(one.uncaptured_ns for one in known)
    return Coverage(
        pipelines=sum(one.pipelines for one in known),
        captured_ns=captured,
        uncaptured_ns=rest,
        share=captured / (captured + rest) if captured + rest else None,
        uncaptured=tuple(chain.from_iterable(one.uncaptured for one in known)),
    )


# --- The collectives of a rank.


Among = tuple[str, ...]


class RankCollective(Struct, frozen=True):
    """One collective on one rank, with times in ns of its file. `among` is the key of the
    collectives with which it is counted, `number` its place among them; `size` is the group's. None
    if not known."""

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
        """Whether more than the kernel's name was recorded."""
        return self.matched_by is not MatchedBy.STREAM_ORDER


# --- The clocks of a job's ranks, laid onto each other by their collectives.
#
# A collective ends on all ranks at about the same moment: nobody has its result before the last has
# given its part. So the difference of the ends that two ranks recorded is the difference of their
# clocks. The offset is the median of these differences, of those alone that are within 1 ms of
# most; a drift is added if a line through them leaves at most half of what the offset leaves.


FEWEST = 3  # common collectives needed to relate two clocks
_OFF_NS = 1_000_000
_SHIFTS = tuple(sorted(range(-8, 9), key=abs))  # one recording may start some collectives later
_FOR_A_LINE = 8  # pairs
_MOST_POINTS = 200  # pairs used for slopes
_APART = (  # kinds whose ranks may end at different times: senders are done first
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
    """The clock of a rank: `moved` converts its times to the job's by `offset_ns`, and `drift` ns
    per ns from `origin_ns` on. These come from `pairs` collectives; `left_out` others do not fit.
    The ends then differ by `residual_ns` (median) and `worst_ns` (maximum). `matched` are its
    collectives by their key in the job. `aligned` is None for the rank whose clock is the job's."""

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
        """The sort key of fits: more pairs, then closer clocks."""
        return self.pairs, -abs(self.offset_ns)

    def moved(self, times_ns: Int64s) -> Int64s:
        """Times of the rank as times of the job, int64."""
        drifted = np.rint((times_ns - self.origin_ns) * self.drift).astype(np.int64)
        found: Int64s = times_ns + self.offset_ns + drifted
        return found


def aligned_ranks(ranks: Sequence[Sequence[RankCollective]]) -> list[AlignedRank]:
    """The ranks of a job aligned with the clock of the first, by their collectives. Each is aligned
    with the first aligned rank with which it has enough in common."""
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
    """Collectives by key. Those that are only known by order are shifted by `shift` places."""
    return {
        (one.among, one.number + (0 if one.matched_by is MatchedBy.SEQUENCE else shift)): one
        for one in own
    }


def _aligned(own: Sequence[RankCollective], other: AlignedRank) -> AlignedRank | None:
    """The clock of `own`, aligned with `other`; None if too few collectives relate them.

    If collectives are matched by order only, either rank may lack some at the start, so several
    shifts are tried. Of equally good ones, the shift with the closest clocks is taken.
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
    """The clock of a rank with the collectives `named`, fitted to the `common` ones; None if too
    few fit."""
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
        matched={  # by number; by order only if the ends agree, or the other lacks it
            key: one
            for key, one in named.items()
            if one.matched_by is MatchedBy.SEQUENCE or key in kept or key not in other.matched
        },
    )


def _line(at: Int64s, apart: Int64s) -> tuple[int, float]:
    """The offset and the drift, as fitted to the differences `apart` at times `at`."""
    near = _most(apart)
    offset = round(float(np.median(apart[near])))
    if len(at) < _FOR_A_LINE or at.max() <= 0:
        return offset, 0.0
    chosen = np.unique(np.linspace(0, len(at) - 1, _MOST_POINTS).astype(np.int64))
    order = np.argsort(at, kind="stable")[chosen]
    x, y = at[order].astype(np.float64), apart[order].astype(np.float64)
    first, last = np.triu_indices(len(x), 1)
    wide = x[last] - x[first] > at.max() / 10  # slopes between neighbours are noise
    if not wide.any():
        return offset, 0.0
    drift = float(np.median((y[last] - y[first])[wide] / (x[last] - x[first])[wide]))
    level = round(float(np.median(apart - at * drift)))
    by_line, by_offset = np.abs(apart - level - at * drift), np.abs(apart - offset)
    if 2 * np.median(by_line) > np.median(by_offset):
        return offset, 0.0
    return level, drift


def _most(apart: Int64s) -> Int64s:
    """The indices of the most differences within ±1 ms of a common middle; ties go to the middle
    nearest 0."""
    order = np.argsort(apart, kind="stable")
    values = apart[order]
    last = np.searchsorted(values, values + 2 * _OFF_NS, side="right")
    count = last - np.arange(len(values))
    middle = np.abs((values + values[last - 1]) // 2)
    first = int(np.lexsort((middle, -count))[0])
    return order[first : int(last[first])]


# --- What the manifest says of a job of several ranks.


class InJob(msgspec.Struct, frozen=True):
    """The rank of a file and the size of its job; `name` is the launcher's name of the job."""

    rank: int
    world_size: int
    backend: str = ""
    name: str = ""

    @property
    def size_and_name(self) -> str:
        """The size and the name of the job, which identify it."""
        return f"{self.world_size} ranks ({self.backend or self.name or 'no backend'})"


def job_of_ranks(
    jobs: Sequence[InJob],
    sources: Sequence[str],
    aligned: Sequence[AlignedRank],
    recorded: Sequence[tuple[int, int]] = (),
) -> Job:
    """The job of several ranks, in order of rank; `recorded` is the start and end of each rank's
    recording, if known."""
    times: Sequence[tuple[int | None, int | None]] = recorded or [(None, None)] * len(jobs)
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
            begin_ns=begin,
            end_ns=end,
        )
        for one, source, clock, (begin, end) in zip(jobs, sources, aligned, times, strict=True)
    )
    ways = {one.matched_by for clock in aligned[1:] for one in clock.matched.values()}
    return Job(
        world_size=jobs[0].world_size,
        name=jobs[0].name,
        backend=jobs[0].backend,
        reference=jobs[0].rank,
        matched_by=max(ways, key=list(MatchedBy).index, default=None),  # the weakest way
        ranks=ranks,
        collectives=tuple(_of_job(jobs, aligned)),
    )


def _of_job(jobs: Sequence[InJob], aligned: Sequence[AlignedRank]) -> Iterable[Collective]:
    """The collectives that several ranks recorded, or that have more details than kernel names, in
    order of first start."""
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
    """One collective of the job, combined from all ranks that recorded it; `members` has the start
    on each rank."""
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
    """Drops for ranks that are missing or not aligned; `devices` has one device of each rank."""
    missing = job.world_size - len(job.ranks)
    if missing > 0:
        detail = Note.of(DropReason.RANKS_NOT_GIVEN, given=len(job.ranks), size=job.world_size)
        yield Drop(DropKind.MISSING_RANK, "job", missing, "ranks", detail)
    for rank in job.ranks:
        if rank.aligned is False:
            detail = Note.of(DropReason.RANK_UNALIGNED, rank=rank.rank, reference=job.reference)
            yield Drop(DropKind.UNALIGNED_CLOCK, devices[rank.rank], 1, "clocks", detail)
