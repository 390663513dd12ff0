"""Which parts are of one run, by their clocks.

Two parts are related by events that both recorded (`matching`), else by clocks that both count from
1970, if they recorded at the same time or with less than a second between: files of one script
that ran twice are two runs. A file whose name alone tells when it began, in a zone that it does not
tell, is related by that, if just one zone lets both have recorded at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler.importers.mixed.collected import Part
from profiler.importers.mixed.matching import Events, Fit, fit
from profiler.importers.mixed.work import WITHIN_NS, work_events, work_rows
from profiler.trace.manifest_clocks import ClockName
from profiler.trace.manifest_parts import RelatedBy

__all__ = ["Placed", "device_time", "groups"]

_RANGES_NS = 300_000  # by which begins of ranges may differ, which each recorder opens for itself
_EPOCH_NS = 1_000_000_000  # by which clocks that count from 1970 may differ
_GAP_NS = 1_000_000_000  # between what two recorders saw of one run
_ZONE_NS = 900_000_000_000  # zones are whole quarters of an hour
_ZONES = 14 * 4


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A part on its run's clock, and how it came there."""

    part: Part
    related_by: RelatedBy
    offset_ns: int = 0
    fit: Fit | None = None
    within_ns: int | None = None


@dataclass(slots=True, eq=False)
class _Seen:
    """A part with its events by kind: work of devices, ranges."""

    part: Part
    work: Events
    ranges: Events


def groups(parts: Sequence[Part]) -> list[list[Placed]]:
    """The parts of each run, on its clock, the run first that most recorders saw, or else has the
    most work of devices. The first of a run's is the one whose clock counts, one that counts from
    1970 where there is any."""
    codes: dict[str, int] = {}
    waiting = [_Seen(part, *_events(part, codes)) for part in parts]
    waiting.sort(key=lambda one: (_clock(one.part) is not ClockName.REALTIME, -len(one.work)))
    found = []
    while waiting:
        found.append(_group(waiting))
    return sorted(found, key=_told, reverse=True)


def _told(group: Sequence[Placed]) -> tuple[int, int, int]:
    times = [device_time(one.part) for one in group]
    return len(group), sum(work for work, _ in times), sum(host for _, host in times)


def _group(waiting: list[_Seen]) -> list[Placed]:
    """The first of those that wait and all that are related to it, which wait no longer."""
    first = waiting.pop(0)
    group, seen = [Placed(first.part, RelatedBy.REFERENCE)], [first]
    while True:
        related = [
            (number, placed)
            for number, one in enumerate(waiting)
            if (placed := _related(one, seen)) is not None
        ]
        if not related:
            return group
        number, placed = max(related, key=lambda one: _strength(one[1]))
        one = waiting.pop(number)
        group.append(placed)
        seen.append(_Seen(placed.part, *_moved(one, placed.offset_ns)))


def _strength(placed: Placed) -> tuple[bool, int]:
    return placed.fit is not None, placed.fit.pairs if placed.fit else 0


def _moved(one: _Seen, offset_ns: int) -> tuple[Events, Events]:
    work, ranges = (Events(e.name, e.time_ns + offset_ns) for e in (one.work, one.ranges))
    return work, ranges


def _related(own: _Seen, others: Sequence[_Seen]) -> Placed | None:
    """A part on the clock of some that are placed, of which the first has it from its own; None
    where nothing relates them."""
    best: Fit | None = None
    near = (0, _EPOCH_NS) if _counts_from_1970(own.part, others[0].part) else None
    for other in others:
        if other.part.importer == own.part.importer:
            continue  # what one recorder wrote into two files are two processes
        found = fit(own.work, other.work, WITHIN_NS, near, of_all=True)
        if found is None:
            found = fit(own.ranges, other.ranges, _RANGES_NS, near)
        if found is not None and found.better(best):
            best = found
    if best is not None:
        moved = own.part.moved(best.offset_ns)
        return Placed(moved, RelatedBy.EVENTS, best.offset_ns, best)
    if any(_counts_from_1970(own.part, other.part) for other in others):
        together = any(_overlap(own.part, other.part) for other in others)
        return Placed(own.part, RelatedBy.EPOCH) if together else None
    return _by_local_time(own.part, [other.part for other in others])


def _by_local_time(own: Part, others: Sequence[Part]) -> Placed | None:
    clocks = {_clock(other) for other in others}
    if _clock(own) is not ClockName.LOCAL_TIME:
        return None
    within = own.info.clocks.within_ns or 0
    if clocks == {ClockName.LOCAL_TIME}:  # the same zone, whichever it is
        together = any(_overlap(own, other) for other in others)
        return Placed(own, RelatedBy.LOCAL_TIME, within_ns=within) if together else None
    if ClockName.REALTIME not in clocks:
        return None
    first, last = _recorded(own)
    zones = [
        zone * _ZONE_NS
        for zone in range(-_ZONES, _ZONES + 1)
        for other in others
        if _clock(other) is ClockName.REALTIME
        and _meet((first + zone * _ZONE_NS, last + zone * _ZONE_NS), _recorded(other))
    ]
    if len(set(zones)) != 1:
        return None
    return Placed(own.moved(zones[0]), RelatedBy.LOCAL_TIME, zones[0], within_ns=within)


def _clock(part: Part) -> ClockName | None:
    return part.info.clocks.clock


def _counts_from_1970(*parts: Part) -> bool:
    return all(_clock(part) is ClockName.REALTIME for part in parts)


def _recorded(part: Part) -> tuple[int, int]:
    """From when to when it recorded, or the first and the last of what it saw."""
    first, last = part.extent()
    base = part.info.clocks.base_ns
    if _clock(part) is ClockName.LOCAL_TIME and base is not None:
        first = min(first, base)
    return first, last


def _overlap(own: Part, other: Part) -> bool:
    return _meet(_recorded(own), _recorded(other))


def _meet(own: tuple[int, int], other: tuple[int, int]) -> bool:
    return own[0] < other[1] + _GAP_NS and other[0] < own[1] + _GAP_NS


def device_time(part: Part) -> tuple[int, int]:
    """How long devices beside the host worked, and all else: which of two parts has more to
    tell."""
    work = host = 0
    for one in part.writings:
        rows = work_rows(one.commands, beside_host=True)
        lasted = np.maximum(one.commands.duration_ns, 0)
        work += int(lasted[rows].sum())
        host += int(lasted.sum()) - int(lasted[rows].sum())
    return work, host


def _events(part: Part, codes: dict[str, int]) -> tuple[Events, Events]:
    """The events of a part by which it may be related to others."""
    work = [work_events(one.commands, codes)[0] for one in part.writings]
    ranges = [*part.landmarks, *((call.submodule, call.start_ns) for call in part.calls)]
    names = [f"range {name}" for name, _ in ranges]
    times = np.array([time for _, time in ranges], dtype=np.int64)
    return Events.joined(work), Events.of(names, times, codes)
