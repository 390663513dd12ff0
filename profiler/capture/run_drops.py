"""What is missing of a run: what its sources say, what its calls show, what ended it.

Every call that awaited operators and got none is in some drop, whatever the cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from profiler.capture.operator_source import SourceSummary
from profiler.capture.recorder import Recorder
from profiler.drop_reasons import DropReason
from profiler.events import Drop, DropKind
from profiler.notes import Note

__all__ = ["NOT_ENDED", "run_drops"]

NOT_ENDED = Drop(
    DropKind.ABORTED_RUN,
    "run",
    1,
    "runs",
    Note.of(DropReason.NOT_ENDED),
)
"""What the manifest of a run says until the run has ended."""

_UNWRITTEN = (DropKind.MISSING_FILE, DropKind.DROPPED_EVENTS)


def run_drops(
    recorder: Recorder, summaries: Iterable[SourceSummary], written: Iterable[Drop], failure: str
) -> tuple[Drop, ...]:
    """All drops of a run that has ended. `written` are those of reading and writing; `failure`
    says what ended the run early, "" if nothing did."""
    known = [drop for summary in summaries for drop in summary.drops]
    written = list(written)
    return (
        *known,
        *_not_returned(recorder),
        *_failures(recorder),
        *_unnamed(recorder, [*known, *written]),
        *_ended_with(failure),
        *written,
    )


def _ended_with(failure: str) -> Iterator[Drop]:
    if failure:
        detail = Note.of(DropReason.ENDED_WITH, failure=failure)
        yield Drop(DropKind.ABORTED_RUN, "run", 1, "runs", detail)


def _not_returned(recorder: Recorder) -> Iterator[Drop]:
    found: Counter[tuple[str, Note]] = Counter()
    for call in recorder.invocations:
        if call.index < 0:
            detail = Note.of(DropReason.CALL_NOT_RETURNED)
            if call.stage == "denoise":
                detail = Note.of(DropReason.STEP_NOT_RETURNED, step=call.step)
            found[call.submodule, detail] += 1
    for (submodule, detail), count in found.items():
        yield Drop(DropKind.UNTRACED_CALL, submodule, count, "calls", detail)


def _failures(recorder: Recorder) -> Iterator[Drop]:
    for (where, reason), count in recorder.failures.items():
        detail = Note.of(DropReason.PROFILER_FAILED, error=reason)
        yield Drop(DropKind.UNTRACED_CALL, where, count, "calls", detail)


def _unnamed(recorder: Recorder, known: Sequence[Drop]) -> Iterator[Drop]:
    """Calls that awaited operators and got none, of which no other drop tells. A drop that cannot
    say how many calls it is of speaks for all of its submodule."""
    files = {drop.where for drop in known if drop.kind in _UNWRITTEN}
    named: Counter[str] = Counter()
    uncounted: set[str] = set()
    for drop in known:
        if drop.kind == DropKind.UNTRACED_CALL:
            named[drop.where] += max(drop.count, 0)
            uncounted |= {drop.where} if drop.count < 0 else set()
    without = Counter(
        call.submodule
        for call in recorder.finished()
        if call.awaits_operators and not (call.ops_traced or call.drop_told)
        if call.as_call().file_name not in files
    )
    for submodule, count in (without - named).items():
        if submodule not in uncounted:
            detail = Note.of(DropReason.NOT_RECORDED)
            yield Drop(DropKind.UNTRACED_CALL, submodule, count, "calls", detail)
