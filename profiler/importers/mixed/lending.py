"""Work that one part has in no call of its own, and another part's calls asked for.

Where nothing in a part tells calls apart, all of it is one call of its process. What was launched
during a call that another part tells (a session of ONNX Runtime) is that call's.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from profiler.events import RUN_STAGE, Call
from profiler.importers.mixed.collected import Part, Written, joined, selected
from profiler.importers.mixed.work import work_rows
from profiler.trace.columns import CommandColumns, Int64s
from profiler.trace.manifest_fields import CallsFrom

__all__ = ["lent", "told_well"]

_PROCESS = "run"  # what the only process's call is called, where nothing tells calls apart
_EXACT = 10  # times longer than what its begin may be off a call must be


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """The calls that parts tell: n of them, none of which overlaps another, in order of time."""

    place: tuple[tuple[int, int], ...]  # part, and place in its writings
    start: Int64s
    end: Int64s

    def at(self, times: Int64s) -> Int64s:
        """The number of the call at each time, -1 for none."""
        found = np.searchsorted(self.start, times, side="right") - 1
        inside = (found >= 0) & (times < self.end[np.maximum(found, 0)])
        return np.where(inside, found, -1)


def lent(parts: Sequence[Part], within_ns: Sequence[int]) -> list[Part]:
    """The parts, with the work of calls that nothing tells apart in those during which it was
    launched; `within_ns` is how far the times of each part may be off. Where told calls overlap,
    nobody can tell whose it was, and all stays."""
    told = _told(parts, within_ns)
    if told is None:
        return list(parts)
    writings = [list(part.writings) for part in parts]
    got: dict[tuple[int, int], list[CommandColumns]] = {}
    gave: set[tuple[int, int]] = set()
    for part, own in enumerate(parts):
        for place, one in enumerate(own.writings):
            if one.call is None or not _is_untold(own, one.call):
                continue
            whose = told.at(_asked(one.commands))
            for number in np.unique(whose[whose >= 0]).tolist():
                share = selected(one.commands, whose == number)
                got.setdefault(told.place[number], []).append(share)
            if (whose >= 0).any():
                writings[part][place] = replace(one, commands=selected(one.commands, whose < 0))
                gave.add((part, place))
    for (part, place), shares in got.items():
        one = writings[part][place]
        writings[part][place] = _with(one, shares)
    return [
        replace(own, writings=tuple(_without_empty(writings[part], part, gave)))
        for part, own in enumerate(parts)
    ]


def told_well(call: Call, within_ns: int) -> bool:
    """Whether a call is so long that it does not matter how far its begin may be off."""
    return call.duration_ns >= _EXACT * within_ns


def _is_untold(part: Part, call: Call) -> bool:
    recording = part.info.recording
    if recording is not None and recording.calls_from is CallsFrom.NOTHING:
        return True
    return call.stage == RUN_STAGE and call.submodule == _PROCESS


def _told(parts: Sequence[Part], within_ns: Sequence[int]) -> _Told | None:
    """The calls that parts tell; None where there are none, or they overlap."""
    found = sorted(
        (call.start_ns, call.end_ns, part, place)
        for part, own in enumerate(parts)
        for place, one in enumerate(own.writings)
        if (call := one.call) is not None
        and not _is_untold(own, call)
        and told_well(call, within_ns[part])
    )
    start = np.array([one[0] for one in found], dtype=np.int64)
    end = np.array([one[1] for one in found], dtype=np.int64)
    if not found or (start[1:] < end[:-1]).any():
        return None
    return _Told(tuple((part, place) for _, _, part, place in found), start, end)


def _asked(commands: CommandColumns) -> Int64s:
    """When each command was asked for: its launch's begin, where that is known."""
    times = commands.start_ns.copy()
    flows = commands.flows
    if len(flows):
        times[flows[:, 1]] = commands.start_ns[flows[:, 0]]
    return times


def _with(one: Written, shares: Sequence[CommandColumns]) -> Written:
    """A call with what it got, on the device that most of its work ran on."""
    commands = joined([one.commands, *shares])
    call = one.call
    if call is None:
        return replace(one, commands=commands)
    rows = work_rows(commands, beside_host=True)
    if len(rows):
        lasted = np.bincount(commands.track[rows], np.maximum(commands.duration_ns[rows], 0))
        call = replace(call, device=commands.tracks[int(lasted.argmax())].device)
    return replace(one, call=call, commands=commands)


def _without_empty(
    writings: Sequence[Written], part: int, gave: Set[tuple[int, int]]
) -> list[Written]:
    """Without calls that gave all work of devices: what else they have is in no call."""
    kept: list[Written] = []
    loose: list[Written] = []
    for place, one in enumerate(writings):
        empty = (part, place) in gave and not len(work_rows(one.commands))
        (loose if empty else kept).append(one)
    host = kept.pop()
    commands = joined([host.commands, *(one.commands for one in loose)])
    counters = (*host.counters, *(counter for one in loose for counter in one.counters))
    return [*kept, replace(host, commands=commands, counters=counters)]
