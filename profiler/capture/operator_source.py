"""`OperatorSource`: the interface that delivers the operators of a submodule's calls.

A source is notified before and after each invocation and each pipeline call. At the end of the
run it yields what each recorded invocation executed. Wrappers leave out calls by `--ops` and
`--max-size`:

    limit = SizeLimit(most_bytes)
    source = LimitedSource(source, limit)      # skips calls once the limit is reached
    limit.drops()                              # the calls without operators
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from profiler.capture.calls import Invocation, PipelineCall
from profiler.capture.patching import weakly
from profiler.capture.settings import ALL, CallSelection, Position
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.events import NO_STEP, UNKNOWN, Drop, DropKind, DropReason
from profiler.trace.manifest_fields import Submodule

if TYPE_CHECKING:
    from profiler.capture.recorder import Recorder


# --- The interface that delivers the operators of a submodule, opened by its `Backend`.


@dataclass(frozen=True, slots=True)
class OperatorTrace:
    """The commands of one invocation, and counters such as the memory in use."""

    invocation: Invocation
    commands: CommandColumns
    counters: tuple[Counter, ...]


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A recorded call of a submodule with traced and untraced calls: its duration, whether its
    operators were recorded, its inputs by name as "dtype[d0,d1,…]", and whether its session was
    new, which takes longer."""

    duration_ns: int
    traced: bool
    input_shapes: Mapping[str, str]
    on_new_session: bool = False


@dataclass(frozen=True, slots=True)
class NewSessions:
    """The extra time in ns of first calls on sessions opened for profiling, and its bounds. Without
    profiling these calls would have run on warm sessions; if that is unknown, only `most_ns` counts
    them."""

    ns: float = 0.0
    least_ns: float = 0.0
    most_ns: float = 0.0

    def __add__(self, other: NewSessions) -> NewSessions:
        return NewSessions(
            self.ns + other.ns, self.least_ns + other.least_ns, self.most_ns + other.most_ns
        )


@dataclass(frozen=True, slots=True)
class Gaps:
    """The number of events that were started after another had ended, and the total time between in
    ns."""

    count: int = 0
    total_ns: float = 0.0

    def __add__(self, other: Gaps) -> Gaps:
        return Gaps(self.count + other.count, self.total_ns + other.total_ns)

    @property
    def mean_ns(self) -> float | None:
        """The mean gap in ns; None if there are no gaps."""
        return self.total_ns / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """What a source did in the whole run.

    `events` counts operator events, each of which cost time; `gaps` are the times between them in
    which they were recorded. `new_sessions` is the extra time of first calls. `attributed_ns` of
    `total_ns` operator time has a module path. `sessions` counts profiled sessions, `host_events`
    the events of host work between calls. `backend` is the one whose cost per event applies
    (`overhead`). `timed` are the calls in order of their start, if traced and untraced calls were
    selected. `known` is what else the manifest says about the submodule.
    """

    events: int = 0
    gaps: Gaps = Gaps()
    new_sessions: NewSessions = NewSessions()
    attributed_ns: int = 0
    total_ns: int = 0
    sessions: int = 0
    host_events: int = 0
    drops: tuple[Drop, ...] = ()
    backend: str = ""
    timed: tuple[TimedCall, ...] = ()
    known: Submodule = field(default_factory=Submodule)


class OperatorSource(Protocol):
    """Traces the operators of one submodule."""

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Handle the start of a call of the pipeline on this thread, or of a part of one that is a
        generator or coroutine."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Handle the end of a pipeline call, also of one that failed, or of a part of one
        (`pipeline.suspended`)."""

    def before(self, invocation: Invocation) -> None:
        """Prepare for a run of the submodule on this thread; `invocation.recorded` is False in
        warm-up. The time of this method is not part of the call."""

    def after(self, invocation: Invocation) -> None:
        """Handle the end of an invocation, also of one that failed (`invocation.failed`)."""

    def leave_out(self, invocation: Invocation) -> None:
        """Prepare for a run of the submodule without tracing, in place of `before`, since the
        selection leaves it out. `after` is not called."""

    def close(self) -> None:
        """Stop tracing and restore the submodule; again without effect."""

    def traces(self) -> Iterator[OperatorTrace]:
        """Yield the operators of traced invocations, in order, each once and with
        `invocation.ops_traced` set: after a pipeline call those that are complete, if any; after
        `close` all others."""

    def summary(self) -> SourceSummary:
        """Return what the manifest says about this source; called after `traces`."""


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """The operators to trace: those of `part`, which executes `submodule` on `device`. `folder`
    is for the source's files and exists during the run. `event_cap` is the number of events before
    which a profiler that keeps them is renewed, None: its own limit. `selection` says which calls
    to trace; `owner` is the pipeline's submodule that contains the part."""

    submodule: str
    part: Any
    device: str
    folder: Path
    recorder: Recorder
    event_cap: int | None = None
    selection: CallSelection = ALL
    owner: Any = None


# --- A submodule some of whose calls are traced: each call is chosen before it starts.
#
# Untraced calls run as without profiling. Traced and untraced calls alternate in one run, so
# comparing them measures the profiling overhead (`overhead`).


@dataclass(slots=True)
class _Progress:
    """The progress of a pipeline call: the submodule's calls so far, and its first step."""

    calls: int = 0
    first_step: int = NO_STEP


class SelectedCalls:
    """An `OperatorSource` that has `source` trace only the selected invocations."""

    def __init__(
        self,
        source: OperatorSource,
        selection: CallSelection,
    ) -> None:
        self._source = source
        self._selection = selection
        self._progress: dict[PipelineCall | None, _Progress] = {}
        self._chosen: dict[Invocation, bool] = {}  # recorded ones, in order: traced or not

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Start the ordinals of its calls at 0, unless a part of it has run."""
        self._progress.setdefault(pipeline, _Progress())
        self._source.begin_pipeline(pipeline)

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Drop the ordinals of its calls, unless further parts of it follow."""
        if not pipeline.suspended:
            self._progress.pop(pipeline, None)
        self._source.end_pipeline(pipeline)

    def before(self, invocation: Invocation) -> None:
        """Choose whether to trace the call; in warm-up, traced and untraced calls alternate, so
        that both are warm."""
        progress = self._progress.setdefault(invocation.pipeline, _Progress())
        position = _position(invocation, progress)
        if invocation.recorded:
            chosen = self._selection.selects(position)
            self._chosen[invocation] = chosen
            invocation.left_out = not chosen
            progress.calls += 1
        else:
            chosen = progress.calls % 2 == 0
            if invocation.pipeline is not None:
                progress.calls += 1
        (self._source.before if chosen else self._source.leave_out)(invocation)

    def after(self, invocation: Invocation) -> None:
        """Pass on the end of a traced call."""
        if self._chosen.get(invocation, not invocation.recorded):
            self._source.after(invocation)

    def leave_out(self, invocation: Invocation) -> None:
        """Leave a call untraced, whatever the selection says."""
        self._source.leave_out(invocation)

    def close(self) -> None:
        """Restore the submodule."""
        self._source.close()

    def traces(self) -> Iterator[OperatorTrace]:
        """The operators of the selected invocations."""
        yield from self._source.traces()

    def summary(self) -> SourceSummary:
        """The source's summary, with the calls that the profiling overhead is measured by. Calls
        that were selected but not recorded are left out."""
        kept = [
            call
            for call, chosen in self._chosen.items()
            if call.end_ns >= 0 and chosen == call.ops_traced
        ]
        return replace(self._source.summary(), timed=_timed(kept))


def _position(invocation: Invocation, progress: _Progress) -> Position:
    if invocation.step != NO_STEP and progress.first_step == NO_STEP:
        progress.first_step = invocation.step
    return Position(progress.calls, invocation.step, progress.first_step, invocation.last_step)


def _timed(calls: Sequence[Invocation]) -> tuple[TimedCall, ...]:
    """The durations of calls: on the device if it reported a longer one than the host. Devices
    report untraced calls only, so a traced call took at least the median of those with its
    shapes."""
    noted: dict[tuple[str, ...], list[int]] = {}
    for call in calls:
        if call.device_duration_ns != UNKNOWN:
            noted.setdefault(_shapes(call), []).append(call.device_duration_ns)
    least = {shapes: int(median(found)) for shapes, found in noted.items()}
    timed = []
    for call in calls:
        on_device = least.get(_shapes(call), 0) if call.ops_traced else call.device_duration_ns
        took = max(call.end_ns - call.start_ns, on_device)
        timed.append(TimedCall(took, call.ops_traced, call.input_shapes, call.on_new_session))
    return tuple(timed)


def _shapes(call: Invocation) -> tuple[str, ...]:
    return tuple(call.input_shapes.values())


# --- `--max-size`: beyond it, calls are recorded without their operators.
#
# The size is known when call files are written. Calls that were traced before, and whose files come
# after the limit, lose their operators, too, so that a run exceeds it by one call at most.


@dataclass(slots=True)
class _Lost:
    """How many calls of a submodule lost their operators, and the first of them."""

    count: int
    first: int
    file: str


class SizeLimit:
    """The `most` bytes that a run may write, None for no limit. `reached` is never reset."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.reached = False
        self._lost: dict[str, _Lost] = {}

    def wrote(self, size: int) -> None:
        """Set the size of the bundle so far, in bytes."""
        if self.most is not None and size >= self.most:
            self.reached = True

    def lost(self, invocation: Invocation) -> None:
        """Record that a returned call has no operators because of the limit."""
        invocation.drop_noted = True
        call = invocation.as_call()
        known = self._lost.setdefault(call.submodule, _Lost(0, call.index, call.file_name))
        known.count += 1
        if call.index < known.first:
            known.first, known.file = call.index, call.file_name

    def drops(self) -> Iterator[Drop]:
        """A drop for each submodule: how many calls have no operators, and from which one on."""
        for submodule, lost in self._lost.items():
            detail = Note.of(DropReason.SIZE_REACHED, size=self.most or 0, file=lost.file)
            yield Drop(DropKind.UNTRACED_CALL, submodule, lost.count, "calls", detail)


class LimitedSource:
    """An `OperatorSource` that leaves out the calls that start after the limit is reached."""

    def __init__(self, source: Any, limit: SizeLimit) -> None:
        self._source = source
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def before(self, invocation: Invocation) -> None:
        """Start the call, or leave it out, which `CallWriter` reports once it has returned."""
        if self._limit.reached:
            invocation.left_out = invocation.beyond_size = invocation.recorded
            self._source.leave_out(invocation)
        else:
            self._source.before(invocation)

    def after(self, invocation: Invocation) -> None:
        """Pass on the end of a call that was not left out."""
        if not invocation.beyond_size:
            self._source.after(invocation)


# --- A pipeline's part as its operator source holds it: not alive.
#
# A part may know its pipeline, so a source that kept it would keep every
# model of a pipeline that the script has let go of.


class WeakPart:
    """Stands for `part`. Once that is gone it has no attributes, and what is set is dropped."""

    def __init__(self, part: Any) -> None:
        object.__setattr__(self, "_part", weakly(part))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        part = self._part()
        if part is not None:
            setattr(part, name, value)

    def __delattr__(self, name: str) -> None:
        part = self._part()
        if part is not None:
            delattr(part, name)


def when_gone(part: Any, action: Callable[[], None]) -> Callable[[], None]:
    """Run `action` when `part` goes, in this process only: a forked child has no part in it.
    Returns what calls that off."""
    try:
        finalizer = weakref.finalize(part, _in_process, os.getpid(), action)
    except TypeError as error:  # it knows no weak references, and is kept
        let_pass(error)
        return lambda: None
    finalizer.atexit = False

    def call_off() -> None:
        finalizer.detach()

    return call_off


def _in_process(process: int, action: Callable[[], None]) -> None:
    if os.getpid() == process:
        action()
