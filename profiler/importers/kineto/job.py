"""The traces of several processes of one job → one run.

They belong together by what `distributedInfo` says: the same number of processes and the same
backend, each rank once. Their times are laid onto the clock of the lowest rank by collectives
(`rank_clocks`); a rank that too few relate to the others keeps its own, and a drop says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from profiler.errors import InputError
from profiler.events import ROOT_DEVICE, Span, device_of_rank
from profiler.importers.head import head_of
from profiler.importers.kineto.collectives import collectives_of
from profiler.importers.kineto.described import described
from profiler.importers.kineto.job_info import InJob, in_job, job_drops, job_of_ranks
from profiler.importers.kineto.rank_clocks import AlignedRank, aligned_ranks
from profiler.importers.kineto.read import KinetoRun, run_of
from profiler.kineto.trace_file import KinetoTrace, read_kineto
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import Attribution, Device, Submodule
from profiler.trace.manifest_ranks import Job

__all__ = ["JobRun", "read_job", "says_its_rank", "traces_in"]

_ENDINGS = (".json", ".json.gz")
_JOB = b'"distributedInfo"'
_LOOKED_AT = 64  # files of a folder, before it is none of a job


@dataclass(frozen=True, slots=True)
class JobRun:
    """The ranks of a job, in order of their numbers, on one clock."""

    name: str
    runs: tuple[KinetoRun, ...]
    job: Job

    @property
    def capabilities(self) -> set[str]:
        """What any of the ranks tells."""
        return set[str]().union(*(run.capabilities for run in self.runs))

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """The ranges that the program named, of all ranks."""
        for run in self.runs:
            yield from run.landmarks()

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, in the order in which all of them returned."""
        places = [
            (call.range.end_ns, rank, number)
            for rank, run in enumerate(self.runs)
            for number, call in enumerate(run.calls)
        ]
        calls = [
            (rank, self.runs[rank].write_call(bundle, number, index))
            for index, (_, rank, number) in enumerate(sorted(places))
        ]
        builder = CommandBuilder()
        for run in self.runs:
            run.add_host(builder)
        counters = [counter for run in self.runs for counter in run.free_counters()]
        bundle.write_host(_spans(self.runs), builder.build(), ROOT_DEVICE, counters)
        told = [
            described(run, [call for rank, call in calls if rank == number])
            for number, run in enumerate(self.runs)
        ]
        return _merged(told, self)


def traces_in(folder: Path, limit: int | None = None) -> list[Path]:
    """The traces in a folder that say of which rank they are; with a `limit` at most the first."""
    named = sorted(path for path in folder.iterdir() if path.name.endswith(_ENDINGS))
    found = []
    for path in named if limit is None else named[:_LOOKED_AT]:
        if path.is_file() and says_its_rank(path):
            found.append(path)
            if len(found) == limit:
                break
    return found


def says_its_rank(path: Path) -> bool:
    """Whether a trace says of which rank of a job it is."""
    return _JOB in head_of(path)


def read_job(paths: Sequence[Path]) -> KinetoRun | JobRun:
    """The run of several traces. Raises InputError where they are not of one job, or one of them
    cannot be read."""
    traces = [read_kineto(path) for path in paths]
    told = _told(paths, traces)
    order = sorted(range(len(paths)), key=lambda number: told[number].rank)
    paths, traces = [paths[i] for i in order], [traces[i] for i in order]
    told = [told[i] for i in order]
    aligned = _placed(traces, aligned_ranks([collectives_of(trace) for trace in traces]))
    runs = tuple(
        run_of(_moved(trace, clock), path, prefix=device_of_rank(one.rank, ""))
        for trace, path, clock, one in zip(traces, paths, aligned, told, strict=True)
    )
    job = job_of_ranks(told, [path.name for path in paths], aligned)
    return JobRun(_name_of(paths, runs), runs, job)


def _told(paths: Sequence[Path], traces: Sequence[KinetoTrace]) -> list[InJob]:
    """What each trace says of its job. Raises InputError where it is not the same one."""
    found: list[InJob] = []
    owner: dict[int, Path] = {}
    for path, trace in zip(paths, traces, strict=True):
        told = in_job(trace)
        if told is None:
            raise InputError(
                f"{path} does not say of which rank it is (distributedInfo), and {len(paths)} "
                "traces are one run where they are of one job: give one"
            )
        found.append(told)
        if (told.world_size, told.backend) != (found[0].world_size, found[0].backend):
            raise InputError(
                f"{path} is of a job of {told.world_size} ranks ({told.backend or 'no backend'}), "
                f"{paths[0]} of one of {found[0].world_size} ({found[0].backend or 'no backend'}): "
                "give traces of one job"
            )
        if told.rank in owner:
            raise InputError(
                f"{owner[told.rank]} and {path} are both of rank {told.rank}: give one trace a rank"
            )
        owner[told.rank] = path
    return found


def _placed(traces: Sequence[KinetoTrace], aligned: Sequence[AlignedRank]) -> list[AlignedRank]:
    """`aligned`, where ranks on a clock of their own begin with the job if by that clock they did
    not run at the same time: nobody knows when they did."""
    first, last = int(traces[0].start_ns.min()), int(traces[0].end_ns.max())
    found = []
    for trace, clock in zip(traces, aligned, strict=True):
        begin, end = int(trace.start_ns.min()), int(trace.end_ns.max())
        apart = clock.aligned is False and (begin > last or end < first)
        found.append(replace(clock, offset_ns=first - begin) if apart else clock)
    return found


def _moved(trace: KinetoTrace, clock: AlignedRank) -> KinetoTrace:
    """A trace on the job's clock."""
    if not clock.offset_ns and not clock.drift:
        return trace
    start, memory = clock.moved(trace.start_ns), clock.moved(trace.memory_ns)
    return replace(trace, start_ns=start, memory_ns=memory)


def _name_of(paths: Sequence[Path], runs: Sequence[KinetoRun]) -> str:
    """What the files are called alike; their folder where that is nothing."""
    folders = {path.resolve().parent for path in paths}
    if len(folders) == 1:
        return folders.pop().name
    names = {run.name for run in runs}
    return names.pop() if len(names) == 1 else paths[0].resolve().parent.parent.name


def _spans(runs: Sequence[KinetoRun]) -> list[Span]:
    """The spans of the job: each from the first rank's begin to the last one's end."""
    found: dict[tuple[str, str, str, int, int], Span] = {}
    for run in runs:
        for number, staging in enumerate(run.stagings):
            for span in staging.spans():
                name = "" if span.kind == "pipeline" else span.name
                key = (span.kind, name, span.stage, span.step, number)
                found[key] = _around(found[key], span) if key in found else span
    return list(found.values())


def _around(one: Span, other: Span) -> Span:
    start = min(one.start_ns, other.start_ns)
    end = max(one.start_ns + one.duration_ns, other.start_ns + other.duration_ns)
    return replace(one, start_ns=start, duration_ns=end - start)


def _merged(told: Sequence[RunInfo], run: JobRun) -> RunInfo:
    """What the manifest says of the whole job."""
    first, job = told[0], run.job
    devices: dict[str, Device] = {}
    submodules: dict[str, Submodule] = {}
    attribution: dict[str, Attribution] = {}
    of_rank: dict[int, str] = {}
    activities = []
    for rank, info in zip(job.ranks, told, strict=True):
        lost = {"aligned": False} if rank.aligned is False else {}
        devices |= {name: structs.replace(one, **lost) for name, one in info.devices.items()}
        submodules = dict(info.submodules) | submodules
        attribution |= info.attribution
        of_rank[rank.rank] = device_of_rank(rank.rank, ROOT_DEVICE)
        activities += [
            structs.replace(one, thread=device_of_rank(rank.rank, one.thread))
            for one in info.host_activities
        ]
    recording = first.recording
    if recording is not None:
        recording = structs.replace(recording, source=run.name, files=len(told))
    drops = (*(drop for info in told for drop in info.drops), *job_drops(job, of_rank))
    unaligned = any(rank.aligned is False for rank in job.ranks)
    return structs.replace(
        first,
        command_line=("profile-sd3", "import", *(str(one.path) for one in run.runs)),
        devices=devices,
        submodules=submodules,
        attribution=attribution,
        recording=recording,
        clocks=structs.replace(first.clocks, aligned=False if unaligned else None),
        host_activities=tuple(sorted(activities, key=lambda one: (one.start_ns, one.duration_ns))),
        drops=drops,
        job=job,
    )
