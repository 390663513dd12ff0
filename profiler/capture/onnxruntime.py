"""Operator commands of ONNX Runtime: one profiled session per submodule, cut by its runs.

ONNX Runtime profiles whole sessions, stops at 1,000,000 events and ends a session's profile once.
So a submodule whose operators are traced gets a session of its own with profiling on, which is
renewed between calls before the cap is reached. The n-th `model_run` of a session belongs to the
n-th invocation noted for it. Calls whose operators are not traced run on the part's own session.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from profiler.capture.module_classes import known_modules
from profiler.capture.onnx_layers import LayerMap, build_layer_map, node_count
from profiler.capture.onnx_profile import EVENT_CAP, NodeEvent, ProfiledRun, read_profile
from profiler.capture.operator_source import OperatorTrace, SourceRequest, SourceSummary
from profiler.capture.recorder import Invocation, Recorder
from profiler.capture.timeline import PipelineCall
from profiler.errors import InputError
from profiler.events import ROOT_DEVICE, UNKNOWN, Category, Loss, Track
from profiler.trace.columns import CommandBuilder, Counter

__all__ = ["ProfiledPart"]

_EVENTS_BESIDE_NODES = 2  # model_run and SequentialExecutor::Execute
_TRANSFERS = ("MemcpyToHost", "MemcpyFromHost")
_CPU = "CPUExecutionProvider"


@dataclass(slots=True)
class _Segment:
    """One profiled session: where its events go and whom its runs belong to (None: warm-up)."""

    session: Any
    start_ns: int
    runs: list[Invocation | None] = field(default_factory=list)
    file: Path | None = None
    converted: bool = False


class ProfiledPart:
    """A part of a pipeline (something with a `session`) whose operators are traced.

    `part` offers `session_options()` and `open_session(options)`, or holds an
    `onnxruntime.InferenceSession` as `session`. Profiles and the optimized graph go to `folder`.
    """

    def __init__(
        self, submodule: str, part: Any, device: str, folder: Path, *, event_cap: int = EVENT_CAP
    ) -> None:
        self.submodule = submodule
        self.part = part
        self.losses: list[Loss] = []
        self.attributed_ns = 0
        self.total_ns = 0
        self.events = 0
        self.renewals = 0
        self._device = device
        self._folder = folder
        self._cap = event_cap
        self._per_run = -1  # events a run takes; -1: not known yet
        self._segments: list[_Segment] = []
        self._optimized = folder / f"{submodule}.optimized.onnx"
        self._layers: LayerMap | None = None
        self._recorder: Recorder | None = None
        self._plain: Any = None  # the session of calls that are left out
        self._give_back: Callable[[], None] | None = None

    @classmethod
    def lent(cls, request: SourceRequest) -> ProfiledPart:
        """An `OperatorSource`: the part runs on the profiled session until `close`, and on its
        own, opened where it was not, in the calls that the selection leaves out."""
        part = cls(
            request.submodule,
            request.part,
            request.device,
            request.folder,
            event_cap=request.event_cap,
        )
        part._recorder = request.recorder
        opened = _opened_session(request.part)
        if request.selection.mixed:
            part._plain = opened or request.part.open_session(request.part.session_options())
        session = part.open()
        part._give_back = _lend_session(request.part, session, opened)
        return part

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Nothing: sessions are profiled whatever runs them."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Nothing either."""

    def before(self, invocation: Invocation) -> None:
        """The part's session is about to run for `invocation`; renews the session in time."""
        recorder = self._recorder
        begin = recorder.clock.now_ns() if recorder else 0
        renewed = self.note_run(invocation if invocation.recorded else None)
        if renewed or self._plain is not None:
            self.part.session = self.session
        if renewed and recorder:
            end = recorder.clock.now_ns()
            recorder.add_host_work("profiler.renew_session", begin, end)

    def leave_out(self, _invocation: Invocation) -> None:
        """The part is about to run for an invocation that is not traced."""
        if self._plain is not None:  # not closed meanwhile
            self.part.session = self._plain

    def after(self, invocation: Invocation) -> None:
        """Nothing: a run's events are in the profile."""

    def close(self) -> None:
        """Give the part its own session back and end profiling."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
        self._plain = None
        self.end()

    def summary(self) -> SourceSummary:
        """Events, attribution and losses of the whole run; after `traces`."""
        return SourceSummary(
            self.events,
            self.attributed_ns,
            self.total_ns,
            1 + self.renewals,
            tuple(self.losses),
            backend="onnxruntime",
            known=known_modules(self._layers.classes if self._layers else {}),
        )

    @property
    def session(self) -> Any:
        """The session that is being profiled."""
        return self._segments[-1].session

    def open(self) -> Any:
        """Open the first profiled session and return it."""
        session = self._open(self._optimized if self._room_for_graph() else None)
        if self._optimized.is_file():
            nodes, loops = node_count(self._optimized)
            self._per_run = -1 if loops else nodes + _EVENTS_BESIDE_NODES
        return session

    def _room_for_graph(self) -> bool:
        """Whether the disk has room for the optimized graph, which holds all weights once more.

        Without it layers are found by names alone, and the first session is renewed to count the
        events of a run.
        """
        model = _model_of(self.part)
        size = len(model) if isinstance(model, bytes) else _bytes_of(model.parent)
        return shutil.disk_usage(self._folder).free > 3 * size + (1 << 30)

    def _open(self, optimized: Path | None) -> Any:
        prefix = self._folder / f"{self.submodule}.{len(self._segments)}"
        session = _open_profiled(self.part, prefix, optimized)
        self._segments.append(_Segment(session, session.get_profiling_start_time_ns()))
        return session

    def note_run(self, invocation: Invocation | None) -> bool:
        """Say whose run the session's next one is. Returns whether the session was renewed, so
        that the caller hands the new `session` to the part."""
        renewed = self._must_renew()
        if renewed:
            self._end(self._segments[-1])
            self._open(None)
            self.renewals += 1
        self._segments[-1].runs.append(invocation)
        return renewed

    def _must_renew(self) -> bool:
        """Whether one more run could reach the cap. A graph with loops shows its size only when
        it has run: its first session ends after one run and is counted."""
        done = len(self._segments[-1].runs)
        if self._per_run < 0:
            if done == 0:
                return False
            segment = self._segments[-1]
            self._end(segment)
            assert segment.file is not None
            longest = max((len(run.nodes) for run in read_profile(segment.file)), default=0)
            self._per_run = 2 * longest + _EVENTS_BESIDE_NODES  # a loop may run longer next time
            return True
        # The session itself takes a few events, and the marker of truncation one.
        return done > 0 and (done + 1) * self._per_run + 8 > self._cap

    def end(self) -> None:
        """End profiling: no further run is traced."""
        for segment in self._segments:
            self._end(segment)

    @staticmethod
    def _end(segment: _Segment) -> None:
        if segment.file is None:
            segment.file = Path(segment.session.end_profiling())
            segment.session = None

    def traces(self) -> Iterator[OperatorTrace]:
        """The commands of every recorded invocation, in order; none before `close`, for reading
        a profile takes the cores that the pipeline needs."""
        if self._give_back is not None:
            return
        self._layers = self._layers or build_layer_map(_model_of(self.part), self._optimized)
        for segment in self._segments:
            if segment.file is None or segment.converted:
                continue
            yield from self._cut(segment, segment.file, self._layers)
            segment.file.unlink(missing_ok=True)
            segment.converted = True

    def _cut(self, segment: _Segment, file: Path, layers: LayerMap) -> Iterator[OperatorTrace]:
        runs = iter(segment.runs)
        unmatched = 0
        for run in read_profile(file):
            if run.dropped:
                detail = "ONNX Runtime's profile was full: trace fewer calls of this submodule"
                loss = Loss("dropped_events", self.submodule, run.dropped, "events", detail)
                self.losses.append(loss)
            if run.duration_ns == UNKNOWN:
                continue
            invocation = next(runs, None)
            if invocation is None:
                continue
            self.events += len(run.nodes) + _EVENTS_BESIDE_NODES
            yield self._trace(invocation, run, segment.start_ns, layers)
        unmatched = sum(invocation is not None for invocation in runs)
        if unmatched:
            detail = "no operator events: the call failed or ONNX Runtime's profile was full"
            self.losses.append(Loss("untraced_call", self.submodule, unmatched, "calls", detail))

    def _trace(
        self, invocation: Invocation, run: ProfiledRun, origin_ns: int, layers: LayerMap
    ) -> OperatorTrace:
        origin_ns += _clock_correction(invocation, run, origin_ns)
        builder = CommandBuilder()
        threads: dict[tuple[str, int], int] = {}
        for node in run.nodes:
            layer, known = layers.layer_of(node.name, node.op_type)
            self.total_ns += node.duration_ns
            self.attributed_ns += node.duration_ns if known else 0
            builder.add(
                self._track(node, threads),
                layer,
                node.op_type,
                origin_ns + node.start_ns,
                node.duration_ns,
                shapes=node.shapes,
                bytes_read=node.bytes_read,
                bytes_written=node.bytes_written,
            )
        invocation.ops_traced = True
        return OperatorTrace(invocation, builder.build(), self._arena(run, origin_ns))

    def _track(self, node: NodeEvent, threads: dict[tuple[str, int], int]) -> Track:
        """The provider's track on its device; further executor threads have tracks of their own.

        In a session on another provider, nodes that stay on the CPU run on the root device.
        """
        on_host = node.provider in (_CPU, "") and not self._device.startswith("cpu")
        device = ROOT_DEVICE if on_host else self._device
        category: Category = "dma" if node.op_type in _TRANSFERS else "compute"
        name = "Memcpy" if category == "dma" else node.provider or "provider unknown"
        number = threads.setdefault(
            (name, node.thread), sum(1 for other, _ in threads if other == name)
        )
        return Track(device, f"{name} thread {number}" if number else name, category)

    def _arena(self, run: ProfiledRun, origin_ns: int) -> tuple[Counter, ...]:
        samples = [
            (origin_ns + node.start_ns + node.duration_ns, node.arena_bytes)
            for node in run.nodes
            if node.arena_bytes >= 0
        ]
        if not samples:
            return ()
        times, values = np.array(sorted(samples), dtype=np.int64).T
        changed = np.flatnonzero(np.diff(values, prepend=-1))
        name = f"{self.submodule} arena in use"
        return (Counter(self._device, name, "bytes", times[changed], values[changed]),)


def _opened_session(part: Any) -> Any:
    """The session that `part` has open, None where it would open one on first use."""
    return getattr(part, "opened_session", None) if hasattr(part, "open_session") else part.session


def _lend_session(part: Any, session: Any, opened: Any) -> Callable[[], None]:
    """Give `part` the profiled session; returns what gives its own back, which is `opened`."""
    part.session = session

    def give_back() -> None:
        if opened is None:
            del part.session
        else:
            part.session = opened

    return give_back


def _clock_correction(invocation: Invocation, run: ProfiledRun, origin_ns: int) -> int:
    """0 where the run lies within its invocation (give or take ONNX Runtime's µs); else what
    moves it to the invocation's begin: the wall clock was set during the run."""
    start = origin_ns + run.start_ns
    end = start + run.duration_ns
    slack = 1_000_000  # ns
    if start >= invocation.start_ns - slack and end <= invocation.end_ns + slack:
        return 0
    return invocation.start_ns - start


def _bytes_of(folder: Path) -> int:
    """The size of a submodule's folder: its graph and its external data."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _open_profiled(part: Any, prefix: Path, optimized: Path | None) -> Any:
    """A new session of `part` with profiling on; writes the optimized graph where asked."""
    import onnxruntime

    if hasattr(part, "open_session"):
        options = part.session_options()
        _profile(options, prefix, optimized)
        return part.open_session(options)
    session = part.session
    options = onnxruntime.SessionOptions()
    known = session.get_session_options()
    for name in ("intra_op_num_threads", "inter_op_num_threads", "execution_mode"):
        setattr(options, name, getattr(known, name))
    options.graph_optimization_level = known.graph_optimization_level
    _profile(options, prefix, optimized)
    providers = list(session.get_provider_options().items())
    return onnxruntime.InferenceSession(_model_of(part), options, providers=providers)


def _profile(options: Any, prefix: Path, optimized: Path | None) -> None:
    options.enable_profiling = True
    options.profile_file_prefix = str(prefix)
    options.log_severity_level = 3  # it warns that an optimized graph fits this machine only
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name",
            f"{optimized.name}.data",
        )


def _model_of(part: Any) -> Any:
    """The model behind a part: a path, or bytes where a session was made from bytes."""
    path = getattr(part, "model_path", None)
    if path is not None:
        return Path(path)
    session = part.session
    source = getattr(session, "_model_path", None) or getattr(session, "_model_bytes", None)
    if source is None:
        raise InputError(f"{part!r} tells neither path nor bytes of its model: set model_path")
    return source if isinstance(source, bytes) else Path(source)
