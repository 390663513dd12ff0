"""Join the bundles of a job's ranks, each of which recorded itself, as one run.

    import_trace([Path("traces/run"), Path("traces/run-2")], Path("job"))

Ranks on one machine share CLOCK_MONOTONIC, and each bundle has its offset from that, so these
clocks are aligned exactly. Others are aligned by collectives, as ranks of torch.profiler are.
"""

from __future__ import annotations

import re
from collections import Counter as Counted
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from profiler.errors import InputError
from profiler.grammars.names import collective_kind
from profiler.importers.foreign_run import PlacedCall
from profiler.importers.formats import ranks_in
from profiler.importers.job_run import (
    AlignedRank,
    Among,
    InJob,
    JobRun,
    RankCollective,
    aligned_ranks,
    check_one_job,
    job_of_ranks,
    name_of,
    placed_ranks,
)
from profiler.text import Note
from profiler.trace.bundle import HOST_NAME
from profiler.trace.columns import (
    CommandBuilder,
    CommandColumns,
    Counter,
    TraceColumns,
    number_within,
    read_trace,
)
from profiler.trace.events import (
    CPU_DEVICE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
    Span,
    Track,
    device_of_rank,
)
from profiler.trace.manifest import MANIFEST_NAME, Manifest, RunInfo, read_manifest
from profiler.trace.manifest_fields import MatchedBy, Rank

# --- A trace of ours → its commands and samples, as before they were written.


def _devices(trace: TraceColumns) -> list[str]:
    """The device of each track: the name of the track above it."""
    return [trace.tracks[row.parent].name if row.parent >= 0 else "" for row in trace.tracks]


def commands_in(trace: TraceColumns, prefix: str, clock: AlignedRank) -> CommandColumns:
    """The commands of a trace on the job's clock; `prefix` is prepended to device names."""
    slices, devices = trace.slices, _devices(trace)
    count = max(len(trace.strings), 1)
    places, track = np.unique(
        slices.track.astype(np.int64) * count + slices.category, return_inverse=True
    )
    tracks: dict[Track, int] = {}
    numbers = []
    for row, category in (divmod(place, count) for place in places.tolist()):
        one = Track(prefix + devices[row], trace.tracks[row].name, trace.strings[category])
        numbers.append(tracks.setdefault(one, len(tracks)))
    start_ns = clock.moved(slices.start_ns)
    order = np.argsort(start_ns, kind="stable")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    taken: dict[str, Any] = {name: getattr(slices, name)[order] for name in _TAKEN}
    taken["name"] = np.where(taken["name"] == taken["layer"], 0, taken["name"])
    index = taken["command_index"]
    known = bool((index >= 0).all())
    return CommandColumns(
        tracks=tuple(tracks),
        strings=trace.strings,
        track=np.array(numbers, dtype=np.int32)[track.reshape(-1)][order],
        start_ns=start_ns[order],
        flows=position[trace.flows],
        **{**taken, "command_index": index if known else number_within(taken["layer"])},
    )


_TAKEN = (
    *("layer", "command_index", "op_type", "role", "shapes", "stage", "step", "pipeline"),
    *("kernel", "module", "name", "duration_ns", "bytes_read", "bytes_written", "flops"),
)


def counters_in(trace: TraceColumns, prefix: str, clock: AlignedRank) -> list[Counter]:
    """The samples of a trace on the job's clock, by device and name."""
    devices, samples = _devices(trace), trace.counters
    times = clock.moved(samples.time_ns)
    found = []
    for number in np.unique(samples.track).tolist():
        rows, row = samples.track == number, trace.tracks[number]
        values = samples.value[rows]
        whole = values.astype(np.int64)
        found.append(
            Counter(
                prefix + devices[number],
                row.name,
                "bytes" if row.unit == "bytes" else "count",
                times[rows],
                whole if bool((whole == values).all()) else values,
            )
        )
    return found


# --- One rank: its bundle, on the job's clock.


@dataclass(frozen=True, eq=False)
class RankBundle:
    """The bundle of a rank; `lost` collects drops for what cannot be read."""

    path: Path
    manifest: Manifest
    clock: AlignedRank = field(default_factory=AlignedRank)
    lost: list[Drop] = field(default_factory=list)

    @property
    def rank(self) -> Rank:
        """The rank and its clock, as in the manifest."""
        job = self.manifest.info.job
        if job is None or len(job.ranks) != 1:
            raise InputError(f"{self.path} is not the bundle of one rank: give those of all ranks")
        return job.ranks[0]

    @property
    def prefix(self) -> str:
        """The prefix of the names of its devices."""
        return device_of_rank(self.rank.rank, "")

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.manifest.run_id

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The codes of what was recorded."""
        return self.manifest.info.capabilities

    def extent(self) -> tuple[int, int]:
        """Start of the first call and end of the last."""
        calls = [entry.call for entry in self.manifest.calls]
        first = min((call.start_ns for call in calls), default=0)
        return first, max((call.end_ns for call in calls), default=first)

    def call_ends(self) -> list[int]:
        """When each of its calls returned."""
        ends = [entry.call.end_ns for entry in self.manifest.calls]
        return self._moved(ends)

    def call(self, number: int, index: int) -> PlacedCall:
        """Return one of its calls with `index` as its number in the job."""
        entry = self.manifest.calls[number]
        trace = self._read(entry.file)
        call = entry.call
        commands, counters = CommandBuilder().build(), list[Counter]()
        if trace is not None:
            call = next((one for one in trace.calls if one.index == call.index), call)
            commands = commands_in(trace, self.prefix, self.clock)
            counters = counters_in(trace, self.prefix, self.clock)
        return PlacedCall(self._placed(call, index), commands, counters)

    def _placed(self, call: Call, index: int) -> Call:
        (start,) = self._moved([call.start_ns])
        return replace(call, index=index, device=self.prefix + call.device, start_ns=start)

    def _moved(self, times: Sequence[int]) -> list[int]:
        moved: list[int] = self.clock.moved(np.array(times, dtype=np.int64)).tolist()
        return moved

    def host(self) -> CommandColumns:
        """The commands outside calls."""
        if self._host is None:
            return CommandBuilder().build()
        return commands_in(self._host, self.prefix, self.clock)

    def free_counters(self) -> list[Counter]:
        """The samples outside calls."""
        return [] if self._host is None else counters_in(self._host, self.prefix, self.clock)

    def spans(self) -> Iterator[tuple[int, Span]]:
        """The spans of its pipeline calls, with the numbers of these."""
        for span in self._host.spans if self._host is not None else ():
            (start,) = self._moved([span.start_ns])
            yield span.pipeline, replace(span, start_ns=start)

    @cached_property
    def _host(self) -> TraceColumns | None:
        return self._read(HOST_NAME) if HOST_NAME in self.manifest.files else None

    def traces(self) -> Iterator[TraceColumns]:
        """Yield the traces of its calls, and of what ran outside."""
        for name in (*(entry.file for entry in self.manifest.calls), HOST_NAME):
            trace = self._read(name)
            if trace is not None:
                yield trace

    def _read(self, name: str) -> TraceColumns | None:
        """A file of the bundle; None, and a drop in `lost`, if it cannot be read."""
        path, where = self.path / name, self.prefix + name
        try:
            trace = read_trace(path)
        except InputError as error:
            note = Note.of(DropReason.ERROR, error=str(error))
            drop = Drop(DropKind.MISSING_FILE, where, 1, "files", note)
            if path.is_file():
                drop = Drop(DropKind.TRUNCATED_FILE, where, UNKNOWN, "bytes", note)
            self._lose([drop])
            return None
        self._lose([replace(drop, where=where) for drop in trace.drops])
        return trace

    def _lose(self, drops: Sequence[Drop]) -> None:
        self.lost.extend(drop for drop in drops if drop not in self.lost)

    def info(self, calls: Sequence[Call]) -> RunInfo:
        """The manifest, with the job's device names and call numbers."""
        info = self.manifest.info
        numbers = {
            entry.call.index: call.index
            for entry, call in zip(self.manifest.calls, calls, strict=True)
        }

        def on(device: str) -> str:
            return self.prefix + device if device else device

        def number(call: int) -> int:
            return numbers.get(call, -1)

        return structs.replace(
            info,
            devices={on(name): one for name, one in info.devices.items()},
            submodules={
                name: structs.replace(
                    one,
                    device=on(one.device),
                    runtime_calls=tuple((at, number(call)) for at, call in one.runtime_calls),
                    workloads=tuple((a, b, number(call)) for a, b, call in one.workloads),
                )
                for name, one in info.submodules.items()
            },
            attribution={
                on(name) if name in info.devices else name: one
                for name, one in info.attribution.items()
            },
            compilations=tuple(
                structs.replace(one, call=number(one.call), start_ns=self._moved([one.start_ns])[0])
                for one in info.compilations
            ),
            cached_calls=tuple(
                structs.replace(one, call=numbers[one.call])
                for one in info.cached_calls
                if one.call in numbers
            ),
            occupancy=tuple(structs.replace(one, device=on(one.device)) for one in info.occupancy),
            shortened=tuple(
                structs.replace(one, device=on(one.device), start_ns=self._moved([one.start_ns])[0])
                for one in info.shortened
            ),
            workless=tuple(numbers[call] for call in info.workless if call in numbers),
            host_activities=tuple(
                structs.replace(one, start_ns=self._moved([one.start_ns])[0])
                for one in info.host_activities
            ),
            drops=(
                *(replace(drop, where=self.prefix + drop.where) for drop in info.drops),
                *self.lost,
            ),
        )


# --- All ranks of a job, on the clock of the lowest.


def read_run(paths: Sequence[Path]) -> JobRun:
    """Read the bundles of a job's ranks, or those in folders. Raises InputError if they are not of
    one job."""
    bundles = [bundle for path in paths for bundle in ranks_in(path)]
    ranks = sorted(
        (RankBundle(path, read_manifest(path / MANIFEST_NAME)) for path in bundles),
        key=lambda one: one.rank.rank,
    )
    jobs = [_in_job(one) for one in ranks]
    paths = [one.path for one in ranks]
    check_one_job(paths, jobs)
    aligned = aligned_ranks([list(_collectives(one)) for one in ranks])
    aligned = [_by_machine(one, ranks[0], clock) for one, clock in zip(ranks, aligned, strict=True)]
    aligned = placed_ranks([one.extent() for one in ranks], aligned)
    runs = [replace(one, clock=clock) for one, clock in zip(ranks, aligned, strict=True)]
    job = job_of_ranks(jobs, [path.name for path in paths], aligned)
    known = {one.rank.rank: one.rank for one in ranks}
    job = structs.replace(
        job,
        ranks=tuple(
            structs.replace(
                one, local_rank=known[one.rank].local_rank, machine=known[one.rank].machine
            )
            for one in job.ranks
        ),
    )
    return JobRun(name_of(paths, runs), tuple(runs), job)


def _in_job(one: RankBundle) -> InJob:
    job, rank = one.manifest.info.job, one.rank.rank
    size = job.world_size if job is not None else 0
    return InJob(rank, size, job.backend if job is not None else "", job.name if job else "")


def _by_machine(one: RankBundle, first: RankBundle, clock: AlignedRank) -> AlignedRank:
    """The clock of a rank, aligned by the clock of the machine if the first rank ran there, too."""
    own, other = (each.manifest.info.clocks.monotonic_offset_ns for each in (one, first))
    same_machine = one.rank.machine and one.rank.machine == first.rank.machine
    if one is first or not same_machine or own is None or other is None:
        return clock
    return replace(
        clock,
        offset_ns=other - own,
        drift=0.0,
        aligned=True,
        residual_ns=clock.residual_ns or 0,
        worst_ns=clock.worst_ns or 0,
    )


def _collectives(one: RankBundle) -> Iterator[RankCollective]:
    """Yield the collectives of a rank in order of start, by stream, kind and order. Bundles of CPUs
    are not read: they have none."""
    if all(re.match(CPU_DEVICE, device) for device in one.manifest.info.devices):
        return
    found = []
    for trace in one.traces():
        commands = commands_in(trace, "", AlignedRank())
        for row, start, end in _collective_rows(commands):
            found.append(
                (start, end, commands.tracks[commands.track[row]].name, _name(commands, row))
            )
    counted: Counted[Among] = Counted()
    for start, end, stream, name in sorted(found):
        kind = collective_kind(name)
        among = (stream, kind)
        yield RankCollective(
            start, end, kind, "", None, None, None, among, counted[among], MatchedBy.STREAM_ORDER
        )
        counted[among] += 1


def _collective_rows(commands: CommandColumns) -> Iterator[tuple[int, int, int]]:
    numbers = [n for n, track in enumerate(commands.tracks) if track.category == "collective"]
    rows = np.flatnonzero(np.isin(commands.track, numbers))
    start, end = commands.start_ns[rows], commands.end_ns[rows]
    yield from zip(rows.tolist(), start.tolist(), end.tolist(), strict=True)


def _name(commands: CommandColumns, row: int) -> str:
    """The name of a command's kernel, else its layer."""
    kernel = commands.kernel[row] if commands.kernel is not None else 0
    return commands.strings[kernel] or commands.strings[commands.layer[row]]
