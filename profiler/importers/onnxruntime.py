"""Import ONNX Runtime profiles: each `session.run` is a call, each node a command.

    import_trace(Path("unet_2026-05-01_10-11-12.json"), Path("traces"))
    import_trace(Path("profiles"), Path("traces"))          # several sessions of one run

Nodes of asynchronous providers (CUDA, TensorRT, ROCm) have times of the host that launches: they
are work of `cpu:0` if no device work is recorded, else host commands. Builds with CUPTI or
roctracer add the kernels. Wall time is only in the file name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

import numpy as np
from msgspec.structs import replace as replaced

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    CallLabels,
    ForeignRunBuilder,
    PlacedCall,
    call_at,
    component,
    stages,
)
from profiler.importers.formats import ort_profiles_in
from profiler.kineto.operators import kernel_name, queue
from profiler.ort_profiles import (
    EVENT_CAP,
    KNOWN,
    NO_THREAD,
    CommandTable,
    KernelEvent,
    NodeColumns,
    NodeKind,
    Placed,
    ProfiledRun,
    Unread,
    device_of_provider,
    in_turn,
    once,
    read_profile,
    without_misfits,
)
from profiler.trace.columns import CommandColumns, Int64s
from profiler.trace.events import (
    NO_ITERATION,
    ROOT_DEVICE,
    UNKNOWN,
    Category,
    DropKind,
    DropReason,
    Track,
)
from profiler.trace.manifest_fields import (
    LARGEST,
    ClockName,
    Clocks,
    Device,
    HealthAction,
    HealthNote,
    HealthRule,
)

# --- The devices of providers, as far as a profile shows them: there is no session to ask.


_LAUNCHING = ("cuda", "rocm", "tensorrt", "dml", "webgpu", "js")
_UNKNOWN_DEVICE = "npu:0"


@lru_cache(maxsize=256)
def device_of(provider: str) -> str:
    """The device of a provider; `npu:0` for unknown providers."""
    device = device_of_provider(provider, {})
    return device if device == ROOT_DEVICE or provider in KNOWN else _UNKNOWN_DEVICE


def launches(provider: str) -> bool:
    """Whether a provider's nodes only launch work of its device."""
    return device_of(provider).partition(":")[0] in _LAUNCHING


# --- What GPUs executed, in the runs of a session: commands of the device beside the nodes that
# launched them.
#
# Builds of ONNX Runtime with CUPTI or roctracer write it as events of category `Kernel`, and from
# 1.13 on the node that launched each; a run is told by that, else by the time.


_SLACK = 2_000  # ns: starts and durations are cut to whole µs
_ENDS = re.compile(r"(Host|Device)(?:Array)?To(Host|Device)")  # the ends of a copy
_COPY = re.compile(r"Mem(cpy|set)")
_NEVER = 1 << 62
_TOGETHER = 64  # overlapping runs that are searched
_NO_TRACK = Track("", "", "other")
_NO_FLOWS: Int64s = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class KernelKind(NodeKind):
    """The common properties of a kernel's executions for a node on a stream."""

    track: Track = _NO_TRACK
    kernel: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """The runs with their kernels added to the nodes, and each run's flows from nodes to kernels,
    int64 [m, 2]. `lost` counts kernels without a run, `by_end` those whose starts were computed
    from ends."""

    runs: tuple[ProfiledRun, ...]
    flows: tuple[Int64s, ...]
    lost: int = 0
    by_end: int = 0


def add_kernels(
    runs: Sequence[ProfiledRun], kernels: Sequence[KernelEvent], device_of: Callable[[str], str]
) -> Launched:
    """Add kernels to their runs. `device_of` returns the device on which a provider launches, "" if
    it launches nothing."""
    if not runs or not kernels:
        return Launched(tuple(runs), (_NO_FLOWS,) * len(runs), lost=len(kernels))
    known = [kernel for kernel in kernels if kernel.duration_ns >= 0]
    by_end = _told_by_end(known)
    if by_end:
        known = [replace(one, start_ns=one.start_ns - one.duration_ns) for one in known]
    placing = _Placing(runs, device_of)
    for kernel in known:
        placing.add(kernel)
    found = [placing.run(number) for number in range(len(runs))]
    placed = sum(map(len, placing.rows))
    return Launched(
        runs=tuple(run for run, _ in found),
        flows=tuple(flows for _, flows in found),
        lost=len(kernels) - placed,
        by_end=placed if by_end else 0,
    )


def _told_by_end(kernels: Sequence[KernelEvent]) -> bool:
    """Whether the kernels' times are ends, as in ONNX Runtime up to 1.9. A stream runs one kernel
    at a time, so the reading with fewer overlaps is taken. Files that name parents are newer."""
    if any(kernel.parent for kernel in kernels):
        return False
    streams: dict[str, list[tuple[int, int]]] = {}
    for kernel in kernels:
        streams.setdefault(kernel.stream, []).append((kernel.start_ns, kernel.duration_ns))
    begins = ends = 0
    for times in streams.values():
        start, duration = np.array(sorted(times), dtype=np.int64).T
        begins += int((start[:-1] + duration[:-1] > start[1:] + _SLACK).sum())
        ends += int((start[1:] - duration[1:] < start[:-1] - _SLACK).sum())
    return ends < begins


class _Placing:
    """Assigns kernels to runs: `rows` has the kernels of each run, with their device and the row of
    the node that launched them, -1 if not known."""

    def __init__(self, runs: Sequence[ProfiledRun], device_of: Callable[[str], str]) -> None:
        self._runs = runs
        self._kinds: list[NodeKind] = list(runs[0].nodes.kinds)
        self._codes: dict[KernelKind, int] = {}
        self._streams: dict[str, str] = {}
        self._devices = [device_of(kind.provider) for kind in self._kinds]
        devices = sorted({device for device in self._devices if device})
        self._device = devices[0] if len(devices) == 1 else ""
        self._order = sorted(range(len(runs)), key=lambda number: runs[number].start_ns)
        self._begins = [runs[number].start_ns for number in self._order]
        self._latest = list(accumulate((_end(runs[number]) for number in self._order), max))
        self._nodes: dict[int, dict[tuple[int, str], int]] = {}
        self.rows: list[list[tuple[KernelEvent, str, int]]] = [[] for _ in runs]

    def add(self, kernel: KernelEvent) -> None:
        """Give a kernel to its run, if there is one and its device is known."""
        at = kernel.start_ns if kernel.parent is None else kernel.parent[0]
        number, row = self._run_at(at, kernel.parent)
        if number < 0:
            return
        device = self._device
        if row >= 0:
            device = self._devices[int(self._runs[number].nodes.kind[row])]
        if device:
            self.rows[number].append((kernel, device, row))

    def run(self, number: int) -> tuple[ProfiledRun, Int64s]:
        """A run with its kernels behind its nodes, and the flows between them."""
        run, rows = self._runs[number], self.rows[number]
        nodes = replace(run.nodes, kinds=self._kinds)
        if not rows:
            return replace(run, nodes=nodes), _NO_FLOWS
        launch = np.array([row for *_, row in rows])
        of_kernels = NodeColumns(
            kinds=self._kinds,
            kind=np.fromiter(self._codes_of(number), dtype=np.int32),
            thread=np.full(len(rows), NO_THREAD),
            start_ns=np.array([kernel.start_ns for kernel, *_ in rows]),
            duration_ns=np.array([kernel.duration_ns for kernel, *_ in rows]),
            arena_bytes=np.full(len(rows), UNKNOWN),
        )
        behind = np.arange(len(nodes), len(nodes) + len(rows))
        flows = np.stack((launch, behind), axis=1)[launch >= 0]
        return replace(run, nodes=NodeColumns.joined([nodes, of_kernels])), flows

    def _codes_of(self, number: int) -> Iterator[int]:
        """Yield the kinds of a run's kernels. Several kernels of one node are numbered as parts."""
        nodes, rows = self._runs[number].nodes, self.rows[number]
        several = Counter(row for kernel, _, row in rows if _lane(kernel)[1] == "compute")
        seen: Counter[int] = Counter()
        for kernel, device, row in rows:
            node = self._kinds[int(nodes.kind[row])] if row >= 0 else None
            shapes = ""
            if node is not None and node.shapes.strip(" ->") and _lane(kernel)[1] == "compute":
                seen[row] += 1
                part = f" part {seen[row]}/{several[row]}" if several[row] > 1 else ""
                shapes = f"{node.shapes}{part}"
            yield self._code(kernel, node, device, shapes)

    def _run_at(self, time_ns: int, parent: tuple[int, str] | None) -> tuple[int, int]:
        """The run around a time, and the row of the parent node in it; -1 for none. If runs
        overlap, it is the one with the parent."""
        around: list[int] = []
        place = bisect_right(self._begins, time_ns + _SLACK) - 1
        while place >= 0 and self._latest[place] >= time_ns - _SLACK and len(around) < _TOGETHER:
            run = self._runs[self._order[place]]
            if _end(run) >= time_ns - _SLACK:
                around.append(self._order[place])
            place -= 1
        for number in around:
            row = self._rows_of(number).get(parent, -1) if parent else -1
            if row >= 0:
                return number, row
        return (around[0], -1) if len(around) == 1 else (-1, -1)

    def _rows_of(self, number: int) -> dict[tuple[int, str], int]:
        """The rows of a run's nodes by start and name."""
        if number not in self._nodes:
            nodes = self._runs[number].nodes
            names = (kind.name for kind in nodes.each())
            pairs = zip(nodes.start_ns.tolist(), names, strict=True)
            self._nodes[number] = {pair: row for row, pair in enumerate(pairs)}
        return self._nodes[number]

    def _code(self, kernel: KernelEvent, node: NodeKind | None, device: str, shapes: str) -> int:
        lane, category = _lane(kernel)
        stream = kernel.stream  # CUDA's own number; ROCm's addresses are numbered
        if not (stream.isascii() and stream.isdigit() and len(stream) < 6):
            stream = self._streams.setdefault(stream, str(len(self._streams)))
        kind = KernelKind(
            name=node.name if node else kernel.op_type or kernel_name(kernel.name),
            op_type=kernel.op_type or (node.op_type if node else kernel_name(kernel.name)),
            provider=node.provider if node else "",
            shapes=shapes,
            track=Track(device, f"stream {stream}{lane}", category),
            kernel=kernel.name,
        )
        if kind not in self._codes:
            self._codes[kind] = len(self._kinds)
            self._kinds.append(kind)
        return self._codes[kind]


def _end(run: ProfiledRun) -> int:
    return run.end_ns if run.duration_ns >= 0 else _NEVER


def _lane(kernel: KernelEvent) -> tuple[str, Category]:
    ends = _ENDS.search(kernel.name)
    if ends is not None:
        return (" memcpy", "dma") if ends[1] != ends[2] else (" copy", "copy")
    return (" copy", "copy") if _COPY.search(kernel.name) else queue("kernel", kernel.name)


# --- The sessions of the given profiles: the session of each file, and its start.
#
# ONNX Runtime's times count from the start of a session's profile, and wall time stands in the
# file's name alone, to the millisecond (`vae_decoder_2026-05-01_10-11-12_301.json`), in older
# versions to the second.


_NAMED = re.compile(r"(?P<name>.*?)_*(?P<time>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)(?:_(?P<ms>\d{3}))?")
_SECOND, _MILLISECOND = 1_000_000_000, 1_000_000
_DEFAULT = "onnxruntime_profile"


@dataclass(frozen=True, slots=True)
class Session:
    """One profile. `name` is the session's name. `begin_ns` is the start by the file's name, to
    within `within_ns`; None if the name has none. `damaged` counts lines that are not events,
    `outside` nodes of no run, `twice` duplicate nodes, `longer` runs that were shortened; a `full`
    profile has as many events as ONNX Runtime records. The runs are in `launched`, with the kernels
    of GPUs."""

    path: Path
    name: str
    begin_ns: int | None
    within_ns: int
    launched: Launched
    damaged: int
    outside: int
    twice: int
    longer: int
    full: bool

    @property
    def runs(self) -> tuple[ProfiledRun, ...]:
        return self.launched.runs

    @property
    def kinds(self) -> Sequence[NodeKind]:
        """The distinct kinds of its nodes."""
        return self.runs[0].nodes.kinds if self.runs else ()


def read_sessions(paths: Sequence[Path]) -> list[Session]:
    """The sessions in some files and folders, in order of start.

    Raises InputError if none has a run, or if there are several and one has no start.
    """
    files = [
        file for path in paths for file in (ort_profiles_in(path) if path.is_dir() else [path])
    ]
    sessions = [_read(path) for path in files]
    with_runs = [session for session in sessions if session.runs]
    if not with_runs:
        named = ", ".join(map(str, paths[:3]))
        if damaged := sum(session.damaged for session in sessions):
            raise InputError(
                f"{named} holds no whole session.run, and what is no event ({damaged}): "
                "copy it again, or record again"
            )
        raise InputError(
            f"{named} holds no session.run: end profiling after the runs that are to be seen"
        )
    unknown = next((session.path for session in with_runs if session.begin_ns is None), None)
    if len(with_runs) > 1 and unknown is not None:
        raise InputError(
            f"{unknown} does not tell when its session began, which places it among "
            "the others: keep the names that ONNX Runtime gave, or import each alone"
        )
    with_runs.sort(key=lambda session: (session.begin_ns or 0, session.path.name))
    seen: Counter[str] = Counter()
    found = []
    for session in with_runs:  # `session`, `session_2`, …
        seen[session.name] += 1
        count = seen[session.name]
        found.append(replace(session, name=f"{session.name}_{count}") if count > 1 else session)
    return found


def _read(path: Path) -> Session:
    unread = Unread()
    try:
        read = list(read_profile(path, unread))
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): give a file") from error
    found = _NAMED.fullmatch(_stem(path))
    name = found["name"] if found else _stem(path)
    name = "session" if name in ("", _DEFAULT) else component(name) or name
    begin, within = None, _SECOND
    if found:
        with suppress(ValueError):  # UTC is assumed: names have no time zone
            begun = datetime.strptime(found["time"], "%Y-%m-%d_%H-%M-%S").replace(tzinfo=UTC)
            begin = int(begun.timestamp()) * _SECOND
    if begin is not None and found and found["ms"]:
        begin, within = begin + int(found["ms"]) * _MILLISECOND, _MILLISECOND
    single = once(read)
    twice = sum(len(run.nodes) for run in read) - sum(len(run.nodes) for run in single)
    ordered, longer = in_turn(single)
    runs = _named([without_misfits(run) for run in ordered])
    launched = add_kernels(
        runs, unread.kernels, lambda one: device_of(one) if launches(one) else ""
    )
    counts = unread.lines, unread.nodes, twice, longer
    return Session(path, name, begin, within, launched, *counts, unread.events >= EVENT_CAP)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json")


def _named(runs: list[ProfiledRun]) -> tuple[ProfiledRun, ...]:
    """The runs with a name for each node. Nodes that old versions left without one are named after
    their type and their place in the run."""
    kinds = list(runs[0].nodes.kinds) if runs else []
    nameless = np.array([not kind.name for kind in kinds], dtype=np.bool_)
    if not nameless.any():
        return tuple(runs)
    codes: dict[tuple[int, int], int] = {}
    found = []
    for run in runs:
        of_kind = run.nodes.kind.copy()
        for place in np.flatnonzero(nameless[of_kind]).tolist():
            which = int(of_kind[place]), place
            if which not in codes:
                codes[which] = len(kinds)
                one = kinds[which[0]]
                kinds.append(replace(one, name=f"{one.op_type or 'node'}_{place}"))
            of_kind[place] = codes[which]
        found.append(replace(run, nodes=replace(run.nodes, kinds=kinds, kind=of_kind)))
    return tuple(found)


# --- Profiles of ONNX Runtime → a bundle: each `session.run` is a call, each node a command.
#
# A provider that works for the host (CUDA, TensorRT, ROCm, …) returns when it has launched, and
# nothing tells when its device ran its nodes.


_TRANSFERS = ("MemcpyToHost", "MemcpyFromHost")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A run of a session with its labels, and its start on the run's clock."""

    session: Session
    run: ProfiledRun
    flows: Int64s
    start_ns: int
    labels: CallLabels

    @property
    def origin_ns(self) -> int:
        return self.start_ns - self.run.start_ns


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read the profiles of one run: files, or folders of them.

    Raises InputError if a file cannot be read or none has a run.
    """
    sessions = read_sessions(paths)
    began = [
        ((session.begin_ns or 0) + run.start_ns, session, run, flows)
        for session in sessions
        for run, flows in zip(session.runs, session.launched.flows, strict=True)
        if run.duration_ns >= 0 or len(run.nodes)
    ]
    began.sort(key=itemgetter(0))
    names = [session.name for _, session, _, _ in began]
    staged = zip(began, stages(names, [NO_ITERATION] * len(names)), strict=True)
    placed = [
        _Placed(session, run, flows, start, CallLabels(stage=stage, step=step, iteration=iteration))
        for (start, session, run, flows), (stage, step, iteration) in staged
    ]
    path = sessions[0].path
    name = path.absolute().parent.name if len(sessions) > 1 else _stem(path)
    run = ForeignRunBuilder("onnxruntime", name, path, len(sessions), all_traced=True)
    nodes = [kind for session in sessions for kind in session.kinds]
    run.capability(
        timeline=True,
        shapes=any(one.shapes.strip(" ->") for one in nodes),
        bytes=any(one.bytes_written >= 0 for one in nodes),
        launches=any(len(one.flows) for one in placed),
    )
    run.devices |= _devices(sessions)
    within = max(session.within_ns for session in sessions)
    begun = sessions[0].begin_ns
    if begun is not None:  # the clock of the files' names, without a time zone
        run.clocks = Clocks(clock=ClockName.LOCAL_TIME, base_ns=begun, within_ns=within)
    _add_drops(run, sessions)
    if len(sessions) > 1:
        count, reason = len(sessions), DropReason.BEGIN_BY_NAME
        run.drop(DropKind.UNALIGNED_CLOCK, count, "files", reason, name, within_ns=within)
    alone = _has_host_times_alone(sessions)
    host_times = _host_times(sessions) if alone else ()
    run.health = (
        *_twice(sessions),
        *_longer(sessions),
        *_set_aside(sessions, HealthRule.NOT_NESTED, lambda one: one.misfits),
        *_set_aside(sessions, HealthRule.UNFINISHED, lambda one: one.unended),
        *host_times,
    )
    command = partial(_command, launched="compute" if alone else "host")
    tables = {one.name: CommandTable(one.kinds, command) for one in sessions}
    call_of = partial(_call, tables)
    run.make_calls = partial(map, call_of, range(len(placed)), placed)
    run.make_landmarks = partial(_landmarks, placed)
    return run


def _call(tables: Mapping[str, CommandTable], number: int, one: _Placed) -> PlacedCall:
    """Return a run as a call with the commands of its nodes."""
    commands = tables[one.session.name].commands(one.run.nodes, one.origin_ns, one.flows)
    duration = one.run.duration_ns
    if duration < 0:  # the run had not ended when the profile did
        duration = int(commands.end_ns.max()) - one.start_ns
    device, traced = _busiest(commands), len(commands) > 0
    name, labels = one.session.name, one.labels
    call = call_at(number, name, one.start_ns, duration, device, traced, **labels)
    return PlacedCall(call, commands)


def _landmarks(placed: Sequence[_Placed]) -> Iterator[tuple[str, int]]:
    """Yield nodes with their starts: builds of ONNX Runtime with NVTX mark nodes as ranges."""
    for one in placed:
        nodes = one.run.nodes
        for kind, start in zip(nodes.each(), nodes.start_ns.tolist(), strict=True):
            if kind.name:
                yield kind.name, one.origin_ns + start


def _devices(sessions: Sequence[Session]) -> dict[str, Device]:
    """Return the devices on which commands ran, with the provider of each."""
    found: dict[str, Device] = {}
    for provider in sorted(_providers(sessions)):
        device = device_of(provider)
        if device != ROOT_DEVICE and not launches(provider):
            found.setdefault(device, Device(provider=provider))
    for device in sorted(_worked(sessions)):
        by = [one for one in _providers(sessions) if device_of(one) == device]
        found.setdefault(device, Device(provider=min(by, default="")))
    return found


def _add_drops(run: ForeignRunBuilder, sessions: Sequence[Session]) -> None:
    lost, estimated = DropKind.DROPPED_EVENTS, DropKind.ESTIMATED_TIMES
    for session in sessions:
        where, launched = session.path.name, session.launched
        dropped = sum(run.dropped for run in session.runs) or (UNKNOWN if session.full else 0)
        run.drop(lost, dropped, "events", DropReason.PROFILE_FULL, where)
        run.drop(lost, session.damaged, "events", DropReason.DAMAGED, where)
        run.drop(lost, session.outside, "events", DropReason.NODES_OF_NO_RUN, where)
        run.drop(lost, launched.lost, "commands", DropReason.KERNELS_OF_NO_RUN, where)
        run.drop(estimated, launched.by_end, "commands", DropReason.KERNELS_BY_END, where)
    if _has_host_times_alone(sessions):
        return
    for provider in sorted(filter(launches, _providers(sessions))):
        device, reason = device_of(provider), DropReason.LAUNCH_TIMES
        if device not in run.devices:
            run.drop(lost, UNKNOWN, "commands", reason, device, provider=provider)


def _has_host_times_alone(sessions: Sequence[Session]) -> bool:
    """Whether nodes launch device work, but no device work is recorded."""
    providers = _providers(sessions)
    others = (device_of(one) for one in providers if not launches(one))
    launching = any(map(launches, providers)) and not _worked(sessions)
    return launching and all(device == ROOT_DEVICE for device in others)


def _twice(sessions: Sequence[Session]) -> Iterator[HealthNote]:
    """Yield a note for each session with duplicate nodes."""
    for session in sessions:
        if session.twice:
            total = session.twice + sum(len(run.nodes) for run in session.runs)
            device = ", ".join(sorted({device_of(one) for one in _providers([session])}))
            found = _noted(HealthRule.TWICE, HealthAction.SET_ASIDE, session.twice, total)
            yield replaced(found, device=device)


def _longer(sessions: Sequence[Session]) -> Iterator[HealthNote]:
    """Yield a note of runs that were shortened."""
    count, total = sum(one.longer for one in sessions), sum(len(one.runs) for one in sessions)
    if count:
        yield _noted(HealthRule.NOT_NESTED, HealthAction.SHORTENED, count, total)


def _set_aside(
    sessions: Sequence[Session], rule: HealthRule, nodes_of: Callable[[ProfiledRun], NodeColumns]
) -> Iterator[HealthNote]:
    """Yield a note for each device with nodes of runs that were set aside."""
    found, longest = Counter[str](), dict[str, tuple[int, str]]()
    for run in (run for session in sessions for run in session.runs):
        aside = nodes_of(run)
        lengths = np.maximum(aside.duration_ns, 0).tolist()
        for one, length in zip(aside.each(), lengths, strict=True):
            found[_place(one)] += 1
            longest[_place(one)] = max(longest.get(_place(one), (-1, "")), (length, one.name))
    fitting = _nodes_by(_place, sessions) if found else found
    for device, count in sorted(found.items()):
        note = _noted(rule, HealthAction.SET_ASIDE, count, count + fitting[device])
        worst_ns, worst = longest[device]
        yield replaced(note, device=device, worst=worst[:200], worst_ns=min(worst_ns, LARGEST))


def _nodes_by(of: Callable[[NodeKind], str], sessions: Sequence[Session]) -> Counter[str]:
    """The number of nodes by what `of` returns for their kinds; kernels do not count."""
    found = Counter[str]()
    for session in sessions:
        kinds = np.concatenate([run.nodes.kind for run in session.runs])
        counts = np.bincount(kinds, minlength=len(session.kinds)).tolist()
        for kind, count in zip(session.kinds, counts, strict=True):
            if count and not isinstance(kind, KernelKind):
                found[of(kind)] += count
    return found


def _place(node: NodeKind) -> str:
    """The device that a node's time is of: the host's if it only launches."""
    return ROOT_DEVICE if launches(node.provider) else device_of(node.provider)


def _host_times(sessions: Sequence[Session]) -> Iterator[HealthNote]:
    """A note for each provider whose nodes launch."""
    nodes = _nodes_by(lambda kind: kind.provider, sessions)
    for provider in sorted(filter(launches, nodes)):
        count, total = nodes[provider], nodes.total()
        note = _noted(HealthRule.HOST_TIMES, HealthAction.NOTED, count, total)
        yield replaced(note, device=device_of(provider), worst=provider)


def _noted(rule: HealthRule, action: HealthAction, count: int, total: int) -> HealthNote:
    return HealthNote(rule=rule, action=action, count=count, total=total, share=count / total)


def _providers(sessions: Sequence[Session]) -> set[str]:
    return {kind.provider for session in sessions for kind in session.kinds if kind.provider}


def _worked(sessions: Sequence[Session]) -> set[str]:
    """The devices with recorded kernels."""
    kinds = (kind for session in sessions for kind in session.kinds)
    return {kind.track.device for kind in kinds if isinstance(kind, KernelKind)}


def _busiest(commands: CommandColumns) -> str:
    """The device that worked longest, not counting host launches."""
    time = Counter[str]()
    spent = np.bincount(commands.track, commands.duration_ns, len(commands.tracks))  # to 2^53
    for track, length in zip(commands.tracks, spent.tolist(), strict=True):
        if track.category != "host":
            time[track.device] += length
    return time.most_common(1)[0][0] if time else ROOT_DEVICE


def _command(node: NodeKind, launched: Category) -> Placed:
    """The command of a node, on its provider's track; if the provider only launches, on a host
    track of category `launched`."""
    if isinstance(node, KernelKind):
        return Placed(node.track, node.name, kernel=node.kernel)
    provider = node.provider or "provider unknown"
    if launches(node.provider):
        return Placed(Track(ROOT_DEVICE, f"{provider} launches", launched), node.name)
    device = device_of(node.provider) if node.provider else ROOT_DEVICE
    moves = node.op_type in _TRANSFERS
    track = Track(device, "Memcpy", "dma") if moves else Track(device, provider, "compute")
    return Placed(track, node.name)
