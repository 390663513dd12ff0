"""Operator commands of ONNX Runtime: a profiled session of a submodule's model, cut by its calls.

ONNX Runtime profiles whole sessions, stops at 1,000,000 events and ends a session's profile once.
So a submodule whose operators are traced gets a session of its own with profiling on, which is
renewed between calls before the cap is reached. Calls whose operators are not traced run on the
part's own session. `runs` says which run in a profile belongs to which call.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from profiler.capture.interrupts import interrupts_wait
from profiler.capture.module_classes import known_modules
from profiler.capture.onnxruntime.commands import Attributed, Placement, arena_counters, commands_of
from profiler.capture.onnxruntime.layers import ExportedModel, LayerMap, build_layer_map, node_count
from profiler.capture.onnxruntime.runs import NotedCall, place_runs
from profiler.capture.onnxruntime.session_swap import (
    Lending,
    model_of,
    open_profiled,
    opened_session,
)
from profiler.capture.onnxruntime.weak_reference import WeakPart, when_gone
from profiler.capture.onnxruntime.weights import model_files_bytes
from profiler.capture.operator_source import OperatorTrace, SourceRequest, SourceSummary
from profiler.capture.own_work import OwnWork
from profiler.capture.recorder import Invocation
from profiler.capture.timeline import PipelineCall
from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import UNKNOWN, Drop, DropKind
from profiler.interruptions import let_pass
from profiler.notes import Note
from profiler.ort_profiles.profile import EVENT_CAP, ProfiledRun, read_profile
from profiler.ort_profiles.providers import devices_of_session
from profiler.trace.manifest_fields import Submodule

__all__ = ["ProfiledPart"]

_EVENTS_BESIDE_NODES = 2  # model_run and SequentialExecutor::Execute


@dataclass(slots=True, eq=False)
class _Segment:
    """One profiled session: when its profile began, on the clock `now_ns`, whose runs it may hold,
    how many were traced, and how many of those are under way. `file` is set once profiling has
    ended."""

    session: Any
    start_ns: int
    now_ns: Callable[[], int]
    noted: list[NotedCall] = field(default_factory=list)
    traced: int = 0
    open: int = 0
    file: Path | None = None
    converted: bool = False


class ProfiledPart:
    """An `OperatorSource`: a part of a pipeline runs on a profiled session until `close`, and on
    its own, opened where it was not, in the calls that the selection leaves out.

    The part offers `session_options()` and `open_session(options)`, or holds an
    `onnxruntime.InferenceSession` as `session`. Profiles and the optimized graph lie in a folder
    of its own below `request.folder`. Calls may run in several threads.
    """

    def __init__(self, request: SourceRequest) -> None:
        """Open the profiled session and lend it. Raises InputError where the part cannot have
        one; it is then as it was."""
        self._request = replace(request, part=None, owner=None)  # a pipeline that goes is let go
        self._part = WeakPart(request.part)
        self._model = model_of(request.part)
        self._exported = ExportedModel(self._model)
        self._clock = request.recorder.clock
        self._cap = EVENT_CAP if request.event_cap is None else request.event_cap
        self._folder = Path(tempfile.mkdtemp(prefix=f"{request.submodule}.", dir=request.folder))
        self._optimized = self._folder / "optimized.onnx"
        self._per_run = -1  # events a run takes; -1: not known yet
        self._segments: list[_Segment] = []
        self._open_calls: dict[Invocation, tuple[_Segment, NotedCall]] = {}
        self._lock = threading.RLock()
        self._layers: LayerMap | None = None
        self._drops: list[Drop] = []
        self._attributed = Attributed()
        self._events = 0
        self._name = _name_of(request)
        self._own = opened_session(self._part)
        self._plain: Any = None  # the session of calls that are left out
        if request.selection.mixed:
            self._plain = self._own or self._part.open_session(self._part.session_options())
        session = self._open_first()
        self._placement = Placement(request.device, devices_of_session(session))
        self._lending: Lending | None = Lending(self._part, self._own)
        try:
            self._lending.lend(session)
            self._stay = when_gone(request.part, self.close)
        except BaseException:
            self._lending.give_back()
            raise

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Nothing: sessions are profiled whatever runs them."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Nothing either."""

    def before(self, invocation: Invocation) -> None:
        """The part's session is about to run for `invocation`; renews the session in time."""
        with self._lock:
            lending = self._lending
            if lending is None:
                return
            begin = self._clock.now_ns()
            try:
                renewed = self._renew_in_time()
            except Exception as error:  # noqa: BLE001 - the pipeline's call must not fail of us
                let_pass(error)
                detail = Note.of(DropReason.SESSION_NOT_RENEWED, error=str(error))
                self._lose(DropKind.UNTRACED_CALL, UNKNOWN, "calls", detail)
                self.close()
                return
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
        """The part is about to run for an invocation that is not traced."""
        with self._lock:
            if self._lending is not None:
                self._note(invocation, self._segments[-1], traced=False)
                self._lending.put(self._plain)

    def after(self, invocation: Invocation) -> None:
        """It has returned or failed, on this thread, which is the one that ran it."""
        with self._lock:
            segment, call = self._open_calls.pop(invocation, (None, None))
            if segment is None or call is None:
                return
            call.end_ns = segment.now_ns() - segment.start_ns
            call.thread = threading.get_native_id()
            segment.open -= 1
            if segment is not self._segments[-1] and not segment.open:
                self._end(segment)

    def close(self) -> None:
        """Give the part its own session back and end profiling."""
        with self._lock:
            lending, self._lending = self._lending, None
            if lending is not None:
                lending.give_back()
                self._stay()
            self._plain = self._own = None
            for segment in self._segments:
                self._end(segment)

    def summary(self) -> SourceSummary:
        """Events, attribution and drops of the whole run; after `traces`."""
        return SourceSummary(
            events=self._events,
            attributed_ns=self._attributed.attributed_ns,
            total_ns=self._attributed.total_ns,
            sessions=len(self._segments),
            drops=tuple(self._drops),
            backend="onnxruntime",
            known=Submodule(modules=known_modules(self._layers.classes if self._layers else {})),
        )

    def traces(self) -> Iterator[OperatorTrace]:
        """The commands of every recorded invocation, in order; none before `close`, for reading
        a profile takes the cores that the pipeline needs."""
        if self._lending is not None:
            return
        self._layers = self._layers or self._layer_map()
        for segment in self._segments:
            if segment.file is None or segment.converted:
                continue
            yield from self._cut(segment, segment.file, self._layers)
            segment.file.unlink(missing_ok=True)
            segment.noted.clear()
            segment.converted = True
        shutil.rmtree(self._folder, ignore_errors=True)  # the optimized graph has all weights

    def _layer_map(self) -> LayerMap:
        try:
            return build_layer_map(self._exported, self._optimized)
        except InputError as error:  # ORT's own format, say: nodes keep their names
            let_pass(error)
            calls = sum(segment.traced for segment in self._segments)
            detail = Note.of(DropReason.LAYERS_UNREADABLE, error=str(error))
            self._lose(DropKind.DOUBTFUL_LABEL, calls, "calls", detail)
            return LayerMap({})

    def _open_first(self) -> Any:
        session = self._open(self._optimized if self._room_for_graph() else None)
        if self._optimized.is_file():
            self._per_run = self._events_of_a_run()
        return session

    def _events_of_a_run(self) -> int:
        """How many there are by the optimized graph, -1 where that does not tell."""
        try:
            nodes, loops = node_count(self._optimized)
        except InputError as error:
            let_pass(error)
            return -1
        return -1 if loops else nodes + _EVENTS_BESIDE_NODES

    def _room_for_graph(self) -> bool:
        """Whether the disk has room for the optimized graph, which holds all weights once more.

        Without it layers are found by names alone, and the first session is renewed to count the
        events of a run.
        """
        try:
            size = model_files_bytes(self._model)
        except InputError as error:  # ORT's own format, say
            let_pass(error)
            return False
        return shutil.disk_usage(self._folder).free > 3 * size + (1 << 30)

    def _open(self, optimized: Path | None) -> Any:
        prefix = self._folder / str(len(self._segments))
        session = open_profiled(self._part, self._own, prefix, optimized)
        if hasattr(self._own, "set_providers"):
            session.set_providers = self._move
        start_ns = session.get_profiling_start_time_ns()
        self._segments.append(_Segment(session, start_ns, _clock_of(start_ns)))
        return session

    def _move(self, *providers: Any, **options: Any) -> None:
        """The session that the part runs on is to go to other providers: the part's own goes there,
        and the part runs on that, untraced, from then on."""
        own = self._own
        self.close()
        own.set_providers(*providers, **options)

    def _note(self, invocation: Invocation, segment: _Segment, *, traced: bool) -> NotedCall:
        thread = threading.get_native_id()
        begin_ns = segment.now_ns() - segment.start_ns
        call = NotedCall(invocation, traced, thread, begin_ns, self._clock.now_ns())
        segment.noted.append(call)
        return call

    def _renew_in_time(self) -> bool:
        """Open the next session where one more run could reach the cap. The last one's profile
        ends when its runs have."""
        last = self._segments[-1]
        if not last.traced or not self._reaches_cap(last):
            return False
        if not last.open:
            self._end(last)
        self._open(None)
        return True

    def _reaches_cap(self, segment: _Segment) -> bool:
        """A graph with loops shows its size only when it has run: its first session ends after
        one run and is counted."""
        if self._per_run >= 0:
            # The session itself takes a few events, and the marker of truncation one.
            return (segment.traced + 1) * self._per_run + 8 > self._cap
        if segment.open:  # it cannot be counted yet
            return False
        self._end(segment)
        assert segment.file is not None
        longest = max((len(run.nodes) for run in read_profile(segment.file)), default=0)
        if longest:
            self._per_run = 2 * longest + _EVENTS_BESIDE_NODES  # a loop may run longer next time
        return True

    @staticmethod
    @interrupts_wait()
    def _end(segment: _Segment) -> None:
        if segment.file is None:
            segment.file = Path(segment.session.end_profiling())
            segment.session = None

    def _cut(self, segment: _Segment, file: Path, layers: LayerMap) -> Iterator[OperatorTrace]:
        lost = {DropReason.NO_SESSION_RUN: 0, DropReason.RUNS_MIXED: 0}
        for call in place_runs(self._read(file), segment.noted):
            invocation = call.invocation
            if not call.traced or not invocation.recorded or invocation.index < 0:
                continue
            if call.mixed or not call.runs:
                lost[DropReason.RUNS_MIXED if call.mixed else DropReason.NO_SESSION_RUN] += 1
                continue
            for run in call.runs:
                layers = layers.knowing(run.nodes)
            nodes = call.nodes
            self._events += len(nodes) + _EVENTS_BESIDE_NODES * len(call.runs)
            origin_ns = call.begin_run_ns - call.begin_ns
            commands = commands_of(nodes, origin_ns, self._placement, layers, self._attributed)
            invocation.ops_traced = True
            counters = arena_counters(nodes, origin_ns, self._placement, self._name)
            call.runs.clear()
            yield OperatorTrace(invocation, commands, counters)
        for reason, count in lost.items():
            if count:
                self._lose(DropKind.UNTRACED_CALL, count, "calls", Note.of(reason))

    def _read(self, file: Path) -> Iterator[ProfiledRun]:
        for run in read_profile(file):
            if run.dropped:
                detail = Note.of(DropReason.PROFILE_FULL)
                self._lose(DropKind.DROPPED_EVENTS, run.dropped, "events", detail)
            yield run

    def _lose(self, kind: DropKind, count: int, unit: str, detail: Note) -> None:
        self._drops.append(Drop(kind, self._request.submodule, count, unit, detail))


def _clock_of(start_ns: int) -> Callable[[], int]:
    """The clock that profiles use here: CLOCK_REALTIME, on some systems a monotonic one."""
    clocks = (time.time_ns, time.monotonic_ns, time.perf_counter_ns)
    return min(clocks, key=lambda clock: abs(clock() - start_ns))


def _name_of(request: SourceRequest) -> str:
    """What tells the counters of a submodule's parts apart: `vae.encoder`, `vae.decoder`; the
    submodule's own name where it has one part."""
    for name in ("encoder", "decoder"):
        if getattr(request.owner, name, None) is request.part:
            return f"{request.submodule}.{name}"
    return request.submodule
