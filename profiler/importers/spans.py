"""The spans of a run whose calls are known: pipeline, stages, steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from profiler.events import NO_STEP, Span

__all__ = ["Placed", "spans"]


class Placed(Protocol):
    """What is read of a call."""

    @property
    def stage(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...


def spans(name: str, calls: Sequence[Placed], end_ns: int = 0) -> list[Span]:
    """The pipeline from the first call's begin to the later of the last end of a call and `end_ns`;
    the stages, each from the first of successive calls of it; the steps, each to the next one.

    `calls` stand in order of their begins.
    """
    if not calls:
        return []
    begin = calls[0].start_ns
    end = max(end_ns, *(call.end_ns for call in calls))
    found = [Span("pipeline", name, "", NO_STEP, begin, end - begin)]
    before = ("", *(call.stage for call in calls[:-1]))
    turns = [call for call, last in zip(calls, before, strict=True) if call.stage != last]
    ends = [*(call.start_ns for call in turns[1:]), end]
    for call, until in zip(turns, ends, strict=True):
        length = until - call.start_ns
        found.append(Span("stage", call.stage, call.stage, NO_STEP, call.start_ns, length))
    return [*found, *_steps(calls)]


def _steps(calls: Sequence[Placed]) -> list[Span]:
    """A span a step, where the steps follow each other: ranks of a job run theirs side by side."""
    denoising = [call for call in calls if call.step != NO_STEP]
    numbers = [call.step for call in denoising]
    if not numbers or numbers != sorted(numbers):
        return []
    first = {call.step: call.start_ns for call in reversed(denoising)}
    last = max(call.end_ns for call in denoising)
    steps = sorted(first)
    ends = [*(first[step] for step in steps[1:]), last]
    return [
        Span("step", f"step {step}", "denoise", step, first[step], max(until - first[step], 0))
        for step, until in zip(steps, ends, strict=True)
    ]
