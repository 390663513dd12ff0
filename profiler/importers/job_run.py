"""The ranks of one job as one run, whoever recorded them.

    run = JobRun(name, (run_of_rank_0, run_of_rank_1), job)
    run.write(bundle)

Calls stand in the order in which they returned on the job's clock. A pipeline call of the job
lasts from the first rank's start to the last one's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import structs

from profiler.errors import InputError
from profiler.importers.foreign_run import PlacedCall
from profiler.importers.importer import Landmarked
from profiler.importers.ranks import AlignedRank, InJob, job_drops
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandColumns, Counter, join_commands
from profiler.trace.events import ROOT_DEVICE, Call, Span, device_of_rank
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import Attribution, Coverage, Device, Job, Overhead, Submodule


class RankRun(Protocol):
    """What one rank recorded, on the job's clock and with the job's names of devices."""

    @property
    def path(self) -> Path:
        """Its file or bundle."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def capabilities(self) -> Iterable[str]:
        """What it knows."""

    def call_ends(self) -> Sequence[int]:
        """When each of its calls returned."""

    def call(self, number: int, index: int) -> PlacedCall:
        """Return one of its calls, as that `index` of the job."""

    def host(self) -> CommandColumns:
        """Return what ran in no call."""

    def free_counters(self) -> Sequence[Counter]:
        """Return the samples in no call."""

    def spans(self) -> Iterable[tuple[int, Span]]:
        """Yield its spans, with the numbers of their pipeline calls."""

    def info(self, calls: Sequence[Call]) -> RunInfo:
        """Return what its manifest says; these are its calls, in their order, as the job has
        them."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """The ranks of a job, in order of their numbers, on one clock."""

    name: str
    runs: tuple[RankRun, ...]
    job: Job

    @property
    def capabilities(self) -> set[str]:
        """What any of the ranks knows."""
        return set[str]().union(*(run.capabilities for run in self.runs))

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """The ranges that the program named, of all ranks."""
        for run in self.runs:
            if isinstance(run, Landmarked):
                yield from run.landmarks()

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, in the order in which all of them returned."""
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
    """What the files are called alike; their folder if that is nothing."""
    folders = {path.resolve().parent for path in paths}
    if len(folders) == 1:
        return folders.pop().name
    names = {run.name for run in runs}
    return names.pop() if len(names) == 1 else paths[0].resolve().parent.parent.name


def check_one_job(paths: Sequence[Path], jobs: Sequence[InJob]) -> None:
    """Raises InputError if these are not of one job, or if a rank is there twice."""
    owner: dict[int, Path] = {}
    for path, one in zip(paths, jobs, strict=True):
        if (one.world_size, one.backend, one.name) != (
            jobs[0].world_size,
            jobs[0].backend,
            jobs[0].name,
        ):
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
    """`aligned`, if ranks on a clock of their own start with the job if by that clock they did
    not run at the same time: nobody knows when they did. `times` are start and end of each."""
    first, last = times[0]
    found = []
    for (begin, end), clock in zip(times, aligned, strict=True):
        apart = clock.aligned is False and (begin > last or end < first)
        found.append(replace(clock, offset_ns=first - begin) if apart else clock)
    return found


def _spans(runs: Sequence[RankRun]) -> list[Span]:
    """The spans of the job: each from the first rank's start to the last one's end. What recording
    took is each rank's own."""
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
    """Devices of a rank, of which a note is, by their names in the job; for none the rank."""
    named = [device_of_rank(rank, one) for one in devices.split(", ") if one]
    return ", ".join(named) or device_of_rank(rank, "").rstrip("/")


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _first(several: Iterable[Mapping[_Key, _Value]]) -> dict[_Key, _Value]:
    """All entries, each as the first has it that has one."""
    found: dict[_Key, _Value] = {}
    for one in several:
        found = {**one, **found}
    return found


def _merged(infos: Sequence[RunInfo], run: JobRun) -> RunInfo:
    """What the manifest says of the whole job."""
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
    recording = first.recording
    if recording is not None:
        recording = structs.replace(recording, source=run.name, files=len(infos))
    drops = (*(drop for info in infos for drop in info.drops), *job_drops(job, of_rank))
    unaligned = any(rank.aligned is False for rank in job.ranks)
    return structs.replace(
        first,
        command_line=("profile-sd3", "import", *(str(one.path) for one in run.runs)),
        devices=devices,
        submodules=_submodules(infos),
        pipeline_settings=_first(info.pipeline_settings for info in infos),
        submodule_settings=_first(info.submodule_settings for info in infos),
        attribution=_attribution(infos),
        overhead=_overhead(infos),
        coverage=_coverage(infos),
        compilations=tuple(
            sorted(
                chain.from_iterable(info.compilations for info in infos),
                key=lambda one: one.start_ns,
            )
        ),
        cached_calls=tuple(
            sorted(
                chain.from_iterable(info.cached_calls for info in infos), key=lambda one: one.call
            )
        ),
        recording=recording,
        clocks=structs.replace(first.clocks, aligned=False if unaligned else None),
        host_activities=tuple(sorted(activities, key=lambda one: (one.start_ns, one.duration_ns))),
        drops=drops,
        health=tuple(health),
        shortened=tuple(chain.from_iterable(info.shortened for info in infos)),
        occupancy=tuple(chain.from_iterable(info.occupancy for info in infos)),
        workless=tuple(sorted(chain.from_iterable(info.workless for info in infos))),
        job=job,
    )


def _submodules(infos: Sequence[RunInfo]) -> dict[str, Submodule]:
    """Each as the first rank has it, with the calls of all ranks."""
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
    """What was attributed on all ranks together: by submodule if they recorded themselves; devices
    are of one rank."""
    found: dict[str, Attribution] = {}
    for info in infos:
        for name, one in info.attribution.items():
            before = found.get(name)
            if before is None:
                found[name] = one
                continue
            inside, whole = before.attributed_ns + one.attributed_ns, before.total_ns + one.total_ns
            found[name] = structs.replace(
                before,
                attributed_ns=inside,
                total_ns=whole,
                share=inside / whole if whole else 1.0,
            )
    return found


def _overhead(infos: Sequence[RunInfo]) -> Overhead:
    """What recording cost the rank that took the longest: for it the job waited."""
    return max((info.overhead for info in infos), key=lambda one: one.traced_ns or 0)


def _coverage(infos: Sequence[RunInfo]) -> Coverage | None:
    """How much of what all ranks executed lies in their calls."""
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
