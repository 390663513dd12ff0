"""Where the operators of a submodule come from: an `OperatorSource`, which its `Backend` opens.

A source is told of every invocation of its submodule before and after it, and of the pipeline calls
around them. When the run has ended it yields what each recorded invocation executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from profiler.capture.invocations import Invocation
from profiler.capture.selection import ALL, CallSelection
from profiler.capture.timeline import PipelineCall
from profiler.events import Drop
from profiler.trace.columns import CommandColumns, Counter
from profiler.trace.manifest_fields import Submodule

if TYPE_CHECKING:
    from profiler.capture.recorder import Recorder

__all__ = [
    "Gaps",
    "NewSessions",
    "OperatorSource",
    "OperatorTrace",
    "SourceRequest",
    "SourceSummary",
    "TimedCall",
]


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
    """How many events were begun once another had ended, and how many ns later, together."""

    count: int = 0
    total_ns: float = 0.0

    def __add__(self, other: Gaps) -> Gaps:
        return Gaps(self.count + other.count, self.total_ns + other.total_ns)

    @property
    def mean_ns(self) -> float | None:
        """None where there are none."""
        return self.total_ns / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """What a source did in the whole run.

    `events` counts operator events, each of which cost time, and `gaps` are those between them,
    where recording lies; `new_sessions` is what first calls took longer; `attributed_ns` of
    `total_ns` operator time found a module path; `sessions` counts profiled sessions. `host_events`
    are those
    of host work that it recorded between calls. `backend` names whose cost per event holds
    (`overhead`). `timed` holds
    the calls in order of their begin, where calls of both kinds were asked for. `known` is what
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
        """A call of the pipeline has begun on this thread."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """It has ended, also where it failed."""

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
