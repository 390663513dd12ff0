"""A submodule some of whose calls are traced: each call is chosen before it begins.

The calls that are left out run as if nobody traced operators, so those of both kinds, in turn in
one run, measure what tracing costs (`overhead`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from profiler.capture.invocations import Invocation
from profiler.capture.operator_source import (
    OperatorSource,
    OperatorTrace,
    SourceSummary,
    TimedCall,
)
from profiler.capture.selection import CallSelection, Position
from profiler.capture.timeline import PipelineCall
from profiler.events import NO_STEP, UNKNOWN

__all__ = ["SelectedCalls"]


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
        """The ordinals of its calls begin with 0."""
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
        """The source's own, with the calls by which the cost of tracing is measured. Calls that
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
    """How long calls took: their device, where it noted to have been on them for longer than the
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
