"""ONNX Runtime operators: profiles of sessions, converted to the commands of each call.

    converter = ProfileConverter(request, placement, exported, optimized)
    converter.put(segment, events)          # its profile has ended: converted later
    converter.traces()                      # the converted calls so far, each once
    converter.rest([segment, ...])          # the run ends: converts the rest on this thread

ONNX Runtime profiles sessions, not calls, and stops at 1,000,000 events. A traced submodule gets a
profiled session of its own that is renewed between calls. Untraced calls use the part's own
session. Recording costs 5 to 8 µs per node on an idle machine; a run's own value comes from the
gaps between its nodes.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from profiler.capture.calls import Invocation, OwnWork, PipelineCall
from profiler.capture.host_work import Conversions
from profiler.capture.imports import interrupts_wait, known_modules
from profiler.capture.onnxruntime.onnx_graph import (
    ExportedModel,
    LayerMap,
    build_layer_map,
    node_count,
)
from profiler.capture.onnxruntime.sessions import (
    FirstCalls,
    Lending,
    goes_nowhere,
    model_of,
    open_profiled,
    opened_session,
)
from profiler.capture.onnxruntime.weights import chain, model_files_bytes, small_model
from profiler.capture.operator_source import (
    Gaps,
    OperatorTrace,
    SourceRequest,
    SourceSummary,
    WeakPart,
    when_gone,
)
from profiler.capture.overhead import EventCost
from profiler.capture.recorder import Recorder
from profiler.errors import InputError
from profiler.ort_profiles import (
    CPU,
    EVENT_CAP,
    CommandTable,
    NodeColumns,
    NodeKind,
    Placed,
    ProfiledRun,
    device_of_provider,
    devices_of_session,
    read_profile,
    without_misfits,
)
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.events import ROOT_DEVICE, UNKNOWN, Category, Drop, DropKind, DropReason, Track
from profiler.trace.manifest_fields import Submodule

# --- From the nodes of a call to its commands and counters: layers, tracks of providers, memory.


_TRANSFERS = ("MemcpyToHost", "MemcpyFromHost")


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a session's execution providers: `device` is the submodule's own, `devices`
    maps providers to theirs."""

    device: str
    devices: Mapping[str, str]

    def device_of(self, node: NodeKind) -> str:
        """The device of the node's provider. A node on the CPU runs on the submodule's device if
        that is a CPU, else on the root device."""
        if node.provider in (CPU, ""):
            return self.device if self.device.startswith("cpu") else ROOT_DEVICE
        known = self.devices.get(node.provider)
        return known or device_of_provider(node.provider, {})

    def track_of(self, node: NodeKind, *, moves: bool = False) -> Track:
        """The track of the node's provider, or of its copies. `moves`: the node only passes data to
        the parts of an operation or gathers their results."""
        provider = node.provider or "provider unknown"
        category: Category = "copy" if moves else "compute"
        name = f"{provider} copies" if moves else provider
        if node.op_type in _TRANSFERS:
            category, name = "dma", "Memcpy"
        return Track(self.device_of(node), name, category)


@dataclass(slots=True)
class Attributed:
    """Operator time in ns, and how much of it has a module path."""

    attributed_ns: int = 0
    total_ns: int = 0


class Commands:
    """Builds the commands of calls from one profile, with the layers of their nodes by `layers`.
    Call once per call."""

    def __init__(self, placement: Placement, layers: LayerMap, nodes: NodeColumns) -> None:
        self.layers, self._placement = layers, placement
        self._table = CommandTable(nodes.kinds, self._of_kind)

    def of(self, nodes: NodeColumns, origin_ns: int, attributed: Attributed) -> CommandColumns:
        """The commands of one call; `origin_ns` is the profile's start on the run's clock. Adds to
        `attributed`."""
        commands = self._table.commands(nodes, origin_ns)
        attributed.total_ns += int(nodes.duration_ns.sum())
        if commands.module is not None:
            attributed.attributed_ns += int(commands.duration_ns[commands.module > 0].sum())
        return commands

    def _of_kind(self, node: NodeKind) -> Placed:
        layer, module = self.layers.layer_of(node.name, node.op_type)
        part = self.layers.part_of(node.name)
        return Placed(
            self._placement.track_of(node, moves=part is not None and part.moves),
            layer,
            module,
            part.command_index if part is not None else UNKNOWN,
        )


def arena_counters(
    nodes: NodeColumns, origin_ns: int, placement: Placement, name: str
) -> tuple[Counter, ...]:
    """Bytes in use over time, one counter per device: each node reports the arena of its provider.
    Unchanged values are left out."""
    known = nodes.rows(nodes.arena_bytes >= 0)
    ends = origin_ns + known.start_ns + known.duration_ns
    of_device: dict[str, list[int]] = {}
    for code in np.unique(known.kind).tolist():
        of_device.setdefault(placement.device_of(known.kinds[code]), []).append(code)
    counters = []
    for device, codes in sorted(of_device.items()):
        rows = np.isin(known.kind, codes)
        order = np.lexsort((known.arena_bytes[rows], ends[rows]))
        times, values = ends[rows][order], known.arena_bytes[rows][order]
        changed = np.flatnonzero(np.diff(values, prepend=-1))
        counters.append(
            Counter(device, f"{name} arena in use", "bytes", times[changed], values[changed])
        )
    return tuple(counters)


# --- Gaps between the nodes of a profiled session, which are mostly recording: their length tells
# its cost.


_CUT_NS = 500  # mean lengthening of a gap, since durations are cut to whole µs
_CAP = 8  # times the median: a longer gap is another thread on this core


def gaps_between(nodes: NodeColumns) -> Gaps:
    """The gaps between the nodes of one run. Nodes inside others (`Loop`, `If`) or concurrent ones
    have none; a long gap counts as a fixed multiple of the median."""
    order = np.argsort(nodes.start_ns, kind="stable")
    starts = nodes.start_ns[order]
    ends = np.maximum.accumulate(starts + nodes.duration_ns[order])
    found = starts[1:] - ends[:-1]
    found = found[found >= 0]
    if not len(found):
        return Gaps()
    capped = np.minimum(found, _CAP * max(float(np.median(found)), 1_000.0))
    return Gaps(len(found), max(float(capped.sum()) - _CUT_NS * len(found), 0.0))


# --- Matching of the runs in a session's profile to calls.
#
# A call has a start and end on the clock of the profile, and a thread. A run belongs to the call
# that contains it, whatever ran before: failed runs leave nothing in the profile, and a call may
# run its session several times or never.


_NEVER = 1 << 62
_SLACK = 2_000  # ns: ONNX Runtime cuts times to whole µs


@dataclass(slots=True, eq=False)
class NotedCall:
    """A call that may have run the session. `begin_ns` and `end_ns` are on the profile's clock,
    relative to its start, `begin_run_ns` is its start on the run's clock; `thread` is the OS thread
    that ran it. `traced` is False for a call that ran on another session.

    `runs` are its runs in the profile; `mixed`: one of them may belong to another call.
    """

    invocation: Invocation
    traced: bool
    thread: int
    begin_ns: int
    begin_run_ns: int
    end_ns: int = -1
    runs: list[ProfiledRun] = field(default_factory=list)
    mixed: bool = False

    @property
    def nodes(self) -> NodeColumns:
        """The nodes that ran in the call."""
        return NodeColumns.joined([run.nodes for run in self.runs])


def place_runs(runs: Iterable[ProfiledRun], noted: Sequence[NotedCall]) -> Iterator[NotedCall]:
    """Assign the runs to calls; yields every call, in order of start, once it has all of its runs.

    If several calls contain a run, it belongs to the one on the run's thread, and of several on
    that thread (`run_async`) to the one that ended first after it. If the thread matches none, all
    of them are marked `mixed`.
    """
    calls = sorted(noted, key=lambda call: call.begin_ns)
    ends = _ends(calls)
    begins = [call.begin_ns for call in calls]
    latest = list(accumulate(ends, max))
    done = 0
    for run in runs:
        if run.duration_ns < 0:
            continue
        candidates = []
        for i in range(bisect_right(begins, run.start_ns + _SLACK) - 1, -1, -1):
            if latest[i] < run.end_ns - _SLACK:
                break
            if ends[i] >= run.end_ns - _SLACK:
                candidates.append(i)
        _place(run, candidates, calls, ends)
        # Runs come in order of their ends: calls that ended before this one's end have all of their
        # runs.
        while done < len(calls) and ends[done] < run.end_ns - _SLACK:
            yield calls[done]
            done += 1
    yield from calls[done:]


def _place(
    run: ProfiledRun, candidates: list[int], calls: list[NotedCall], ends: list[int]
) -> None:
    here = [i for i in candidates if calls[i].thread == run.thread]
    if not here and len(candidates) > 1:
        for i in candidates:
            calls[i].mixed = True
        return
    if candidates:
        call = calls[min(here or candidates, key=lambda i: ends[i])]
        call.runs.append(run)
        call.mixed = call.mixed or run.mixed


def _ends(calls: Sequence[NotedCall]) -> list[int]:
    """The end of each call: as noted, else that of its invocation; at the latest the start of the
    next call on its thread."""
    ends = []
    following: dict[int, int] = {}
    for call in reversed(calls):
        end = call.end_ns
        if end < 0:
            invocation = call.invocation
            ended = invocation.end_ns >= 0
            length = invocation.end_ns - call.begin_run_ns if ended else _NEVER
            end = min(call.begin_ns + length, following.get(call.thread, _NEVER))
        following[call.thread] = call.begin_ns
        ends.append(end)
    return ends[::-1]


# --- Profiled sessions of one part, and the events that each may have.
#
# ONNX Runtime keeps all events of a profiled session in memory until its profile ends. So a session
# is renewed after 20,000 events. If its model is so large that reopening costs more than their
# memory, it is renewed once they take an eighth of the model's size.


EVENTS_BESIDE_NODES = 2  # events per run: model_run and SequentialExecutor::Execute
_EVENT_BYTES = 2_600  # measured: `benchmarks/long_runs.py`, the tiny SD3
_FEWEST_EVENTS = 20_000  # 50 MiB, for each part
_SHARE = 8  # events may take this share of the weights' size


@dataclass(slots=True, eq=False)
class Segment:
    """One profiled session: the start of its profile on the clock `now_ns`, the calls whose runs it
    may have (`noted`), and how many calls were traced, are running (`open`), and have returned
    (`ran`). `file` is set once profiling has ended, `converted` once the conversion has started."""

    session: Any
    start_ns: int
    now_ns: Callable[[], int]
    noted: list[NotedCall] = field(default_factory=list)
    traced: int = 0
    open: int = 0
    ran: int = 0
    file: Path | None = None
    converted: bool = False

    @interrupts_wait()
    def end(self) -> bool:
        """Have ONNX Runtime write the profile, and release the session; returns False if that was
        done before."""
        if self.file is not None:
            return False
        self.file = Path(self.session.end_profiling())
        self.session = None
        return True


def event_budget(weight_bytes: int) -> int:
    """The number of events after which a session is renewed, for a model with that many bytes of
    weights."""
    return min(max(_FEWEST_EVENTS, weight_bytes // _SHARE // _EVENT_BYTES), EVENT_CAP)


def clock_of(start_ns: int) -> Callable[[], int]:
    """The clock that profiles use on this system: CLOCK_REALTIME, on some a monotonic one."""
    clocks = (time.time_ns, time.monotonic_ns, time.perf_counter_ns)
    return min(clocks, key=lambda clock: abs(clock() - start_ns))


# --- The profiles of a part's sessions become the commands of its calls, while the pipeline rests.


@dataclass(frozen=True, slots=True)
class _Ended:
    """A profile that waits for conversion; see `host_work.Stopped`."""

    converter: ProfileConverter
    segment: Segment
    events: int

    def convert(self) -> None:
        self.converter.keep(self.segment)

    def recorders(self) -> list[Recorder]:
        return [self.converter.recorder]

    def close(self) -> None:
        self.segment.noted.clear()


class ProfileConverter:
    """Converts the profiles of one part, on one thread at a time. Other code may append to
    `drops`."""

    def __init__(
        self,
        request: SourceRequest,
        placement: Placement,
        exported: ExportedModel,
        optimized: Path,
    ) -> None:
        self.recorder = request.recorder
        self.drops: list[Drop] = []
        self._submodule = request.submodule
        self._name = _name_of(request)
        self._placement = placement
        self._exported = exported
        self._optimized = optimized
        self._layers: LayerMap | None = None
        self._unreadable = ""  # why the model is unreadable, if it is
        self._calls = 0
        self._attributed = Attributed()
        self._events = 0
        self._gaps = Gaps()
        self._running: set[Invocation] = set()
        self._rest = time.monotonic()  # when the last call of the part ended
        self._traces: deque[OperatorTrace] = deque()  # from the thread that converts
        self._conversions = Conversions(self._resting_since)

    def begun(self, invocation: Invocation) -> None:
        """Delay conversions, since a call of the part starts."""
        self._running.add(invocation)

    def ended(self, invocation: Invocation) -> None:
        """Allow conversions again, since a call of the part has ended."""
        self._running.discard(invocation)
        self._rest = time.monotonic()

    def put(self, segment: Segment, events: int) -> None:
        """Queue an ended profile, with at most that many events, for conversion."""
        self._conversions.put(_Ended(self, segment, events))

    def keep(self, segment: Segment) -> None:
        """Convert a profile; calls that cannot be read are a drop."""
        try:
            self._traces.extend(self._converted(segment))
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            detail = Note.of(DropReason.OPERATORS_UNREADABLE, error=str(error))
            self.lose(DropKind.UNTRACED_CALL, UNKNOWN, "calls", detail)

    def traces(self) -> Iterator[OperatorTrace]:
        """Yield the operators of the calls converted by now, in order, each once."""
        with suppress(IndexError):
            while True:
                yield self._traces.popleft()

    def rest(self, segments: Iterable[Segment]) -> Iterator[OperatorTrace]:
        """Yield the operators of all other calls, after the last profile has ended."""
        self._conversions.drain(tell=False)
        yield from self.traces()
        for segment in segments:
            yield from self._converted(segment)

    def summary(self, sessions: int) -> SourceSummary:
        """Events, attribution and drops of all conversions; `sessions` is the number of
        sessions."""
        return SourceSummary(
            events=self._events,
            gaps=self._gaps,
            attributed_ns=self._attributed.attributed_ns,
            total_ns=self._attributed.total_ns,
            sessions=sessions,
            drops=(*self.drops, *self._doubtful()),
            backend="onnxruntime",
            known=Submodule(modules=known_modules(self._layers.classes if self._layers else {})),
        )

    def lose(self, kind: DropKind, count: int, unit: str, detail: Note) -> None:
        """Add a drop of the part's calls."""
        self.drops.append(Drop(kind, self._submodule, count, unit, detail))

    def _doubtful(self) -> Iterator[Drop]:
        """The drop for nodes that keep their own names, if the model could not be read."""
        if self._unreadable:
            detail = Note.of(DropReason.LAYERS_UNREADABLE, error=self._unreadable)
            yield Drop(DropKind.DOUBTFUL_LABEL, self._submodule, self._calls, "calls", detail)

    def _resting_since(self) -> float | None:
        """The time since which neither a pipeline call nor the part has run; None while one
        does."""
        return None if self._running or not self.recorder.at_rest() else self._rest

    def _converted(self, segment: Segment) -> Iterator[OperatorTrace]:
        """Convert the calls of a session, and delete its profile."""
        if segment.file is None or segment.converted:
            return
        segment.converted = True
        self._layers = self._layers or self._layer_map()
        yield from self._cut(segment, segment.file, self._layers)
        segment.file.unlink(missing_ok=True)
        segment.noted.clear()

    def _layer_map(self) -> LayerMap:
        try:
            return build_layer_map(self._exported, self._optimized)
        except InputError as error:  # e.g. ORT's own format: nodes keep their names
            let_pass(error)
            self._unreadable = str(error)
            return LayerMap({})

    def _cut(self, segment: Segment, file: Path, layers: LayerMap) -> Iterator[OperatorTrace]:
        known: Commands | None = None
        lost = {DropReason.NO_SESSION_RUN: 0, DropReason.RUNS_MIXED: 0}
        misfits = 0
        for call in place_runs(self._read(file), segment.noted):
            invocation = call.invocation
            if not call.traced or not invocation.recorded or invocation.index < 0:
                continue
            if call.mixed or not call.runs:
                lost[DropReason.RUNS_MIXED if call.mixed else DropReason.NO_SESSION_RUN] += 1
                continue
            for run in call.runs:
                layers = layers.knowing(run.nodes.each())
            misfits += sum(len(run.misfits) for run in call.runs)
            nodes = call.nodes
            self._events += len(nodes) + EVENTS_BESIDE_NODES * len(call.runs)
            self._gaps = sum(map(gaps_between, (run.nodes for run in call.runs)), start=self._gaps)
            origin_ns = call.begin_run_ns - call.begin_ns
            if known is None or known.layers is not layers:
                known = Commands(self._placement, layers, nodes)
            commands = known.of(nodes, origin_ns, self._attributed)
            invocation.ops_traced = True
            counters = arena_counters(nodes, origin_ns, self._placement, self._name)
            call.runs.clear()
            self._calls += 1
            yield OperatorTrace(invocation, commands, counters)
        for reason, count in lost.items():
            if count:
                self.lose(DropKind.UNTRACED_CALL, count, "calls", Note.of(reason))
        if misfits:
            detail = Note.of(DropReason.NODES_OF_NO_RUN)
            self.lose(DropKind.DROPPED_EVENTS, misfits, "commands", detail)

    def _read(self, file: Path) -> Iterator[ProfiledRun]:
        for run in map(without_misfits, read_profile(file)):
            if run.dropped:
                detail = Note.of(DropReason.PROFILE_FULL)
                self.lose(DropKind.DROPPED_EVENTS, run.dropped, "events", detail)
            yield run


def _name_of(request: SourceRequest) -> str:
    """The counter name of a submodule's part: `vae.encoder`, `vae.decoder`, or the submodule's own
    name if it has one part."""
    for name in ("encoder", "decoder"):
        if getattr(request.owner, name, None) is request.part:
            return f"{request.submodule}.{name}"
    return request.submodule


# --- What recording a node of ONNX Runtime costs, by the gaps between a run's own nodes.
#
# It depends on what else runs: 5 to 8 µs in a session of small nodes on an idle machine, twice as
# much if nodes evict what recording needs from the CPU caches, and more if cores are shared. About
# a third of it is in the gaps, and the rest inside the nodes: sizes and shapes are recorded before
# an event ends. That share is a property of ONNX Runtime's code. It is measured on a chain of
# nodes, and the gaps of the run give the rest.


_SIDE = 16  # of square float32 tensors
_NODES, _PAIRS, _RUNS = 20, 25, 5  # short runs: some of them get the cores of a busy machine
_LONGEST_S = 0.8  # s, after which no further pair is started


class _Pair(NamedTuple):
    """The extra s of a run with profiling over one without, and the mean gap between its nodes in
    ns."""

    longer_s: float
    gap_ns: float


def onnx_event_cost(gaps: Gaps) -> EventCost | None:
    """The mean cost of recording a node in a run with these gaps, or on the chain if there are
    none. None if noise exceeds it."""
    own = gaps.mean_ns
    pairs = [
        pair.longer_s if own is None else pair.longer_s * own / pair.gap_ns
        for pair in _pairs()
        if pair.gap_ns > 0
    ]
    if len(pairs) > 1:
        return EventCost.of_pairs(pairs, _NODES)
    return EventCost(pairs[0] * 1e9 / _NODES) if pairs and pairs[0] > 0 else None


def _pairs() -> list[_Pair]:
    """Measure one or more pairs of runs on a chain of small nodes.

    Takes the wall time of the fastest of a few alternating runs of each kind. Processor time would
    include threads that wait for work.
    """
    import onnxruntime

    shape = [_SIDE, _SIDE]
    model = small_model(chain(_NODES), shape, np.ones(shape, np.float32))
    feeds = {"x": np.zeros(shape, dtype=np.float32)}
    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        sessions = []
        for profiled in (False, True):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            if profiled:
                options.enable_profiling = True
                options.profile_file_prefix = str(Path(folder) / "overhead")
            sessions.append(
                onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            )
        plain, traced = sessions
        _seconds(plain, feeds), _seconds(traced, feeds)  # the first runs allocate
        timed = list(_timed(plain, traced, feeds))
        runs = [gaps_between(run.nodes) for run in read_profile(Path(traced.end_profiling()))]
    return [_Pair(longer_s, runs[1 + run].mean_ns or 0.0) for longer_s, run in timed]


def _timed(plain: Any, traced: Any, feeds: dict[str, Any]) -> Iterator[tuple[float, int]]:
    """Yield the extra s of the fastest of a few traced runs over the fastest of as many plain ones,
    and the index of that traced run, from 0."""
    begin = time.perf_counter()
    for pair in range(_PAIRS):
        runs = [(_seconds(plain, feeds), _seconds(traced, feeds)) for _ in range(_RUNS)]
        without, with_ = zip(*runs, strict=True)
        yield min(with_) - min(without), pair * _RUNS + with_.index(min(with_))
        if time.perf_counter() > begin + _LONGEST_S:
            break


def _seconds(session: Any, feeds: dict[str, Any]) -> float:
    """The wall time of one run in s."""
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin


# --- Operator commands of ONNX Runtime: a profiled session of a submodule's model, cut by its
# calls. ONNX Runtime ends a session's profile once.


class ProfiledPart:
    """An `OperatorSource` that runs a part on a profiled session until `close`, and untraced calls
    on the part's own session, which is opened if necessary.

    The part offers `session_options()` and `open_session(options)`, or holds an
    `onnxruntime.InferenceSession` as `session`. Profiles and the optimized graph are in a folder of
    its own below `request.folder`. Calls may run in several threads.
    """

    def __init__(self, request: SourceRequest) -> None:
        """Open the profiled session and let the part use it. Raises InputError, and leaves the part
        unchanged, if it cannot have one."""
        self._request = replace(request, part=None, owner=None)  # the pipeline is not kept alive
        self._part = WeakPart(request.part)
        self._model = model_of(request.part)
        exported = ExportedModel(self._model)
        self._clock = request.recorder.clock
        self._folder = Path(tempfile.mkdtemp(prefix=f"{request.submodule}.", dir=request.folder))
        self._optimized = self._folder / "optimized.onnx"
        self._weight_bytes = self._known_bytes()
        self._cap = request.event_cap or event_budget(self._weight_bytes or 0)
        self._per_run = -1  # events of a run; -1: unknown yet
        self._segments: list[Segment] = []
        self._open_calls: dict[Invocation, tuple[Segment, NotedCall]] = {}
        self._lock = threading.RLock()
        self._own = opened_session(self._part)
        self._first_calls = FirstCalls(request.part if self._own is None else self._own)
        self._plain: Any = None  # the session of untraced calls
        if request.selection.mixed:
            self._plain = self._own or self._part.open_session(self._part.session_options())
        session = self._open_first()
        placement = Placement(request.device, devices_of_session(session))
        self._converter = ProfileConverter(request, placement, exported, self._optimized)
        self._lending: Lending | None = Lending(self._part, self._own)
        try:
            self._lending.lend(session)
            self._stay = when_gone(request.part, self.close)
        except BaseException:
            self._lending.give_back()
            raise

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Do nothing: sessions are profiled whatever runs them."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Do nothing."""

    def before(self, invocation: Invocation) -> None:
        """Prepare the part's session for `invocation`; renews it in time."""
        with self._lock:
            lending = self._lending
            if lending is None:
                return
            begin = self._clock.now_ns()
            try:
                renewed = self._renew_in_time()
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)
                detail = Note.of(DropReason.SESSION_NOT_RENEWED, error=str(error))
                self._converter.lose(DropKind.UNTRACED_CALL, UNKNOWN, "calls", detail)
                self.close()
                return
            self._converter.begun(invocation)
            segment = self._segments[-1]
            self._open_calls[invocation] = segment, self._note(invocation, segment, traced=True)
            segment.open += 1
            segment.traced += 1
            if renewed or self._plain is not None:
                lending.put(segment.session)
            if renewed:
                recorder = self._request.recorder
                recorder.add_own_work(OwnWork.RENEW_SESSION, begin, self._clock.now_ns())

    def leave_out(self, invocation: Invocation) -> None:
        """Let the part run `invocation` untraced."""
        with self._lock:
            if self._lending is not None and self._plain is None:  # no more calls are traced
                self.close()
            elif self._lending is not None:
                self._note(invocation, self._segments[-1], traced=False)
                self._lending.put(self._plain)
                self._first_calls.own_runs(invocation)

    def after(self, invocation: Invocation) -> None:
        """Handle the end of an invocation, also of one that failed, on its thread."""
        with self._lock:
            segment, call = self._open_calls.pop(invocation, (None, None))
            if segment is None or call is None:
                return
            call.end_ns = segment.now_ns() - segment.start_ns
            call.thread = threading.get_native_id()
            self._first_calls.add(
                invocation,
                call.end_ns - call.begin_ns,
                ran=segment.ran,
                renewed=segment is not self._segments[0],
            )
            segment.ran += 1
            segment.open -= 1
            self._converter.ended(invocation)
            if segment is not self._segments[-1] and not segment.open and self._lending:
                self._end(segment)

    def close(self) -> None:
        """Give the part its own session back and end profiling."""
        with self._lock:
            lending, self._lending = self._lending, None
            if lending is not None:
                lending.give_back()
                self._stay()
            self._plain = self._own = None
            self._first_calls.close()
            for segment in self._segments:
                segment.end()

    def summary(self) -> SourceSummary:
        """Events, attribution and drops of the whole run; after `traces`."""
        summary = self._converter.summary(len(self._segments))
        return replace(summary, new_sessions=self._first_calls.cost())

    def traces(self) -> Iterator[OperatorTrace]:
        """The commands of recorded invocations, in order: of renewed sessions once converted, of
        the last one after `close`."""
        if self._lending is not None:
            yield from self._converter.traces()
            return
        yield from self._converter.rest(self._segments)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open_first(self) -> Any:
        session = self._open(self._optimized if self._room_for_graph() else None)
        if self._optimized.is_file():
            self._per_run = self._events_of_a_run()
        return session

    def _events_of_a_run(self) -> int:
        """The events of a run according to the optimized graph, -1 if it has loops or cannot be
        read."""
        try:
            nodes, loops = node_count(self._optimized)
        except InputError as error:
            let_pass(error)
            return -1
        return -1 if loops else nodes + EVENTS_BESIDE_NODES

    def _room_for_graph(self) -> bool:
        """Whether the optimized graph can be written: its weights can be discarded, or the disk has
        room for them.

        Without it layers are found by names alone, and the first session is renewed to count the
        events of a run.
        """
        size, probe = self._weight_bytes, self._folder / "probe"
        if size is None:
            return False
        nowhere = goes_nowhere(probe)
        probe.unlink(missing_ok=True)
        return nowhere or shutil.disk_usage(self._folder).free > 3 * size + (1 << 30)

    def _known_bytes(self) -> int | None:
        """The size of the model's files in bytes, None if unknown."""
        try:
            return model_files_bytes(self._model)
        except InputError as error:  # e.g. ORT's own format
            let_pass(error)
            return None

    def _open(self, optimized: Path | None) -> Any:
        prefix = self._folder / str(len(self._segments))
        session = open_profiled(self._part, self._own, prefix, optimized)
        if hasattr(self._own, "set_providers"):
            session.set_providers = self._move
        start_ns = session.get_profiling_start_time_ns()
        self._segments.append(Segment(session, start_ns, clock_of(start_ns)))
        return session

    def _move(self, *providers: Any, **options: Any) -> None:
        """Stop tracing when the session is moved to other providers: the part runs untraced on its
        own session, moved there."""
        own = self._own
        self.close()
        own.set_providers(*providers, **options)

    def _note(self, invocation: Invocation, segment: Segment, *, traced: bool) -> NotedCall:
        thread = threading.get_native_id()
        begin_ns = segment.now_ns() - segment.start_ns
        call = NotedCall(invocation, traced, thread, begin_ns, self._clock.now_ns())
        segment.noted.append(call)
        return call

    def _renew_in_time(self) -> bool:
        """Open the next session if one more run could reach the cap. The profile of the last
        session ends with its last run."""
        last = self._segments[-1]
        if not last.traced or not self._reaches_cap(last):
            return False
        if not last.open:
            self._end(last)
        self._open(None)
        return True

    def _reaches_cap(self, segment: Segment) -> bool:
        """Whether one more run could exceed the cap. A graph with loops shows its size only at run
        time: its first session ends after one run to count the events."""
        if self._per_run >= 0:
            # The session itself takes a few events, and the marker of truncation one.
            return (segment.traced + 1) * self._per_run + 8 > self._cap
        if segment.open:  # it cannot be counted yet
            return False
        segment.end()
        assert segment.file is not None
        longest = max((len(run.nodes) for run in read_profile(segment.file)), default=0)
        if longest:
            self._per_run = 2 * longest + EVENTS_BESIDE_NODES  # a loop may run longer next time
        return True

    def _end(self, segment: Segment) -> None:
        """End a renewed session without running calls, and queue its conversion."""
        segment.end()
        self._converter.put(segment, segment.traced * max(self._per_run, 1))
