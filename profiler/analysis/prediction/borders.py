"""Where the stages and steps of one pipeline call begin, by the extents of its calls.

A stage lasts from the end of the one before to the end of its last call, as in
`analysis.accounting`. So does a step but the first, which begins with its first call: what the host
does between two steps belongs to the later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from profiler.trace.events import NO_STEP

__all__ = ["Extent", "stage_borders", "step_borders"]


class Extent(Protocol):
    """A call's labels and when it was under way, in ns."""

    @property
    def stage(self) -> str:
        """Its stage."""

    @property
    def step(self) -> int:
        """Its step, `NO_STEP` outside of any."""

    @property
    def start(self) -> int:
        """When it began."""

    @property
    def end(self) -> int:
        """When it had ended."""


def stage_borders(
    calls: Sequence[Extent], spans: Sequence[tuple[int, str]]
) -> list[tuple[int, str]]:
    """When each part of a stage begins, in order: calls, in order of time, that took something
    tell; without any, the begins and names of the stages' recorded spans do."""
    found: list[tuple[int, str]] = []
    reach = None
    for call in calls:
        if call.end <= call.start:
            continue
        if not found or found[-1][1] != call.stage:
            found.append((call.start if reach is None else reach, call.stage))
        reach = call.end if reach is None else max(reach, call.end)
    if found:
        return found
    return sorted(spans)


def step_borders(
    calls: Sequence[Extent], spans: Sequence[tuple[int, int, int]]
) -> tuple[list[tuple[int, int]], int | None]:
    """The steps' numbers and begins, in order, and when the last of them had ended, None where
    there are none. `calls` are in order of time; of a step without calls its recorded span counts:
    its number, begin and end."""
    recorded: dict[int, tuple[int, int]] = {}
    for step, start, end in spans:
        known = recorded.get(step, (start, end))
        recorded[step] = (min(known[0], start), max(known[1], end))
    called: dict[int, tuple[int, int]] = {}  # the begin of its first call, the end of those before
    reach: int | None = None
    last: int | None = None
    for call in calls:
        if call.step > NO_STEP and (not recorded or call.step in recorded):
            called.setdefault(call.step, (call.start, call.start if reach is None else reach))
            last = call.end if last is None else max(last, call.end)
        reach = call.end if reach is None else max(reach, call.end)
    begun = recorded or called
    found: list[tuple[int, int]] = []
    follows = False  # a step with calls
    for step in sorted(begun, key=lambda step: begun[step][0]):
        if step not in called:
            begin, ended = recorded[step]
            last = ended if last is None else max(last, ended)
        elif follows:
            begin = called[step][1]
        else:
            begin = max(called[step][1], recorded[step][0]) if found else called[step][0]
        found.append((step, max(begin, found[-1][1]) if found else begin))
        follows = step in called
    return found, last
