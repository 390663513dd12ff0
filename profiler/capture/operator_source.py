"""`OperatorSource`: the interface that delivers the operators of a submodule's calls.

A source is notified before and after each invocation and each pipeline call. At the end of the
run it yields what each recorded invocation executed. Wrappers leave out calls by `--ops` and
`--max-size`:

    limit = SizeLimit(most_bytes)
    source = LimitedSource(source, limit)      # skips calls once the limit is reached
    limit.drops()                              # the calls without operators
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from profiler.capture.calls import Invocation, PipelineCall
from profiler.capture.settings import ALL, CallSelection, Position
from profiler.text import Note
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.events import NO_STEP, UNKNOWN, Drop, DropKind, DropReason
from profiler.trace.manifest_fields import Submodule

if TYPE_CHECKING:
    from profiler.capture.recorder import Recorder


# --- Where the operators of a submodule come from: an `OperatorSource`, which its `Backend` opens.
#
# A source is told of every invocation of its submodule before and after it, and of the pipeline
# calls around them. When the run has ended it yields what each recorded invocation executed.


@dataclass(frozen=True, slots=True)
class OperatorTrace:
    """The commands of one invocation, and counters such as the memory that was in use."""

    invocation: Invocation
    commands: CommandColumns
    counters: tuple[Counter, ...]


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A recorded call of a submodule some of whose calls are traced: how long it took, whether
    its operators were recorded, and its inputs by name as "dtype[d0,d1,…]"."""

    duration_ns: int
    traced: bool
    input_shapes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NewSessions:
    """What the first calls on sessions that were opened for profiling took longer than later ones,
    in ns, between what it lies: without us these calls had run on sessions that were warm, or, as
    far as nobody knows (`most_ns` alone), may have."""

    ns: float = 0.0
    least_ns: float = 0.0
    most_ns: float = 0.0

    def __add__(self, other: NewSessions) -> NewSessions:
        return NewSessions(
            self.ns + other.ns, self.least_ns + other.least_ns, self.most_ns + other.most_ns
        )


@dataclass(frozen=True, slots=True)
class Gaps:
    """How many events were started once another had ended, and how many ns later, together."""

    count: int = 0
    total_ns: float = 0.0

    def __add__(self, other: Gaps) -> Gaps:
        return Gaps(self.count + other.count, self.total_ns + other.total_ns)

    @property
    def mean_ns(self) -> float | None:
        """None if there are none."""
        return self.total_ns / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """What a source did in the whole run.

    `events` counts operator events, each of which cost time, and `gaps` are those between them,
    if recording lies; `new_sessions` is what first calls took longer; `attributed_ns` of
    `total_ns` operator time found a module path; `sessions` counts profiled sessions. `host_events`
    are those
    of host work that it recorded between calls. `backend` names whose cost per event holds
    (`overhead`). `timed` holds
    the calls in order of their start, if calls of both kinds were asked for. `known` is what
    else the manifest says of the submodule.
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
        """A call of the pipeline has started on this thread."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """It has ended, also if it failed."""

    def before(self, invocation: Invocation) -> None:
        """The submodule is about to run on this thread; `invocation.recorded` is False in
        warm-up. What this takes is not part of the call."""

    def after(self, invocation: Invocation) -> None:
        """It has returned, or failed: `invocation.failed`."""

    def leave_out(self, invocation: Invocation) -> None:
        """In place of `before`: the submodule is about to run for an invocation that the
        selection leaves out, as if nobody traced. `after` is not called."""

    def close(self) -> None:
        """Trace no more, and leave the submodule as it was; again without effect."""

    def traces(self) -> Iterator[OperatorTrace]:
        """The operators of recorded invocations that were traced, in order, each once and with
        `invocation.ops_traced` set: after a pipeline call those that are complete, if any, and
        after `close` all that are left."""

    def summary(self) -> SourceSummary:
        """What the manifest says; after `traces`."""


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Whose operators are to be traced: `part` is what executes `submodule` on `device`. `folder`
    exists while the run lasts, for files of the source. A profiler that keeps so many events is
    renewed before `event_cap`, None: before its own limit. `selection` says in which calls; `owner`
    is the pipeline's submodule that the part is of."""

    submodule: str
    part: Any
    device: str
    folder: Path
    recorder: Recorder
    event_cap: int | None = None
    selection: CallSelection = ALL
    owner: Any = None


# --- A submodule some of whose calls are traced: each call is chosen before it begins.
#
# The calls that are left out run as if nobody traced operators, so those of both kinds, in turn in
# one run, measure what tracing costs (`overhead`).


@dataclass(slots=True)
class _Progress:
    """How far a pipeline call is: the submodule's calls so far, and its first step."""

    calls: int = 0
    first_step: int = NO_STEP


class SelectedCalls:
    """An `OperatorSource` that gives `source` the selected invocations alone, and has it
    leave out the others."""

    def __init__(
        self,
        source: OperatorSource,
        selection: CallSelection,
    ) -> None:
        self._source = source
        self._selection = selection
        self._progress: dict[PipelineCall | None, _Progress] = {}
        self._chosen: dict[Invocation, bool] = {}  # the recorded ones, in order

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """The ordinals of its calls start with 0."""
        self._progress[pipeline] = _Progress()
        self._source.begin_pipeline(pipeline)

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """They are needed no more."""
        self._progress.pop(pipeline, None)
        self._source.end_pipeline(pipeline)

    def before(self, invocation: Invocation) -> None:
        """Choose; in warm-up calls of both kinds take turns, so that both are warm."""
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
        """The source hears of its own calls alone."""
        if self._chosen.get(invocation, not invocation.recorded):
            self._source.after(invocation)

    def leave_out(self, invocation: Invocation) -> None:
        """Whatever the selection says."""
        self._source.leave_out(invocation)

    def close(self) -> None:
        """Leave the submodule as it was."""
        self._source.close()

    def traces(self) -> Iterator[OperatorTrace]:
        """The operators of the selected invocations."""
        yield from self._source.traces()

    def summary(self) -> SourceSummary:
        """The source's own, with the calls by which the profiling overhead is measured. Calls that
        were selected but not recorded are of neither kind."""
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
    """How long calls took: their device, if it noted to have been on them for longer than the
    host. A traced one is not noted; it took its device no less than others of its shapes, half of
    which took no longer."""
    noted: dict[tuple[str, ...], list[int]] = {}
    for call in calls:
        if call.device_duration_ns != UNKNOWN:
            noted.setdefault(_shapes(call), []).append(call.device_duration_ns)
    least = {shapes: int(median(found)) for shapes, found in noted.items()}
    timed = []
    for call in calls:
        on_device = least.get(_shapes(call), 0) if call.ops_traced else call.device_duration_ns
        took = max(call.end_ns - call.start_ns, on_device)
        timed.append(TimedCall(took, call.ops_traced, call.input_shapes))
    return tuple(timed)


def _shapes(call: Invocation) -> tuple[str, ...]:
    return tuple(call.input_shapes.values())


# --- `--max-size`: beyond it calls are recorded without their operators.
#
#     limit = SizeLimit(most_bytes)
#     source = LimitedSource(source, limit)      # leaves out what begins when it is reached
#     limit.wrote(bytes)                         # of the bundle, so far
#     limit.lost(invocation)                     # this call has none, for it
#     limit.drops()                              # which calls those are
#
# How much a run writes is known when call files are written. Calls that were traced before and
# whose files come behind the limit lose their operators as well, so that a run exceeds it by one
# call's.


@dataclass(slots=True)
class _Lost:
    """How many calls of a submodule have no operators, and the first of them."""

    count: int
    first: int
    file: str


class SizeLimit:
    """The `most` bytes that a run may write, None for any number. `reached` never goes back."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.reached = False
        self._lost: dict[str, _Lost] = {}

    def wrote(self, size: int) -> None:
        """The bundle has so many bytes by now."""
        if self.most is not None and size >= self.most:
            self.reached = True

    def lost(self, invocation: Invocation) -> None:
        """A call that has returned is recorded without its operators."""
        invocation.drop_noted = True
        call = invocation.as_call()
        known = self._lost.setdefault(call.submodule, _Lost(0, call.index, call.file_name))
        known.count += 1
        if call.index < known.first:
            known.first, known.file = call.index, call.file_name

    def drops(self) -> Iterator[Drop]:
        """A drop for each submodule: how many calls, and from which on."""
        for submodule, lost in self._lost.items():
            detail = Note.of(DropReason.SIZE_REACHED, size=self.most or 0, file=lost.file)
            yield Drop(DropKind.UNTRACED_CALL, submodule, lost.count, "calls", detail)


class LimitedSource:
    """An `OperatorSource` that gives `source` no call that starts when the limit is reached."""

    def __init__(self, source: Any, limit: SizeLimit) -> None:
        self._source = source
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def before(self, invocation: Invocation) -> None:
        """Start, or leave it out, which `CallWriter` tells of when the call has returned."""
        if self._limit.reached:
            invocation.left_out = invocation.beyond_size = invocation.recorded
            self._source.leave_out(invocation)
        else:
            self._source.before(invocation)

    def after(self, invocation: Invocation) -> None:
        """The source hears of its own calls alone."""
        if not invocation.beyond_size:
            self._source.after(invocation)
