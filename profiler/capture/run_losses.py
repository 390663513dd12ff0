"""What is missing of a run: what its sources say, what its calls show, what ended it.

Every call that awaited operators and got none is in some loss, whatever the cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from profiler.capture.operator_source import SourceSummary
from profiler.capture.recorder import Recorder
from profiler.events import DropKind, Loss

__all__ = ["NOT_ENDED", "run_losses"]

NOT_ENDED = Loss(
    DropKind.ABORTED_RUN,
    "run",
    1,
    "runs",
    "the run did not end: it was killed, or its machine went down",
)
"""What the manifest of a run says until the run has ended."""

_NOBODY_SAYS = "no operators: what was recorded of the calls was interrupted or is not there"
_UNWRITTEN = (DropKind.MISSING_FILE, DropKind.DROPPED_EVENTS)


def run_losses(
    recorder: Recorder, summaries: Iterable[SourceSummary], written: Iterable[Loss], failure: str
) -> tuple[Loss, ...]:
    """All losses of a run that has ended. `written` are those of reading and writing; `failure`
    says what ended the run early, "" if nothing did."""
    known = [loss for summary in summaries for loss in summary.losses]
    written = list(written)
    return (
        *known,
        *_not_returned(recorder),
        *_failures(recorder),
        *_unnamed(recorder, [*known, *written]),
        *(
            [Loss(DropKind.ABORTED_RUN, "run", 1, "runs", f"the run ended with {failure}")]
            * bool(failure)
        ),
        *written,
    )


def _not_returned(recorder: Recorder) -> Iterator[Loss]:
    found: Counter[tuple[str, str]] = Counter()
    for call in recorder.invocations:
        if call.index < 0:
            step = f" of step {call.step}" if call.stage == "denoise" else ""
            found[call.submodule, f"the call{step} did not return, so it has no file"] += 1
    for (submodule, detail), count in found.items():
        yield Loss(DropKind.UNTRACED_CALL, submodule, count, "calls", detail)


def _failures(recorder: Recorder) -> Iterator[Loss]:
    for (where, reason), count in recorder.failures.items():
        yield Loss(DropKind.UNTRACED_CALL, where, count, "calls", f"profile-sd3 failed: {reason}")


def _unnamed(recorder: Recorder, known: Sequence[Loss]) -> Iterator[Loss]:
    """Calls that awaited operators and got none, of which no other loss tells. A loss that cannot
    say how many calls it is of speaks for all of its submodule."""
    files = {loss.where for loss in known if loss.kind in _UNWRITTEN}
    named: Counter[str] = Counter()
    uncounted: set[str] = set()
    for loss in known:
        if loss.kind == DropKind.UNTRACED_CALL:
            named[loss.where] += max(loss.count, 0)
            uncounted |= {loss.where} if loss.count < 0 else set()
    without = Counter(
        call.submodule
        for call in recorder.finished()
        if call.awaits_operators and not (call.ops_traced or call.loss_told)
        if call.as_call().file_name not in files
    )
    for submodule, count in (without - named).items():
        if submodule not in uncounted:
            yield Loss(DropKind.UNTRACED_CALL, submodule, count, "calls", _NOBODY_SAYS)
