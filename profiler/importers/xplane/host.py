"""What the program did while devices had nothing to run: kept of the host's lines, of which the
bundle holds only what launched something.

Lines with Python frames (`$file.py:12 function`) or calls of compiled functions (`PjitFunction(f)`)
are the program's own threads; the runtime's launch for it on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.events import HOST_TRACK
from profiler.importers.xplane.space import Line
from profiler.trace.manifest_fields import ActivityKind, HostActivity

__all__ = ["activities", "is_programs"]

_Times = npt.NDArray[np.int64]
_FRAME, _COMPILED = "$", "PjitFunction("
_GAPS = 32  # of a device
_LEAST_NS = 100_000  # no launch takes so long


def is_programs(line: Line) -> bool:
    """Whether a line of the host is of a thread that runs the program."""
    return any(event.name.startswith((_FRAME, _COMPILED)) for event in line.events)


def activities(
    lines: Sequence[Line], start_ns: int, worked: Sequence[tuple[_Times, _Times]]
) -> tuple[HostActivity, ...]:
    """What these lines were in during the longest gaps of each device, each once and whole: the
    innermost that covers at least half of a gap, else the one that covers most. `worked` has begins
    and ends of the work of each device, `start_ns` is when the profile began."""
    events = [event for line in lines for event in line.events if event.duration_ps]
    if not events:
        return ()
    begin = np.array([event.start_ps for event in events], dtype=np.int64) // 1000 + start_ns
    last = begin + np.array([event.duration_ps for event in events], dtype=np.int64) // 1000
    host = _Host([event.name for event in events], begin, last)
    found = (host.activity(*gap) for start, end in worked for gap in _gaps(start, end))
    kept = {one for one in found if one is not None}
    return tuple(sorted(kept, key=lambda one: (one.start_ns, one.duration_ns, one.name)))


def _gaps(start: _Times, end: _Times) -> Iterator[tuple[int, int]]:
    """Begin and end of the longest times between pieces of work, in any order."""
    order = np.argsort(start, kind="stable")
    dry, wet = np.maximum.accumulate(end[order])[:-1], start[order][1:]
    long = np.flatnonzero(wet - dry > _LEAST_NS)
    longest = long[np.argsort(dry[long] - wet[long], kind="stable")[:_GAPS]]
    yield from zip(dry[longest].tolist(), wet[longest].tolist(), strict=True)


class _Host(Struct, frozen=True, eq=False):
    """What was recorded of the program's threads, with begin and end of each in ns."""

    names: list[str]
    begin: _Times
    end: _Times

    def activity(self, first: int, last: int) -> HostActivity | None:
        """What they were in from `first` to `last`; None where nothing tells."""
        there = np.flatnonzero((self.begin < last) & (self.end > first))
        if not len(there):
            return None
        covered = np.minimum(self.end[there], last) - np.maximum(self.begin[there], first)
        half = np.flatnonzero(2 * covered >= last - first)
        kept = half if len(half) else np.flatnonzero(covered == covered.max())
        place = kept[np.lexsort((-self.end[there[kept]], self.begin[there[kept]]))[-1]]
        row = there[place]
        name = self.names[row]
        return HostActivity(
            name=_plain(name),
            kind=ActivityKind.FUNCTION if name.startswith(_FRAME) else ActivityKind.RANGE,
            thread=HOST_TRACK,
            start_ns=int(self.begin[row]),
            duration_ns=int(self.end[row] - self.begin[row]),
        )


def _plain(name: str) -> str:
    """`$/home/me/train.py:3 loop` → `train.py:3 loop`: folders stay in the file."""
    if not name.startswith(_FRAME):
        return name
    source, blank, function = name.removeprefix(_FRAME).partition(" ")
    return f"{source.rpartition('/')[2]}{blank}{function}"
