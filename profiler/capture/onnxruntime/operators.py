"""Operator commands of ONNX Runtime: a profiled session of a submodule's model, cut by its calls.

ONNX Runtime profiles whole sessions, keeps their events in memory, stops at 1,000,000 and ends a
session's profile once. So a submodule whose operators are traced gets a session of its own with
profiling on, which is renewed between calls (`segments`); the profile of the last one is converted
while the pipeline rests (`profile_conversion`). Calls whose operators are not traced run on the
part's own session. `runs` says which run in a profile belongs to which call.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiler.capture.invocations import Invocation
from profiler.capture.onnxruntime.commands import Placement
from profiler.capture.onnxruntime.layers import ExportedModel, node_count
from profiler.capture.onnxruntime.new_sessions import FirstCalls
from profiler.capture.onnxruntime.profile_conversion import ProfileConverter
from profiler.capture.onnxruntime.runs import NotedCall
from profiler.capture.onnxruntime.segments import (
    EVENTS_BESIDE_NODES,
    Segment,
    clock_of,
    event_budget,
)
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
from profiler.capture.timeline import PipelineCall
from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import UNKNOWN, DropKind
from profiler.interruptions import let_pass
from profiler.notes import Note
from profiler.ort_profiles.profile import read_profile
from profiler.ort_profiles.providers import devices_of_session

__all__ = ["ProfiledPart"]


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
        exported = ExportedModel(self._model)
        self._clock = request.recorder.clock
        self._folder = Path(tempfile.mkdtemp(prefix=f"{request.submodule}.", dir=request.folder))
        self._optimized = self._folder / "optimized.onnx"
        self._weight_bytes = self._known_bytes()
        self._cap = request.event_cap or event_budget(self._weight_bytes or 0)
        self._per_run = -1  # events a run takes; -1: not known yet
        self._segments: list[Segment] = []
        self._open_calls: dict[Invocation, tuple[Segment, NotedCall]] = {}
        self._lock = threading.RLock()
        self._own = opened_session(self._part)
        self._first_calls = FirstCalls(request.part if self._own is None else self._own)
        self._plain: Any = None  # the session of calls that are left out
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
        """The part is about to run for an invocation that is not traced."""
        with self._lock:
            if self._lending is not None and self._plain is None:  # nothing is to follow
                self.close()
            elif self._lending is not None:
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
        """The commands of recorded invocations, in order: of sessions that were renewed once they
        have been converted, of the last one after `close`."""
        if self._lending is not None:
            yield from self._converter.traces()
            return
        yield from self._converter.rest(self._segments)
        shutil.rmtree(self._folder, ignore_errors=True)  # the optimized graph has all weights

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
        return -1 if loops else nodes + EVENTS_BESIDE_NODES

    def _room_for_graph(self) -> bool:
        """Whether the disk has room for the optimized graph, which holds all weights once more.

        Without it layers are found by names alone, and the first session is renewed to count the
        events of a run.
        """
        size = self._weight_bytes
        return size is not None and shutil.disk_usage(self._folder).free > 3 * size + (1 << 30)

    def _known_bytes(self) -> int | None:
        """How large the model's files are; None where nobody can tell."""
        try:
            return model_files_bytes(self._model)
        except InputError as error:  # ORT's own format, say
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
        """The session that the part runs on is to go to other providers: the part's own goes there,
        and the part runs on that, untraced, from then on."""
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
        """Open the next session where one more run could reach the cap. The last one's profile
        ends when its runs have."""
        last = self._segments[-1]
        if not last.traced or not self._reaches_cap(last):
            return False
        if not last.open:
            self._end(last)
        self._open(None)
        return True

    def _reaches_cap(self, segment: Segment) -> bool:
        """A graph with loops shows its size only when it has run: its first session ends after
        one run and is counted."""
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
        """A session that was renewed, and runs nothing more: convert it when the pipeline rests."""
        segment.end()
        self._converter.put(segment, segment.traced * max(self._per_run, 1))
