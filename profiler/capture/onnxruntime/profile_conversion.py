"""The profiles of a part's sessions become the commands of its calls, while the pipeline rests.

converter = ProfileConverter(request, placement, exported, optimized)
converter.put(segment, events)          # its profile has ended: converted later
converter.traces()                      # what has been converted so far, each call once
converter.rest([segment, …])            # the run ends: all that is left, on this thread
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiler.capture.conversions import Conversions
from profiler.capture.invocations import Invocation
from profiler.capture.module_classes import known_modules
from profiler.capture.onnxruntime.commands import Attributed, Commands, Placement, arena_counters
from profiler.capture.onnxruntime.layers import ExportedModel, LayerMap, build_layer_map
from profiler.capture.onnxruntime.node_gaps import gaps_between
from profiler.capture.onnxruntime.runs import place_runs
from profiler.capture.onnxruntime.segments import EVENTS_BESIDE_NODES, Segment
from profiler.capture.operator_source import Gaps, OperatorTrace, SourceRequest, SourceSummary
from profiler.capture.recorder import Recorder
from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import UNKNOWN, Drop, DropKind
from profiler.interruptions import let_pass
from profiler.notes import Note
from profiler.ort_profiles.profile import ProfiledRun, read_profile
from profiler.trace.manifest_fields import Submodule

__all__ = ["ProfileConverter"]


@dataclass(frozen=True, slots=True)
class _Ended:
    """A profile that waits, as `conversions.Stopped`."""

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
    """Converts the profiles of one part; one thread at a time. `drops` are added to by whoever
    knows of any."""

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
        self._unreadable = ""  # why the model is, where it is
        self._calls = 0
        self._attributed = Attributed()
        self._events = 0
        self._gaps = Gaps()
        self._running: set[Invocation] = set()
        self._rest = time.monotonic()  # when the last call of the part ended
        self._traces: deque[OperatorTrace] = deque()  # from the thread that converts
        self._conversions = Conversions(self._resting_since)

    def begun(self, invocation: Invocation) -> None:
        """A call of the part begins: nothing is converted beside it, if that can wait."""
        self._running.add(invocation)

    def ended(self, invocation: Invocation) -> None:
        """It has ended."""
        self._running.discard(invocation)
        self._rest = time.monotonic()

    def put(self, segment: Segment, events: int) -> None:
        """Have a profile converted that has ended, and may have so many events."""
        self._conversions.put(_Ended(self, segment, events))

    def keep(self, segment: Segment) -> None:
        """Convert a profile; what cannot be read of it is a drop."""
        try:
            self._traces.extend(self._converted(segment))
        except Exception as error:  # noqa: BLE001 - other profiles are to be read
            let_pass(error)
            detail = Note.of(DropReason.OPERATORS_UNREADABLE, error=str(error))
            self.lose(DropKind.UNTRACED_CALL, UNKNOWN, "calls", detail)

    def traces(self) -> Iterator[OperatorTrace]:
        """The operators of calls that have been converted by now, in order, once."""
        with suppress(IndexError):
            while True:
                yield self._traces.popleft()

    def rest(self, segments: Iterable[Segment]) -> Iterator[OperatorTrace]:
        """All that is left, when the last profile has ended."""
        self._conversions.drain(tell=False)
        yield from self.traces()
        for segment in segments:
            yield from self._converted(segment)

    def summary(self, sessions: int) -> SourceSummary:
        """Events, attribution and drops of what has been converted, of so many sessions."""
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
        """Something of the part's calls is not recorded."""
        self.drops.append(Drop(kind, self._submodule, count, unit, detail))

    def _doubtful(self) -> Iterator[Drop]:
        """What says that nodes kept their names, where nobody could read the model."""
        if self._unreadable:
            detail = Note.of(DropReason.LAYERS_UNREADABLE, error=self._unreadable)
            yield Drop(DropKind.DOUBTFUL_LABEL, self._submodule, self._calls, "calls", detail)

    def _resting_since(self) -> float | None:
        """Since when no pipeline call has run, nor the part."""
        return None if self._running or not self.recorder.at_rest() else self._rest

    def _converted(self, segment: Segment) -> Iterator[OperatorTrace]:
        """The operators of its calls; its profile is gone afterwards."""
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
        except InputError as error:  # ORT's own format, say: nodes keep their names
            let_pass(error)
            self._unreadable = str(error)
            return LayerMap({})

    def _cut(self, segment: Segment, file: Path, layers: LayerMap) -> Iterator[OperatorTrace]:
        known: Commands | None = None
        lost = {DropReason.NO_SESSION_RUN: 0, DropReason.RUNS_MIXED: 0}
        for call in place_runs(self._read(file), segment.noted):
            invocation = call.invocation
            if not call.traced or not invocation.recorded or invocation.index < 0:
                continue
            if call.mixed or not call.runs:
                lost[DropReason.RUNS_MIXED if call.mixed else DropReason.NO_SESSION_RUN] += 1
                continue
            for run in call.runs:
                layers = layers.knowing(run.nodes.each())
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

    def _read(self, file: Path) -> Iterator[ProfiledRun]:
        for run in read_profile(file):
            if run.dropped:
                detail = Note.of(DropReason.PROFILE_FULL)
                self.lose(DropKind.DROPPED_EVENTS, run.dropped, "events", detail)
            yield run


def _name_of(request: SourceRequest) -> str:
    """What tells the counters of a submodule's parts apart: `vae.encoder`, `vae.decoder`; the
    submodule's own name where it has one part."""
    for name in ("encoder", "decoder"):
        if getattr(request.owner, name, None) is request.part:
            return f"{request.submodule}.{name}"
    return request.submodule
