"""Commands of a Kineto import: kernels, copies, collectives and the launches behind them.

Tracks are `stream 7` for kernels, `stream 7 memcpy` for copies from and to the host,
`stream 7 copy` for device copies and memset, and `stream 7 collectives` for NCCL and RCCL. Host
threads are tracks of `cpu:0`, what they wait for devices on ` sync`. What the host did in the
longest gaps of a device is kept as activities.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct, structs
from numpy.typing import ArrayLike, NDArray

from profiler.files import decoded
from profiler.grammars.names import CollectiveKind, collective_kind
from profiler.importers.job_run import Among, InJob, RankCollective, matched_collective
from profiler.importers.kineto.cuda_graphs import Entry
from profiler.importers.kineto.launches import DEVICE_WORK, OPERATORS, Launches, launched_work
from profiler.importers.kineto.modules import (
    PROCESSOR,
    PYTHON,
    RUNTIME,
    ModulePaths,
    ShapeTexts,
    plain_name,
)
from profiler.kineto.arguments import Args, fraction, node_name, whole
from profiler.kineto.events import Event
from profiler.kineto.operators import CollectiveArgs, Scalar, copy_name, kernel_name, queue
from profiler.kineto.trace_file import KinetoTrace, device_name, thread_name
from profiler.trace.columns import CommandBuilder, Int64s, distinct, number_within
from profiler.trace.events import NO_STEP, ROOT_DEVICE, UNKNOWN, Track
from profiler.trace.manifest_fields import (
    ActivityKind,
    HostActivity,
    Job,
    MatchedBy,
    Occupancy,
    Rank,
    Shortened,
)

# --- Commands of an imported run: device work, and the host calls that launched it.
#
# - `layer`: the module path or operator (`kineto_layers`); of a launch, the runtime function.
# - `op_type`: the launching operator (`aten::mm`), of a collective what it does
#   (`nccl:all_reduce`, as torch names its ranges); the kernel's short name if that is unknown,
#   if one graph launch ran many kernels of which no capture tells, and for Triton kernels;
#   `Memcpy HtoD` and the like.
# - `module`: the path of the module that launched it, "" directly in the submodule; if calls are
#   steps of a training without modules, its phase: `forward`, `backward`, `optimizer`.
# - `kernel`: the full name of the kernel; of copies and memset as the trace has it.
# - `shapes`: the launching operator's tensors (`shape_texts`); with ` part 2/5` if the operator
#   launched five kernels and this is its second.


_COMMUNICATED = "record_param_comms"  # what c10d records around any collective
_BACKENDS = ("nccl", "hccl", "xccl")  # of c10d, for devices
_HOST_TRACKS = {"operators": "compute", "host": "host", "waits": "sync"}
PlaceAt = Callable[[int], tuple[str, int]]  # time in ns → stage and step


def _coded(values: Sequence[Hashable]) -> Int64s:
    """A number for each value, int64; equal values get equal numbers."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in values], dtype=np.int64)


class _Work(NamedTuple):
    """A device command without its times."""

    track: Track
    layer: str
    op_type: str
    shapes: str
    kernel: str
    module: str
    bytes_read: int
    bytes_written: int


@dataclass(slots=True)
class CommandWriter:
    """Turns launches into commands, with one builder per call and one for work outside calls."""

    trace: KinetoTrace
    launches: Launches
    paths: ModulePaths
    kind: str
    phases: bool = False  # whether layers start with the phase of training
    replayed: Mapping[int, Entry] = field(default_factory=dict)  # by place among the launches
    prefix: str = ""  # of devices' names: that of a rank
    _kernels: dict[str, str] = field(default_factory=dict)
    _shapes: ShapeTexts = field(default_factory=ShapeTexts)
    _tracks: dict[tuple[object, ...], Track] = field(default_factory=dict)
    _backend: str = field(init=False)  # of collectives
    _asked: Mapping[int, CollectiveKind] = field(init=False)  # `asked_kinds`
    _shared: frozenset[int] = field(init=False)  # launches of several pieces of work
    _parts: tuple[Int64s, Int64s] = field(init=False)  # of launches: `_parts_of_operators`
    _alike: Int64s = field(init=False)  # of each launch: which work it is
    _known: dict[int, _Work] = field(default_factory=dict)
    _by_call: Int64s = field(init=False)
    _waits: dict[int, list[int]] = field(init=False)  # by call
    devices: tuple[str, ...] = field(init=False)  # of each launch

    def __post_init__(self) -> None:
        self.devices = self._devices()
        self._backend = _backend(in_job(self.trace), self.kind)
        self._asked = asked_kinds(self.trace, self.launches.row, self.launches.launch)
        launch, counts = np.unique(self.launches.launch, return_counts=True)
        self._shared = frozenset(launch[(counts > 1) & (launch >= 0)].tolist())
        self._parts = self._parts_of_operators()
        self._alike = self._kinds_of_work()
        self._by_call = np.argsort(self.launches.call, kind="stable")
        self._waits = {}
        for row, call in zip(*(c.tolist() for c in self.launches.waits), strict=True):
            self._waits.setdefault(call, []).append(row)

    def _devices(self) -> tuple[str, ...]:
        events, rows = self.trace.events, self.launches.row
        places = events.category[rows].astype(np.int64) * len(events.threads) + events.thread[rows]
        places = places * (len(events.args.kinds) + 1) + events.args.kinds_of(rows) + 1
        _, first, place = np.unique(places, return_index=True, return_inverse=True)
        names = [self._device(events[row]) for row in rows[first].tolist()]
        texts: dict[str, str] = {}
        names = [texts.setdefault(name, name) for name in names]  # one text each
        return tuple(names[one] for one in place.reshape(-1).tolist())

    def _kinds_of_work(self) -> Int64s:
        """A number for each launch: launches with equal numbers have equal `_Work`."""
        launches, paths, events = self.launches, self.paths, self.trace.events
        modules, module = np.unique(launches.module, return_inverse=True)
        known = [(one < 0, *paths.place(one)) for one in modules.tolist()]
        columns: list[NDArray[Any]] = [
            column[launches.row] for column in (events.name, events.category, events.thread)
        ]
        columns += [events.args.kinds_of(launches.row), _coded(known)[module.reshape(-1)]]
        there = launches.operator >= 0
        operator = (events.name[launches.operator], events.args.kinds_of(launches.operator))
        columns += [np.where(there, column, -1) for column in operator]
        columns += [np.isin(launches.launch, list(self._shared)), *self._parts]
        if launches.training is not None:
            columns.append(_coded(launches.training.phases))
        if self._asked:
            kinds = [self._asked.get(row, CollectiveKind.OTHER) for row in launches.row.tolist()]
            columns.append(_coded(kinds))
        replayed = np.zeros(len(launches), dtype=np.int64)
        replayed[list(self.replayed)] = 1 + _coded([*map(id, self.replayed.values())])
        return distinct(*columns, replayed)[1]

    def by_device(self) -> dict[str, Int64s]:
        """The places among the launches of the work of each device, ascending."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(self.devices):
            found[name].append(place)
        return {name: np.array(found[name], dtype=np.int64) for name in sorted(found)}

    @property
    def root(self) -> str:
        """The name of the host device."""
        return f"{self.prefix}{ROOT_DEVICE}"

    def _device(self, event: Event) -> str:
        """The device that an event names, as `cuda:1`; the root device for host events."""
        if event.cat not in DEVICE_WORK:
            return self.root
        return f"{self.prefix}{device_name(self.kind, self.trace, event)}"

    def _parts_of_operators(self) -> tuple[Int64s, Int64s]:
        """Which kernel of its operator each piece of work is, from 1, and how many the operator
        has; both 0 unless there are several."""
        kernels = self.trace.events.of_category(self.launches.row, "kernel")
        members = np.flatnonzero(kernels & (self.launches.operator >= 0))
        number, count = np.zeros((2, len(self.launches)), dtype=np.int64)
        _, operator, kernels_of = np.unique(
            self.launches.operator[members], return_inverse=True, return_counts=True
        )
        several = kernels_of[operator] > 1
        number[members[several]] = number_within(operator.astype(np.int32))[several] + 1
        count[members[several]] = kernels_of[operator][several]
        return number, count

    def write(self, call: int, builder: CommandBuilder, place_at: PlaceAt | None = None) -> None:
        """Add the commands of a call; for no call (-1), with stage and step by the time of launch.
        A launch follows the first piece of its work."""
        trace, members = self.trace, self._members(call)
        rows, launch = self.launches.row[members], self.launches.launch[members]
        launched = np.flatnonzero(launch >= 0)
        calls, first, of_call = np.unique(launch[launched], return_index=True, return_inverse=True)
        begins = launched[first]  # the piece of work behind which a launch stands
        ahead = np.zeros(len(members), dtype=np.int64)
        ahead[begins[begins + 1 < len(members)] + 1] = 1
        at = np.arange(len(members)) + np.cumsum(ahead)
        call_at = at[begins] + 1

        def each(of_work: ArrayLike, of_calls: ArrayLike) -> Int64s:
            found = np.empty(len(members) + len(calls), dtype=np.int64)
            found[at], found[call_at] = of_work, of_calls
            return found

        times = self.launches.time_ns[members].tolist() if place_at is not None else []
        placed = list(map(place_at, times)) if place_at is not None else []
        place = _coded(placed) if placed else np.zeros(len(members), dtype=np.int64)
        _, kind = distinct(
            each(self._alike[members], trace.events.name[calls]),
            each(-1, trace.thread[calls]),
            each(place, place[begins]),
        )
        member, event = each(np.arange(len(members)), begins), each(rows, calls)
        kinds: dict[int, tuple[int, ...]] = {}
        of_launch = each(0, 1)
        for one in np.sort(np.unique(kind, return_index=True)[1]).tolist():
            stage, step = placed[member[one]] if placed else ("", NO_STEP)
            if of_launch[one]:
                launching = event.item(one)
                track = self._track(("host", trace.thread.item(launching)), launching)
                name = trace.events.name_of(launching)
                kinds[kind.item(one)] = builder.kind(track, name, "", stage=stage, step=step)
            else:
                which = members.item(member.item(one))
                alike = self._alike.item(which)
                if alike not in self._known:
                    self._known[alike] = self._work(which)
                work = self._known[alike]._asdict()
                kinds[kind.item(one)] = builder.kind(**work, stage=stage, step=step)
        texts = [kinds[code] for code in range(len(kinds))]
        begun = builder.add_all(texts, kind, trace.start_ns[event], trace.duration_ns[event])
        builder.link_all(begun + call_at[of_call.reshape(-1)], begun + at[launched])

        for row in self._waits.get(call, ()):
            start, length = self._times(row)
            stage, step = place_at(start) if place_at is not None else ("", NO_STEP)
            track = self._track(("waits", trace.thread.item(row)), row)
            name = trace.events.name_of(row)
            builder.add(track, name, "", start, length, stage=stage, step=step)

    def shortened(self) -> Iterator[Shortened]:
        """Yield the commands whose lengths were corrected by a check."""
        recorded = self.trace.recorded_ns
        for row in self.launches.row.tolist() if recorded else ():
            if row in recorded:
                track = self._work_track(self.trace.events[row], row)
                start, length = self._times(row)
                yield Shortened(
                    device=track.device,
                    track=track.name,
                    start_ns=start,
                    duration_ns=length,
                    recorded_ns=recorded[row],
                )

    def occupancy(self) -> Iterator[Occupancy]:
        """Yield how each kernel filled its device: means over its executions, weighted by time."""
        events, rows = self.trace.events, self.launches.row
        lengths = np.maximum(self.trace.duration_ns[rows], 0).tolist()
        alike: defaultdict[tuple[str, int, int], int] = defaultdict(int)  # their time, by kernel
        codes = (events.name[rows].tolist(), events.args.kinds_of(rows).tolist())
        for device, name, kind, length in zip(self.devices, *codes, lengths, strict=True):
            if kind >= 0:
                alike[device, name, kind] += length
        kernels: dict[tuple[str, str], list[tuple[Args, int]]] = {}
        for (device, name, kind), length in alike.items():
            one = events.args.kinds[kind]
            if (one.occupancy, one.blocks, one.warps) != (None, None, None):
                kernels.setdefault((device, events.names[name]), []).append((one, length))
        for (device, kernel), executions in kernels.items():
            lengths = [length for _, length in executions]
            shares, blocks, warps = (
                [fraction(getattr(one, name)) for one, _ in executions]
                for name in ("occupancy", "blocks", "warps")
            )
            # Kineto has 0 for kernels with more shared memory than its estimate knows of
            pairs = zip(shares, warps, strict=True)
            known = [None if share == 0 and (count or 0) >= 1 else share for share, count in pairs]
            share = _mean(known, lengths)
            yield Occupancy(
                device=device,
                kernel=kernel,
                occupancy_share=None if share is None or share > 100 else share / 100,
                blocks_per_sm=_mean(blocks, lengths),
                warps_per_sm=_mean(warps, lengths),
            )

    def device_of(self, call: int) -> str:
        """The device on which most of a call's work ran, the root device if none did."""
        counts = Counter(self.devices[member] for member in self._members(call).tolist())
        return counts.most_common(1)[0][0] if counts else self.root

    def _members(self, call: int) -> Int64s:
        calls = self.launches.call
        first, last = np.searchsorted(calls, (call, call + 1), sorter=self._by_call).tolist()
        return self._by_call[first:last]

    def _times(self, row: int) -> tuple[int, int]:
        return self.trace.start_ns.item(row), self.trace.duration_ns.item(row)

    def _work(self, member: int) -> _Work:
        row = self.launches.row.item(member)
        event = self.trace.events[row]
        source = self.launches.operator.item(member)
        operator = self.trace.events[source] if source >= 0 else None
        replay = self.replayed.get(member)
        launch = self.launches.launch.item(member)
        if replay is not None:
            operator, launch = replay.operator, -1
        op_type = self._op_type(event, operator, launch, self._asked.get(row))
        label = op_type if operator is None or event.cat == "kernel" else operator.name
        moved = event.args.bytes if event.args and event.cat.startswith("gpu_") else None
        size = whole(moved, UNKNOWN)
        module, paths = self.launches.module.item(member), self.paths
        number, count = (column.item(member) for column in self._parts)
        part, shapes = f" part {number}/{count}" if count else "", ""
        if replay is not None:
            module, paths, part = replay.module, replay.paths, replay.part
        if operator is not None and operator.args is not None:
            shapes = self._shapes.of(operator.name, operator.args, event.name)
        if not shapes and event.args is not None and event.cat == "kernel":  # as Ascend has them
            shapes = self._shapes.of(event.name, event.args, event.name)
        path, layer = paths.path(module), paths.layer(module, label)
        named = node_name(event.args) if replay is None and event.args is not None else ""
        if named:  # a graph is launched in one module, and has the work of many
            path = f"{path}.{named}" if path else named
            layer = f"{path}/{label}"
        training = self.launches.training if module < 0 and self.phases else None
        phase = training.phases[member] if training is not None else ""
        if phase:
            path, layer = phase, f"{phase}/{layer}"
        return _Work(
            self._work_track(event, row),
            layer,
            op_type,
            shapes=shapes + part if shapes else "",
            kernel=event.name if event.cat in DEVICE_WORK else "",
            module=path,
            bytes_read=size if event.cat == "gpu_memcpy" else UNKNOWN,
            bytes_written=size,
        )

    def _op_type(
        self, event: Event, operator: Event | None, launch: int, asked: CollectiveKind | None
    ) -> str:
        if event.cat.startswith("gpu_"):
            is_memset = event.cat == "gpu_memset"
            return event.name.split("(")[0].strip() if is_memset else copy_name(event.name)
        if event.cat != "kernel":  # an operator of a run on the CPU
            return event.name
        kernel = self._kernels.get(event.name)
        if kernel is None:
            kernel = self._kernels[event.name] = kernel_name(event.name)
        if event.args is not None and event.args.op_type:
            kernel = str(event.args.op_type)
        if operator is None or launch in self._shared:
            return kernel
        if operator.name == _COMMUNICATED:
            known = event.args.collective if event.args is not None else None
            kind = collective_kind(str(known)) if known else asked or collective_kind(event.name)
            return operator.name if kind is CollectiveKind.OTHER else f"{self._backend}:{kind}"
        return kernel if kernel.startswith("triton_") else operator.name

    def _track(self, key: tuple[str, int], row: int) -> Track:
        track = self._tracks.get(key)
        if track is None:
            category = _HOST_TRACKS[key[0]]
            suffix = " sync" if category == "sync" else ""
            name = thread_name(self.trace, row) + suffix
            track = self._tracks[key] = Track(self.root, name, category)
        return track

    def _work_track(self, event: Event, row: int) -> Track:
        args = event.args
        stream = args.stream if args and args.stream is not None else event.tid
        if event.cat not in DEVICE_WORK:
            kind = "host" if self.trace.host_only else "operators"
            return self._track((kind, int(self.trace.thread[row])), row)
        suffix, category = queue(event.cat, event.name)
        key = (args.device if args else None, event.pid, stream, suffix)
        track = self._tracks.get(key)
        if track is None:
            device = self._device(event)
            track = self._tracks[key] = Track(device, f"stream {stream}{suffix}", category)
        return track


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    """The mean of the values that are known, by weight; None if that is nothing."""
    pairs = zip(values, weights, strict=True)
    known = [(value, weight) for value, weight in pairs if value is not None]
    whole = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / whole if whole else None


# --- What the host did while devices had nothing to run: kept of Python frames, operators and
# runtime calls, of which the bundle holds only those that launched or waited.
#
# For each of the longest gaps of a device, and of the longest of all devices, one activity, clipped
# to the gap: on the thread that launched what ended it, the innermost range that covers at least
# half of it, else the one that covers most. A processor of inputs (`image_processing_owlv2.py:
# resize`) stands for what it calls (`zoom_shift`). Beside it the longest runtime calls that last
# longer than any launch: what they load or allocate may be the most of a gap together.


_GAPS = 32  # of a device
_GAPS_IN_ALL = 512  # as many as 16 devices have; a file may name any number of them
_LEAST_NS = 100_000  # no launch takes so long
_SLOW_NS = 1_000_000  # of a runtime call
_SLOW = 16  # of a gap
_REPEATED = 10  # calls of one name, from which on they are listed
_BLOCK = 1024  # ranges that are passed over at once
_RANGES = "user_annotation"
_KINDS = {
    PYTHON: ActivityKind.FUNCTION,
    OPERATORS: ActivityKind.OPERATOR,
    **dict.fromkeys(RUNTIME, ActivityKind.RUNTIME_CALL),
    _RANGES: ActivityKind.RANGE,
}


class _Gap(NamedTuple):
    """A time in which a device was idle, and the launch of the work that ended it."""

    start_ns: int
    end_ns: int
    launch: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def host_activities(
    trace: KinetoTrace, launches: Launches, by_device: Mapping[str, Int64s], begin_ns: int
) -> tuple[HostActivity, ...]:
    """What the host did in the longest gaps of devices. `by_device` has the indices of each
    device's launches, `begin_ns` is the start of the first call."""
    rows = trace.rows_of(*_KINDS)
    if not len(rows) or not len(launches):
        return ()
    place = attrgetter("name", "thread", "start_ns", "duration_ns")
    every = [gap for here in by_device.values() for gap in _gaps(trace, launches, here, begin_ns)]
    gaps = nlargest(_GAPS_IN_ALL, every, key=lambda gap: gap.length_ns)
    launching = {int(trace.thread[gap.launch]) for gap in gaps}
    threads = {thread: _Thread.of(trace, rows, thread) for thread in launching}
    most = [threads[int(trace.thread[gap.launch])].activity(gap) for gap in gaps]
    known = [one for one in most if one is not None]
    named = {place(one) for one in known}
    for gap in gaps:
        slow = threads[int(trace.thread[gap.launch])].slow_calls(gap)
        known += [one for one in slow if place(one) not in named]
        named |= {place(one) for one in slow}
    return tuple(sorted(known, key=lambda one: (one.start_ns, one.duration_ns)))


def _gaps(trace: KinetoTrace, launches: Launches, here: Int64s, begin_ns: int) -> list[_Gap]:
    """The longest gaps of a device whose end has a launch, in any order."""
    work = launches.row[here]
    start = trace.start_ns[work]
    end = start + trace.duration_ns[work]
    order = np.argsort(start, kind="stable")
    launch = launches.launch[here][order]
    dry = np.append(begin_ns, np.maximum.accumulate(end[order])[:-1])
    wet = start[order]
    rows = np.flatnonzero((wet - dry > _LEAST_NS) & (launch >= 0))
    longest = rows[np.argsort(dry[rows] - wet[rows], kind="stable")[:_GAPS]]
    return list(map(_Gap, *(column[longest].tolist() for column in (dry, wet, launch))))


class _Thread(Struct, frozen=True, eq=False):
    """Events of a host thread: n `rows` of the trace in order of start, with start and end of each,
    and the latest end in each block of `_BLOCK` rows."""

    trace: KinetoTrace
    rows: Int64s
    start: Int64s
    end: Int64s
    latest: Int64s

    @classmethod
    def of(cls, trace: KinetoTrace, rows: Int64s, thread: int) -> _Thread:
        """The events of a thread among `rows`."""
        rows = rows[trace.thread[rows] == thread]
        rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
        end = trace.start_ns[rows] + trace.duration_ns[rows]
        latest = np.maximum.reduceat(end, np.arange(0, len(end), _BLOCK)) if len(end) else end
        return cls(trace, rows, trace.start_ns[rows], end, latest)

    def activity(self, gap: _Gap) -> HostActivity | None:
        """What the host was in during a gap; None if nothing tells."""
        there, begin, covered = self._covering(gap)
        if not len(there):
            return None
        half = np.flatnonzero(2 * covered >= gap.length_ns)
        kept = half if len(half) else np.flatnonzero(covered == covered.max())
        names = self.trace.events.names_of(self.rows[there[kept]])
        processors = [at for at, name in zip(kept, names, strict=True) if PROCESSOR.search(name)]
        kept = np.array(processors) if processors else kept
        place = kept[np.lexsort((-self.end[there[kept]], self.start[there[kept]]))[-1]]
        until = begin[place] + covered[place]
        whole = (self.start[there] >= begin[place]) & (self.end[there] <= until)
        whole[place] = False
        repeated, times = self._repeated(there[whole])
        found = self._activity_of(there[place], begin[place], covered[place])
        return structs.replace(found, repeated=repeated, times=times)

    def slow_calls(self, gap: _Gap) -> list[HostActivity]:
        """The longest runtime calls during a gap, of those that last longer than any launch and do
        not wait for a device."""
        if gap.length_ns <= _SLOW_NS:
            return []
        there, begin, covered = self._covering(gap)
        found: list[HostActivity] = []
        for place in np.argsort(-covered, kind="stable").tolist():
            if covered[place] <= _SLOW_NS or len(found) == _SLOW:
                break
            event = self.trace.events[self.rows.item(there[place])]
            waits = "synchronize" in event.name.lower()
            if _KINDS[event.cat] is ActivityKind.RUNTIME_CALL and not waits:
                found.append(self._activity_of(there[place], begin[place], covered[place]))
        return found

    def _activity_of(self, place: int, start_ns: int, duration_ns: int) -> HostActivity:
        row = self.rows.item(place)
        event = self.trace.events[row]
        return HostActivity(
            name=plain_name(event.name),
            kind=_KINDS[event.cat],
            thread=thread_name(self.trace, row),
            start_ns=int(start_ns),
            duration_ns=int(duration_ns),
        )

    def _covering(self, gap: _Gap) -> tuple[Int64s, Int64s, Int64s]:
        """Which were open at some time of a gap, from when on and for how long. Blocks of which
        none was, though they started before, are passed over: a thread is in few of its ranges at
        once."""
        first, last, _ = gap
        begun = int(np.searchsorted(self.start, last))
        blocks = np.flatnonzero(self.latest[: -(-begun // _BLOCK)] > first)
        some = (blocks[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        some = some[some < begun]
        there = some[np.flatnonzero(self.end[some] > first)]
        begin = np.maximum(self.start[there], first)
        return there, begin, np.minimum(self.end[there], last) - begin

    def _repeated(self, there: Int64s) -> tuple[str, int]:
        """The most frequent name of some ranges, and its count; "" and 0 if it is rare."""
        names, counts = np.unique(self.trace.events.name[self.rows[there]], return_counts=True)
        times = int(counts.max(initial=0))
        if times < _REPEATED:
            return "", 0
        most = names[counts == times].tolist()
        return plain_name(max(self.trace.events.names[name] for name in most)), times


# --- The collectives of one rank: kernels of NCCL and RCCL, their kinds and numbers.
#
# A collective is known by its process group and number (`Seq`); by its group, kind and order, if
# recorders write no numbers; by its stream, kind and order, if they write no groups.


_BYTES = {  # of an element, by c10's names of types
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("char", "byte", "bool"), 1),
}
_LARGEST = 1 << 50  # bytes of a message
_ASKS = re.compile(r"(nccl|hccl|xccl|c10d::)")


def collectives_of(trace: KinetoTrace) -> list[RankCollective]:
    """The collectives of a trace, in order of their begins."""
    rows = _collective_kernels(trace)
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    counted: Counter[Among] = Counter()
    asked = asked_kinds(trace, *launched_work(trace)) if len(rows) else {}
    return [_rank_collective(trace, row, asked.get(row), counted) for row in rows.tolist()]


def _collective_kernels(trace: KinetoTrace) -> Int64s:
    return trace.rows_named(lambda name: queue("kernel", name)[1] == "collective", "kernel")


def asked_kinds(trace: KinetoTrace, row: Int64s, launch: Int64s) -> dict[int, CollectiveKind]:
    """The kinds of collectives by row, from the innermost operator of c10d, or range of its
    backend, around their launches: some versions of NCCL run every kind by one kernel,
    `ncclKernel_SendRecv…`. `row` and `launch` are those of all work, -1 without a launch."""
    asking = trace.rows_named(lambda name: _ASKS.match(name) is not None, OPERATORS, _RANGES)
    if not len(asking):
        return {}
    own = np.isin(row, _collective_kernels(trace)) & (launch >= 0)
    row, launch = row[own], launch[own]
    ranges = trace.ranges(asking)
    around = ranges.innermost(trace.thread[launch], trace.start_ns[launch])
    names = (trace.events.name_of(ranges.row.item(one)) for one in around[around >= 0].tolist())
    found = zip(row[around >= 0].tolist(), map(collective_kind, names), strict=True)
    return {one: kind for one, kind in found if kind is not CollectiveKind.OTHER}


def _rank_collective(
    trace: KinetoTrace, row: int, asked: CollectiveKind | None, counted: Counter[Among]
) -> RankCollective:
    event, args = trace.events[row], trace.collectives.get(row, CollectiveArgs())
    known = None if args.name is None else collective_kind(str(args.name))
    kind = known or asked or collective_kind(event.name)
    among, matched_by = _among(args, kind)
    if matched_by is MatchedBy.STREAM_ORDER:
        stream = event.args.stream if event.args is not None else event.tid
        among = (str(stream), kind)
    number = counted[among]
    counted[among] += 1
    start = int(trace.start_ns[row])
    size, dtype = whole(args.size, 0), _text(args.dtype).lower()
    element = 1 if dtype.startswith("float8") else _BYTES.get(dtype, 0)
    return RankCollective(
        start_ns=start,
        end_ns=start + int(trace.duration_ns[row]),
        kind=kind,
        group=_text(args.group),
        size=size if size > 0 else None,
        sent_bytes=_bytes(args.sent, element),
        received_bytes=_bytes(args.received, element),
        among=among,
        number=number,
        matched_by=matched_by,
    )


def _among(args: CollectiveArgs, kind: CollectiveKind) -> tuple[Among, MatchedBy]:
    """The key of the collectives with which one is counted, and how ranks match it. With a sequence
    number few share a key, often one."""
    if args.group is None:
        return (), MatchedBy.STREAM_ORDER
    group = (_text(args.group), _text(args.members))
    sequence = whole(args.sequence, -1)
    if sequence >= 0:
        return (*group, kind, str(sequence)), MatchedBy.SEQUENCE
    return (*group, kind), MatchedBy.GROUP_ORDER


def _text(value: Scalar) -> str:
    return "" if value is None else str(value).strip('"')


def _bytes(elements: Scalar, element: int) -> int | None:
    count = whole(elements, -1)
    return count * element if element and 0 <= count < _LARGEST else None


# --- Which rank of its job a trace is of.


def in_job(trace: KinetoTrace) -> InJob | None:
    """The rank and job that a trace names; None if it names none, or an impossible one."""
    raw = bytes(trace.header.distributedInfo)
    try:
        job = decoded(raw, InJob, strict=False) if raw else None
    except msgspec.MsgspecError:
        return None
    if job is None or not 0 <= job.rank < job.world_size < 1 << 31:
        return None
    return InJob(job.rank, job.world_size, job.backend)


def _backend(job: InJob | None, kind: str) -> str:
    """Which backend of c10d runs the collectives of a kind of device: `hccl` of
    `mtia:hccl,cpu:gloo`; nccl, which RCCL is called, too, if the trace says nothing."""
    text = job.backend if job is not None else ""
    named = dict(part.split(":", 1) for part in text.split(",") if ":" in part)
    found = named.get(kind) or named.get("cuda") or ("" if named else text)
    return found.lower() if found.lower() in _BACKENDS else "nccl"


def job_of_one(trace: KinetoTrace, source: str) -> Job | None:
    """The job of a trace that is the only one of its ranks given; None if there is no job of
    several."""
    job = in_job(trace)
    if job is None or job.world_size < 2:
        return None
    own = [one for one in collectives_of(trace) if one.has_details]
    return Job(
        world_size=job.world_size,
        backend=job.backend,
        reference=job.rank,
        ranks=(Rank(rank=job.rank, source=source),),
        collectives=tuple(matched_collective([one], [(job.rank, one.start_ns)]) for one in own),
    )
