"""What the host did while devices had nothing to run: kept of a profile's lines, of which the
bundle holds only what launched something.

Lines with Python frames (`$file.py:12 function`) or calls of compiled functions
(`PjitFunction(f)`) are the program's own threads; the runtime's launch for it on others. Of a gap,
what the thread that launched its end was in (`Build buffer allocations`) is closer than what the
program was. On GPUs that thread is two lines: its launches, and what XLA did, such as the operation
of a launch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.trace.events import HOST_TRACK
from profiler.trace.manifest_fields import ActivityKind, HostActivity

if TYPE_CHECKING:
    from profiler.importers.xplane.read import Line

_Times = npt.NDArray[np.int64]
FRAME, COMPILED = "$", "PjitFunction("
_GAPS = 32  # of a device
_LAUNCHES = 16  # of a line, whose operations are looked for
_LEAST_NS = 100_000  # no launch takes so long


class DeviceWork(NamedTuple):
    """When each piece of a device's work started and ended, int64, and the line of the host that
    launched it, "" if not known."""

    start: _Times
    end: _Times
    thread: list[str]


def activities(
    program: Sequence[Line], others: Sequence[Line], start_ns: int, worked: Iterable[DeviceWork]
) -> tuple[HostActivity, ...]:
    """What the host was in during the longest gaps of each device, each once and whole: on the line
    that launched the end of the gap the innermost that covers at least half of it; without one, on
    the `program`'s lines the innermost that does, else the one that covers most. `start_ns` is when
    the profile began."""
    own = _Host.of(program, start_ns, HOST_TRACK)
    threads = {
        lines[0].name: _Host.of(lines, start_ns, lines[0].name) for lines in _same_threads(others)
    }
    kept = set()
    for work in worked:
        for first, last, thread in _gaps(work):
            other = threads.get(thread)
            found = other.activity(first, last, least=0.5) if other is not None else None
            kept.add(found or own.activity(first, last))
    known = [one for one in kept if one is not None]
    return tuple(sorted(known, key=lambda one: (one.start_ns, one.duration_ns, one.name)))


def _same_threads(others: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield each line that launched operations of XLA with the one, if there is one, on which these
    run around most of its launches."""
    launching = {}
    for line in others:
        calls = [e for e in line.events if e.stats.get("correlation_id") and "hlo_op" in e.stats]
        if calls:
            launching[line.name] = line, calls[:_LAUNCHES]
    names = {call.stats["hlo_op"] for _, calls in launching.values() for call in calls}
    operations = defaultdict(list)
    for number, other in enumerate(others):
        for event in other.events:
            if event.name in names:
                end = event.start_ps + event.duration_ps
                operations[event.name].append((event.start_ps, end, number))
    for line, calls in launching.values():
        around = Counter(
            number
            for call in calls
            for begin, end, number in operations[str(call.stats["hlo_op"])]
            if begin <= call.start_ps < end
        )
        most = around.most_common(1)
        yield [line, *(others[number] for number, times in most if 2 * times > len(calls))]


def _gaps(work: DeviceWork) -> Iterator[tuple[int, int, str]]:
    """Start and end of the longest times between pieces of work, in any order, and the line that
    launched what ended each."""
    order = np.argsort(work.start, kind="stable")
    dry, wet = np.maximum.accumulate(work.end[order])[:-1], work.start[order][1:]
    long = np.flatnonzero(wet - dry > _LEAST_NS)
    longest = long[np.argsort(dry[long] - wet[long], kind="stable")[:_GAPS]]
    for at in longest.tolist():
        yield int(dry[at]), int(wet[at]), work.thread[order[at + 1]]


class _Host(Struct, frozen=True, eq=False):
    """What was recorded of some lines, with start and end of each in ns; `thread` is what their
    activities are said to be of."""

    names: list[str]
    begin: _Times
    end: _Times
    thread: str

    @classmethod
    def of(cls, lines: Sequence[Line], start_ns: int, thread: str) -> _Host:
        events = [event for line in lines for event in line.events if event.duration_ps]
        begin = np.array([event.start_ps for event in events], dtype=np.int64) // 1000 + start_ns
        length = np.array([event.duration_ps for event in events], dtype=np.int64) // 1000
        return cls([event.name for event in events], begin, begin + length, thread)

    def activity(self, first: int, last: int, least: float = 0) -> HostActivity | None:
        """What they were in from `first` to `last`, for that part of it at least; None if nothing
        tells."""
        there = np.flatnonzero((self.begin < last) & (self.end > first))
        if not len(there):
            return None
        covered = np.minimum(self.end[there], last) - np.maximum(self.begin[there], first)
        half = np.flatnonzero(2 * covered >= last - first)
        kept = half if len(half) else np.flatnonzero(covered == covered.max())
        if covered[kept[0]] < least * (last - first):
            return None
        place = kept[np.lexsort((-self.end[there[kept]], self.begin[there[kept]]))[-1]]
        row = there[place]
        name, kind = self.names[row], ActivityKind.RANGE
        if name.startswith(FRAME):  # `$/home/me/train.py:3 loop`: folders stay in the file
            source, blank, function = name.removeprefix(FRAME).partition(" ")
            name, kind = f"{source.rpartition('/')[2]}{blank}{function}", ActivityKind.FUNCTION
        return HostActivity(
            name=name,
            kind=kind,
            thread=self.thread,
            start_ns=int(self.begin[row]),
            duration_ns=int(self.end[row] - self.begin[row]),
        )
