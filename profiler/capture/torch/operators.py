"""torch operators and GPU kernels of submodule calls, recorded by torch.profiler.

    source = TorchOperators.of(request)      # an `OperatorSource`
    source.before(invocation); module(...); source.after(invocation)
    source.end_pipeline(pipeline)            # the session stops; it is cut later
    source.close(); list(source.traces())

All submodules share one profiler session per pipeline call. The session stops before an
untraced call, so that the call runs without profiling.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profiler.capture.backend import Mark
from profiler.capture.calls import (
    HostCommands,
    Invocation,
    OwnWork,
    PipelineCall,
    forget_in_children,
)
from profiler.capture.imports import known_modules
from profiler.capture.operator_source import (
    NewSessions,
    OperatorTrace,
    SourceRequest,
    SourceSummary,
)
from profiler.capture.overhead import EventCost
from profiler.capture.recorder import Recorder
from profiler.capture.torch.events import CALL, Activity, session_events
from profiler.capture.torch.modules import (
    TORCHS_OWN,
    ModuleRanges,
    accelerator,
    class_name,
    close_range,
    is_profiling,
    new_profiler,
    open_range,
    started,
)
from profiler.capture.torch.profiler_session import EVENT_CAP, CutCall, TracedCall, Tracing
from profiler.capture.torch.script_profilers import PROFILERS
from profiler.errors import InputError
from profiler.kineto.trace_file import read_kineto
from profiler.text import Note
from profiler.trace.events import Drop, DropKind, DropReason
from profiler.trace.manifest_fields import Submodule

# --- The cost of recording one event of torch: measured on small transformer blocks, recorded as
# runs are.


_BLOCKS, _PAIRS, _RUNS = 2, 9, 5  # the fastest of a few runs counts; an event keeps 9 kB
_TOKENS, _WIDTH, _HEADS = 16, 32, 4
_RANGE = f"{CALL}0"
_LONGEST_S = 1.0  # after which no further pair is started
_BUSY_S = 0.1  # for two runs of the chain, if other threads hold the interpreter


def torch_event_cost() -> EventCost | None:
    """Measure the CPU time of this thread per recorded event: median and quartiles of pairs.

    A chain of transformer blocks runs with and without a session and our hooks in turn, on the
    accelerator if there is one. None if it cannot be measured (a profiler of the script runs, or
    other threads leave no time), or noise exceeds it. The time to stop and read a session, between
    calls, is not included.
    """
    import torch

    with suppress(RuntimeError, InputError, OSError), torch.no_grad():
        found = accelerator()
        device = found if found in TORCHS_OWN else "cpu"  # others compile each operator
        chain = torch.nn.Sequential(*(_block() for _ in range(_BLOCKS))).to(device).eval()
        given = torch.ones(1, _TOKENS, _WIDTH, device=device)
        begin = time.perf_counter()
        plain, traced, events = [], [], 0
        _fastest(chain, given, runs=2)
        if time.perf_counter() > begin + _BUSY_S:
            return None
        for pair in range(_PAIRS + 1):  # the first pair is a warm-up
            if is_profiling():
                return None
            without = _fastest(chain, given)
            with_, results = _traced_seconds(chain, given)
            if pair == 0:
                events = _count(results)
            else:
                plain.append(without)
                traced.append(with_)
            if time.perf_counter() > begin + _LONGEST_S and plain:
                break
        pairs = [b - a for a, b in zip(plain, traced, strict=True)]
        if events and len(pairs) > 1:
            return EventCost.of_pairs(pairs, events)
        return EventCost(pairs[0] * 1e9 / events) if events and pairs[0] > 0 else None
    return None


_PAGES, _PAGE = 256, 4096  # below 2 MB, else one huge page may hold them all


def new_memory_cost(pages: int) -> NewSessions:
    """The cost of touching `pages` pages of new memory, which sessions of the measured chain reuse:
    at least 0, since the program might have touched them anyway, and at most half as much more."""
    if not pages:
        return NewSessions()
    with mmap.mmap(-1, _PAGES * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        begin = time.thread_time()
        for first in range(0, _PAGES * _PAGE, _PAGE):
            memory[first] = 1
        between = time.thread_time()
        for first in range(0, _PAGES * _PAGE, _PAGE):
            memory[first] = 2
        page_s = max(2 * between - begin - time.thread_time(), 0.0) / _PAGES
    cost_ns = pages * page_s * 1e9
    return NewSessions(cost_ns, 0.0, 1.5 * cost_ns)


def _block() -> Any:
    """Attention and a feed-forward part behind their norms, as in diffusion transformers."""
    import torch
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
            self.to_q, self.to_k, self.to_v, self.to_out, self.ff_1, self.ff_2 = (
                nn.Linear(_WIDTH, _WIDTH) for _ in range(6)
            )
            self.activation = nn.GELU()

        def forward(self, x: Any) -> Any:
            normed = self.norm_1(x)
            q, k, v = (
                to(normed).view(1, _TOKENS, _HEADS, -1).transpose(1, 2)
                for to in (self.to_q, self.to_k, self.to_v)
            )
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.to_out(attended.transpose(1, 2).reshape(1, _TOKENS, _WIDTH)) * 0.5
            return x + self.ff_2(self.activation(self.ff_1(self.norm_2(x) * 1.5 + 0.5)))

    return Block()


def _fastest(chain: Any, given: Any, runs: int = _RUNS) -> float:
    """The CPU time in s of the fastest of a few runs."""
    found = []
    for _ in range(runs):
        begin = time.thread_time()
        chain(given)
        found.append(time.thread_time() - begin)
    return min(found)


def _traced_seconds(chain: Any, given: Any) -> tuple[float, Any]:
    """The CPU time in s of the fastest of a few runs in a session with all layers hooked, and the
    session's results."""
    ranges, profiler = ModuleRanges(chain), new_profiler()
    if not started(profiler):
        raise RuntimeError("this thread has a profiler already")
    ranges.attach()
    try:
        open_range(_RANGE)
        seconds = _fastest(chain, given)
        close_range(_RANGE)
    finally:
        profiler.__exit__(None, None, None)
        ranges.detach()
    return seconds, profiler.kineto_results


def _count(results: Any) -> int:
    """The number of host events that a run recorded."""
    if results is None or not results.trace_start_ns():
        return 0
    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        path = Path(folder) / "chain.json"
        results.save(str(path))
        events = session_events(read_kineto(path))
    return len(events.rows_of(Activity.OPERATOR, Activity.ANNOTATION)) // _RUNS


# --- Marks in the streams of GPUs: CUDA events, under that name for AMD, too.
#
# `torch.cuda.Event`: https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html; times
# have a resolution of 0.5 µs (`cudaEventElapsedTime`), and are in ms as a float of seven digits.


_GPU = "cuda"


@dataclass(frozen=True, slots=True)
class EventMark:
    """A `torch.cuda.Event` that was recorded in a stream."""

    event: Any

    def passed(self) -> bool:
        """Whether the stream has reached the event."""
        return bool(self.event.query())

    def since_ns(self, earlier: Mark) -> int:
        """The time in ns since another event of its device."""
        if not isinstance(earlier, EventMark):
            raise TypeError("a mark of another kind")
        return round(float(earlier.event.elapsed_time(self.event)) * 1e6)


class StreamMarks:
    """Puts marks into this thread's current stream of a GPU; `cuda` is `torch.cuda`. It is not used
    before CUDA is started, nor while a graph is captured: the event would become a part of the
    graph, and a query would invalidate the capture."""

    def __init__(self, cuda: Any = None) -> None:
        self._cuda = cuda

    def ready(self, device: str) -> bool:
        """Whether the device is a GPU whose stream is not being captured."""
        kind, _, index = device.partition(":")
        if kind != _GPU or not index.isdecimal():
            return False
        if self._cuda is None:
            self._cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._cuda is None or not self._cuda.is_initialized():
            return False
        with self._cuda.device(int(index)):
            return not self._cuda.is_current_stream_capturing()

    def mark(self, device: str) -> EventMark:
        """Record an event behind all work launched on the stream."""
        event = self._cuda.Event(enable_timing=True)
        with self._cuda.device(_index(device)):
            event.record()
        return EventMark(event)

    def empty(self, device: str) -> bool:
        """Whether the stream is idle."""
        with self._cuda.device(_index(device)):
            return bool(self._cuda.current_stream().query())


def _index(device: str) -> int:
    return int(device.partition(":")[2])


# --- Operators and kernels of torch submodules, through torch.profiler.
#
# Each invocation is enclosed by a range of ours, and each module call below the submodule
# (`ModuleRanges`); events in the ranges become commands (`find_commands`). Work of the pipeline
# between invocations becomes commands outside calls (`HostCommands`).
# stopped, so that it runs unprofiled.


TRACING = Tracing()  # torch has one profiler per process
PROFILERS.give_way = TRACING.give_way
forget_in_children(TRACING.forget)
_EVENTS_PER_MODULE = 12  # until an invocation has been counted: as diffusers' SD3 transformer
_FEWEST_EVENTS = 2_000  # a compiled submodule has few modules and many events
_UNITS = {
    DropKind.UNTRACED_CALL: "calls",
    DropKind.DROPPED_EVENTS: "events",
    DropKind.UNCLOSED_SLICE: "events",
}


class TorchOperators:
    """An `OperatorSource` for one submodule, a torch module."""

    def __init__(
        self,
        submodule: str,
        module: Any,
        recorder: Recorder,
        *,
        tracing: Tracing = TRACING,
        event_cap: int = EVENT_CAP,
    ) -> None:
        self._submodule = submodule
        self._layer = class_name(module)
        self.recorder = recorder
        self._clock = recorder.clock
        self._tracing = tracing
        self._cap = event_cap
        self._modules = ModuleRanges(module)
        self._open: dict[int, TracedCall] = {}  # by id of the invocation
        self._traces: deque[OperatorTrace] = deque()  # appended by the converting thread
        self._expected = 0  # events of an invocation, 0: unknown yet
        self._closed = False
        self._lock = threading.RLock()  # a collected generator may end its pipeline call anywhere
        self._pipelines: set[int] = set()  # ids of the running pipeline calls
        self._sessions = 0  # sessions that recorded its invocations
        self._new_pages = 0  # of memory, touched while they recorded
        self._latest = 0  # the number of the latest of them
        self._summary = SourceSummary(backend="torch")
        self._lost: dict[tuple[DropKind, Note], int] = {}  # counts by kind and detail
        PROFILERS.watch(self)

    @classmethod
    def of(cls, request: SourceRequest) -> TorchOperators:
        """Create the source for a request; nothing is hooked before the first invocation."""
        return cls(request.submodule, request.part, request.recorder)

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Count the pipeline call; the session starts with the first recorded invocation."""
        with self._lock:
            self._pipelines.add(id(pipeline))
        self._tracing.begin_pipeline((id(self), id(pipeline)))

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Stop this thread's session; remove the hooks with the last pipeline call."""
        with self._lock:
            self._pipelines.discard(id(pipeline))
            last = not self._pipelines
        if last:
            self._modules.detach()
        self._tracing.end_pipeline((id(self), id(pipeline)))
        self._end_session()

    def _end_session(self) -> None:
        begin = self._clock.now_ns()
        if self._tracing.end_session():
            self.recorder.add_own_work(OwnWork.STOP_SESSION, begin, self._clock.now_ns())

    def before(self, invocation: Invocation) -> None:
        """Open the invocation's range; starts or renews the session if that is due."""
        if not invocation.recorded or self._closed:
            return
        begin, sessions = self._clock.now_ns(), self._tracing.sessions
        self._modules.attach()
        call = TracedCall(self._layer, lambda cut: self._keep(invocation, cut), owner=self)
        call.packed = self._modules.packed
        pipeline = invocation.pipeline
        host = None if pipeline is None else lambda: self._host_range(pipeline)
        expected = self._expected or max(_EVENTS_PER_MODULE * len(self._modules), _FEWEST_EVENTS)
        memory = self.recorder.memory
        if self._tracing.begin_call(call, self._clock, expected, self._cap, host, memory=memory):
            self._open[id(invocation)] = call
            self._sessions += self._latest != self._tracing.sessions
            self._latest = self._tracing.sessions
        else:
            self._lose(DropKind.UNTRACED_CALL, 1, Note.of(DropReason.PROFILER_IN_USE))
        if self._tracing.sessions != sessions:
            self.recorder.add_own_work(OwnWork.START_SESSION, begin, self._clock.now_ns())

    def after(self, invocation: Invocation) -> None:
        """Close the invocation's range. Outside every pipeline call, this ends its session."""
        call = self._open.pop(id(invocation), None)
        if call is None:
            return
        self._tracing.end_call(call, self._clock)
        if not self._pipelines:
            self._modules.detach()
            self._end_session()

    def leave_out(self, _: Invocation) -> None:
        """Run the next invocation unprofiled: no session, no hooks on its modules."""
        self._modules.detach()
        _pause(self._tracing, self.recorder)

    def close(self) -> None:
        """Remove the hooks and end the session, if this thread can; again without effect."""
        self._closed = True
        self._modules.detach()
        self._open.clear()
        self._tracing.release(self)

    def traces(self) -> Iterator[OperatorTrace]:
        """Yield the operators of every invocation whose session has been converted, in order, each
        once."""
        with suppress(IndexError):
            while True:
                yield self._traces.popleft()

    def summary(self) -> SourceSummary:
        """Events, attribution to modules below the submodule, drops and classes of modules."""
        drops = [
            Drop(kind, self._submodule, count, _UNITS[kind], detail)
            for (kind, detail), count in self._lost.items()
        ]
        return replace(
            self._summary,
            sessions=self._sessions,
            new_sessions=new_memory_cost(self._new_pages),
            drops=tuple(drops),
            known=Submodule(modules=known_modules(self._modules.classes)),
        )

    def _host_range(self, pipeline: PipelineCall) -> TracedCall:
        """The range for operators between invocations."""
        return TracedCall("", lambda cut: self._keep_host(pipeline, cut), owner=self)

    def _keep_host(self, pipeline: PipelineCall, cut: CutCall | Note) -> None:
        """Add the host work in a session. If it has none, the drops of its calls say why."""
        if isinstance(cut, CutCall):
            self.recorder.host_commands.append(HostCommands(cut.commands, pipeline))
            known = self._summary
            self._summary = replace(known, host_events=known.host_events + cut.found.events)
            self._new_pages += cut.new_pages
            self._lose(DropKind.DROPPED_EVENTS, cut.found.dropped, Note.of(DropReason.BUFFERS_FULL))

    def _keep(self, invocation: Invocation, cut: CutCall | Note) -> None:
        """Add the commands of an invocation in a session, or the drop."""
        if isinstance(cut, Note):
            if not invocation.failed:
                self._lose(DropKind.UNTRACED_CALL, 1, cut)
            return
        found, known = cut.found, self._summary
        self._new_pages += cut.new_pages
        self._expected = max(self._expected, found.events)
        self._summary = replace(
            known,
            events=known.events + found.events,
            attributed_ns=known.attributed_ns + found.attributed_ns,
            total_ns=known.total_ns + found.total_ns,
        )
        self._lose(DropKind.DROPPED_EVENTS, found.dropped, Note.of(DropReason.BUFFERS_FULL))
        not_ended = Note.of(DropReason.OPERATORS_NOT_ENDED)
        self._lose(DropKind.UNCLOSED_SLICE, found.unfinished, not_ended)
        if invocation.failed:
            return
        invocation.ops_traced = True
        self._traces.append(OperatorTrace(invocation, cut.commands, cut.counters))

    def _lose(self, kind: DropKind, count: int, detail: Note) -> None:
        if count:
            with self._lock:
                self._lost[kind, detail] = self._lost.get((kind, detail), 0) + count


class TorchPause:
    """An `OperatorSource` for an untraced torch module: its invocations run unprofiled, while
    others of their pipeline call are traced."""

    def __init__(self, recorder: Recorder, *, tracing: Tracing = TRACING) -> None:
        self._recorder = recorder
        self._tracing = tracing

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Do nothing."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Do nothing: the tracing sources end their sessions."""

    def before(self, invocation: Invocation) -> None:
        """Stop this thread's session, if one is running."""
        invocation.left_out = True
        _pause(self._tracing, self._recorder)

    def after(self, invocation: Invocation) -> None:
        """Do nothing: the next traced invocation starts a session."""

    def leave_out(self, invocation: Invocation) -> None:
        """Stop this thread's session, if one is running: all invocations are left out."""
        self.before(invocation)

    def close(self) -> None:
        """Do nothing: nothing is hooked."""

    def traces(self) -> Iterator[OperatorTrace]:
        """Yield nothing."""
        return iter(())

    def summary(self) -> SourceSummary:
        """An empty summary, since nothing was traced."""
        return SourceSummary(backend="torch")


def _pause(tracing: Tracing, recorder: Recorder) -> None:
    """Stop this thread's session, if one is running, and record that as our own work."""
    begin = recorder.clock.now_ns()
    if tracing.pause():
        recorder.add_own_work(OwnWork.STOP_SESSION, begin, recorder.clock.now_ns())
