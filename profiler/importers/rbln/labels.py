"""Which call of the pipeline each file is, where the number of files fits the description.

The files say only in which order runtimes were called. So either all of them are labelled or none:
one call too many or too few, and every label behind it would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import NO_STEP, Span
from profiler.importers.rbln.files import Capture, Shard, missing_numbers
from profiler.importers.rbln.guess import Guess
from profiler.importers.rbln.pipeline import BUILT_IN, Description, ExpectedCall
from profiler.notes import Note

__all__ = ["UNLABELLED", "Labels", "files_found", "label_shards", "spans_of", "unlabelled"]

UNLABELLED = ExpectedCall("unlabelled", "", "", NO_STEP, "")
_SHOWN = 5  # numbers that are named


@dataclass(frozen=True, slots=True)
class Labels:
    """What each shard of the run is. `why_not` says why nothing was labelled, None where it was;
    `skipped` are the shards that are not the run's. `pipeline` is what ran, and
    `described_as` the description or the recorded run by which it is known, "" for none; `guess`
    is that description where it was guessed."""

    skipped: tuple[Shard, ...]
    shards: tuple[Shard, ...]
    calls: tuple[ExpectedCall, ...]
    why_not: Note | None
    pipeline: str = ""
    described_as: str = ""
    guess: Guess | None = None


def label_shards(
    capture: Capture, description: Description | None, steps: int | None, skip: int | None
) -> Labels:
    """Label the shards behind the first `skip` (None: the description's `warmup`) in order.

    Raises InputError where nothing is left or the number of steps is not known.
    """
    count = skip if skip is not None else description.warmup if description else 0
    total = len(capture.shards)
    if not 0 <= count < total:
        raise InputError(
            f"--skip {count} leaves none of the {_files(total)} in {capture.source}: skip fewer"
        )
    skipped, shards = capture.shards[:count], capture.shards[count:]
    expected = description.calls(steps) if description is not None else ()
    why_not = None if capture.in_order else Note.of(DropReason.ORDER_UNKNOWN)
    why_not = why_not or _why_not(description, expected, shards, count)
    calls = unlabelled(shards) if why_not else expected
    name = description.name if description is not None else ""
    return Labels(skipped, shards, calls, why_not, name, name)


def unlabelled(shards: Sequence[Shard]) -> tuple[ExpectedCall, ...]:
    """Calls that nothing describes: models are told apart where their runtime instance is known."""
    return tuple(
        UNLABELLED
        if shard.instance < 0
        else ExpectedCall(f"instance_{shard.instance}", "", "", NO_STEP, "")
        for shard in shards
    )


def _why_not(
    description: Description | None,
    expected: Sequence[ExpectedCall],
    shards: Sequence[Shard],
    skip: int,
) -> Note | None:
    if description is None:
        return Note.of(DropReason.NO_PIPELINE_NAMED)
    missing = missing_numbers(shards)
    if len(expected) != len(shards):
        advice = _advice(description, expected, len(shards))
    elif missing and not description.allow_gaps:
        advice = Note.of(DropReason.COPY_OR_DESCRIBE)
    else:
        return None
    found = files_found(shards, skip)
    if shards[0].number < 0 and len(shards) == 1:
        found.append(Note.of(DropReason.PERHAPS_AGGREGATE))
    if missing:
        found.append(_listed(missing))
    makes = {"steps": _steps(expected), "calls": len(expected)}
    found.append(Note.of(DropReason.PIPELINE_MAKES, pipeline=description.name, **makes))
    return Note.of(DropReason.NOT_LABELLED, found=tuple(found), advice=advice)


def files_found(shards: Sequence[Shard], skipped: int) -> list[Note]:
    """How many files there are, or calls in one file, behind how many that were skipped."""
    found = [Note.of(DropReason.FILES_FOUND, files=len(shards))]
    if shards[0].is_part:
        found = [Note.of(DropReason.CALLS_IN_FILE, calls=len(shards))]
    if skipped:
        found.append(Note.of(DropReason.FILES_SKIPPED, skipped=skipped))
    return found


def _advice(description: Description, expected: Sequence[ExpectedCall], files: int) -> Note:
    """What else would fit the number of files."""
    steps = 1 + max((call.step for call in expected), default=-1)
    fitting = []
    if files > len(expected):
        fitting.append(f"--skip {files - len(expected)}")
    per_step = sum(pattern.repeat for pattern in description.denoise)
    if per_step and all(pattern.steps is None for pattern in description.denoise):
        rest = files - (len(expected) - steps * per_step)
        if rest > 0 and rest % per_step == 0:
            fitting.append(f"--steps {rest // per_step}")
    for name, other in BUILT_IN.items():
        if name != description.name and steps and len(other.calls(steps)) == files:
            fitting.append(f"--pipeline {name}")
    if not fitting:
        return Note.of(DropReason.CHECK_OPTIONS)
    return Note.of(DropReason.FITTING, options=tuple(fitting))


def _steps(expected: Sequence[ExpectedCall]) -> int:
    return 1 + max((call.step for call in expected), default=-1)


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _listed(missing: Sequence[int]) -> Note:
    numbers, more = tuple(missing[:_SHOWN]), len(missing) - _SHOWN
    if more > 0:
        return Note.of(DropReason.MORE_FILES_MISSING, numbers=numbers, more=more)
    return Note.of(DropReason.FILES_MISSING, numbers=numbers)


@dataclass(slots=True)
class _Part:
    """A stage or a step: from its first call to its last."""

    name: str
    stage: str
    step: int
    start_ns: int
    end_ns: int


def spans_of(
    name: str, calls: Sequence[ExpectedCall], times: Sequence[tuple[int, int]]
) -> Iterator[Span]:
    """Pipeline, stages and steps, from the (start, end) of each call in ns; no stages where the
    calls have none.

    Nothing was recorded between calls, so stages and steps last until the next one begins.
    """
    start, end = min(begin for begin, _ in times), max(end for _, end in times)
    yield Span("pipeline", name, "", NO_STEP, start, end - start)
    stages = _parts(calls, times, steps=False)
    steps = _parts(calls, times, steps=True)
    for stage in stages:
        for last in [step for step in steps if step.stage == stage.stage][-1:]:
            last.end_ns = max(last.end_ns, stage.end_ns)
    for part in stages:
        length = part.end_ns - part.start_ns
        yield Span("stage", part.name, part.stage, NO_STEP, part.start_ns, length)
    for part in steps:
        length = part.end_ns - part.start_ns
        yield Span("step", part.name, part.stage, part.step, part.start_ns, length)


def _parts(
    calls: Sequence[ExpectedCall], times: Sequence[tuple[int, int]], *, steps: bool
) -> list[_Part]:
    parts: dict[tuple[str, int], _Part] = {}
    for call, (start, end) in zip(calls, times, strict=True):
        if not call.stage or (steps and call.step == NO_STEP):
            continue
        key = (call.stage, call.step if steps else NO_STEP)
        name = f"step {call.step}" if steps else call.stage
        part = parts.setdefault(key, _Part(name, call.stage, key[1], start, end))
        part.start_ns, part.end_ns = min(part.start_ns, start), max(part.end_ns, end)
    ordered = list(parts.values())
    for part, following in pairwise(ordered):
        if part.start_ns <= following.start_ns and part.end_ns <= following.start_ns:
            part.end_ns = following.start_ns
    return ordered
