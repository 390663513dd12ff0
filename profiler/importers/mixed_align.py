"""Align the clocks of several recorders by events that they share.

Two parts belong to one run if most events of common names coincide after a shift of one of
them. Without common events, clocks that count from 1970 are used, if the recordings overlap or
lie less than a second apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from msgspec import structs

from profiler.importers.importer import ForeignRun, Importer, Landmarked
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import (
    CommandBuilder,
    CommandColumns,
    Counter,
    Int64s,
    join_commands,
    take_commands,
)
from profiler.trace.events import CPU_DEVICE, Call, Span
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import ClockName, RelatedBy

# --- What an importer writes, kept in memory: so that times can be moved and commands left out.


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A call with its commands and samples; call is None for the content of `host.pb`."""

    call: Call | None
    commands: CommandColumns
    counters: tuple[Counter, ...] = ()

    def moved(self, offset_ns: int) -> Written:
        """The same, `offset_ns` later."""
        call, commands = self.call, self.commands
        if call is not None:
            call = replace(call, start_ns=call.start_ns + offset_ns)
        commands = replace(commands, start_ns=commands.start_ns + offset_ns)
        counters = tuple(replace(one, times_ns=one.times_ns + offset_ns) for one in self.counters)
        return Written(call, commands, counters)

    def on(self, names: Mapping[str, str]) -> Written:
        """The same, with renamed devices."""

        def renamed(one: Any) -> Any:
            return replace(one, device=names.get(one.device, one.device))

        call = renamed(self.call) if self.call is not None else None
        commands = replace(self.commands, tracks=tuple(map(renamed, self.commands.tracks)))
        return Written(call, commands, tuple(map(renamed, self.counters)))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The files that one importer read as one run, and all that it would write. `writings` are its
    calls and, last, what is outside calls. `landmarks` are named moments that another recorder may
    have seen, too."""

    importer: str
    files: tuple[Path, ...]
    name: str
    info: RunInfo
    capabilities: frozenset[str]
    writings: tuple[Written, ...]
    spans: tuple[Span, ...]
    landmarks: tuple[tuple[str, int], ...] = ()

    @property
    def label(self) -> str:
        """The name of the part in messages: its first file."""
        return self.files[0].name

    @property
    def calls(self) -> list[Call]:
        """The calls of the part, in order."""
        return [one.call for one in self.writings if one.call is not None]

    def extent(self) -> tuple[int, int]:
        """The start of the first and the end of the last recorded item; (0, 0) for none."""
        commands = [one.commands for one in self.writings if len(one.commands)]
        times = [(int(one.start_ns.min()), int(one.end_ns.max())) for one in commands]
        times += [(one.start_ns, one.start_ns + max(one.duration_ns, 0)) for one in self.calls]
        return (min(begin for begin, _ in times), max(end for _, end in times)) if times else (0, 0)

    def moved(self, offset_ns: int) -> Part:
        """The same, `offset_ns` later."""
        if not offset_ns:
            return self
        return replace(
            self,
            info=_moved_info(self.info, offset_ns),
            writings=tuple(one.moved(offset_ns) for one in self.writings),
            spans=tuple(replace(span, start_ns=span.start_ns + offset_ns) for span in self.spans),
            landmarks=tuple((name, time + offset_ns) for name, time in self.landmarks),
        )

    def on(self, names: Mapping[str, str]) -> Part:
        """The same, with renamed devices."""
        if all(name == other for name, other in names.items()):
            return self
        info = self.info
        info = structs.replace(
            info,
            devices={names.get(name, name): one for name, one in info.devices.items()},
            attribution={names.get(name, name): one for name, one in info.attribution.items()},
            submodules={
                name: structs.replace(one, device=names.get(one.device, one.device))
                for name, one in info.submodules.items()
            },
        )
        return replace(self, info=info, writings=tuple(one.on(names) for one in self.writings))


class _Kept(BundleWriter):
    """A bundle writer that keeps what an importer writes in memory."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.writings: list[Written] = []
        self.spans: tuple[Span, ...] = ()
        self.host = Written(None, CommandBuilder().build())

    def begin(self, info: RunInfo) -> None:
        pass

    def write_call(
        self, call: Call, commands: CommandColumns, counters: Sequence[Counter] = ()
    ) -> Path:
        self.writings.append(Written(call, commands, tuple(counters)))
        return self.directory / call.file_name

    def add_host(self, commands: CommandColumns, device: str) -> None:
        del device
        self.writings.append(Written(None, commands))

    def write_host(
        self,
        spans: Iterable[Span],
        commands: CommandColumns,
        device: str,
        counters: Sequence[Counter] = (),
    ) -> Path:
        del device
        self.spans = tuple(spans)
        self.host = Written(None, commands, tuple(counters))
        return self.directory


def collected(importer: Importer, files: Sequence[Path], run: ForeignRun) -> Part:
    """All that `run` would write into a bundle."""
    kept = _Kept()
    info = run.write(kept)
    return Part(
        importer=importer.name,
        files=tuple(files),
        name=run.name,
        info=info,
        capabilities=frozenset(run.capabilities),
        writings=(*kept.writings, kept.host),
        spans=kept.spans,
        landmarks=tuple(run.landmarks()) if isinstance(run, Landmarked) else (),
    )


def _moved_info(info: RunInfo, offset_ns: int) -> RunInfo:
    """Shift the times in a manifest by `offset_ns`."""
    activities, job = info.host_activities, info.job
    if job is not None:
        job = structs.replace(
            job,
            ranks=tuple(structs.replace(r, offset_ns=r.offset_ns + offset_ns) for r in job.ranks),
            collectives=tuple(
                structs.replace(c, members=tuple((r, at + offset_ns) for r, at in c.members))
                for c in job.collectives
            ),
        )
    moved = (structs.replace(one, start_ns=one.start_ns + offset_ns) for one in activities)
    return structs.replace(info, host_activities=tuple(moved), job=job)


def selected(commands: CommandColumns, kept: npt.NDArray[np.bool_]) -> CommandColumns:
    """The commands that are `kept`, bool [n], with the flows between them."""
    return commands if kept.all() else take_commands(commands, np.flatnonzero(kept))


def joined(parts: Sequence[CommandColumns]) -> CommandColumns:
    """The commands of several files as one table, in order of start."""
    parts = [one for one in parts if len(one)]
    return parts[0] if len(parts) == 1 else join_commands(parts)


# --- Events that two recorders both saw, and what these say of their clocks.
#
# An event is a name and a moment. Two lists of them are of the same run if, with one of them moved,
# most events of names that both have lie at the same moments. How far it must be moved need not be
# known.


FEWEST = 3  # common events needed to relate two clocks
_CANDIDATES = 400_000  # differences of times that are compared
_TRIED = 12  # offsets, those with the most such differences
_MOST_OF = 0.5  # of the events that could be in common


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """n events: `name` is a code, int64 [n], of names that all recorders share (see `of`);
    `time_ns` is the start, int64 [n]."""

    name: Int64s
    time_ns: Int64s

    @classmethod
    def of(cls, names: Sequence[str], times_ns: Int64s, codes: dict[str, int]) -> Self:
        """Events by their names; `codes` is what all recorders share, and gets new names."""
        found = [codes.setdefault(name, len(codes)) for name in names]
        return cls(np.array(found, dtype=np.int64), np.asarray(times_ns, dtype=np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Self:
        """Concatenate events, in order of `parts`."""
        none = np.zeros(0, dtype=np.int64)
        return cls(
            np.concatenate([none, *(one.name for one in parts)]),
            np.concatenate([none, *(one.time_ns for one in parts)]),
        )

    def __len__(self) -> int:
        return len(self.name)

    def among(self, names: Int64s) -> Events:
        """The events whose name is one of `names`."""
        kept = np.isin(self.name, names)
        return Events(self.name[kept], self.time_ns[kept])

    def within(self, first: int, last: int) -> int:
        """How many events started from `first` to `last`."""
        return int(((self.time_ns >= first) & (self.time_ns <= last)).sum())


@dataclass(frozen=True, slots=True)
class Fit:
    """How to align two recorders: with `offset_ns` added to the own times, `pairs` events coincide,
    to within `residual_ns` (median) and `worst_ns` (maximum)."""

    offset_ns: int
    pairs: int
    residual_ns: int
    worst_ns: int

    @property
    def quality(self) -> tuple[int, int]:
        """The sort key of fits: more pairs first, then smaller residuals."""
        return self.pairs, -self.residual_ns


def fit(
    own: Events,
    other: Events,
    within_ns: int,
    near: tuple[int, int] | None = None,
    *,
    of_all: bool = False,
) -> Fit | None:
    """The offset that aligns the events of `own` with those of `other`, to within `within_ns`.
    `near` is an approximate offset and its error in ns, if known.

    None if fewer than three moments coincide, if another offset fits as well (evenly repeated
    events are ambiguous), or if less than half of the events that both could have seen coincide.
    Those are the events with common names while both recorded; without `near`, also all events of
    one recorder with these names, or with any name if `of_all`.
    """
    smaller = min(len(own), len(other)) if of_all else 0
    names = np.intersect1d(own.name, other.name)
    own, other = own.among(names), other.among(names)
    found: list[Fit] = []
    for offset in _candidates(own, other, within_ns, near):
        one = _refined(own, other, offset, within_ns)
        if one is not None and all(abs(one.offset_ns - f.offset_ns) > within_ns for f in found):
            found.append(one)
    best = max(found, key=lambda one: one.quality, default=None)
    if best is None or not _is_most(own, other, best, within_ns):
        return None
    most = 2 * best.residual_ns + 1_000
    alike = [one for one in found if one.pairs >= best.pairs and one.residual_ns <= most]
    if near is not None:
        return min(alike, key=lambda one: (abs(one.offset_ns - near[0]), one is not best))
    could = smaller or min(len(own), len(other))
    return best if len(alike) == 1 and best.pairs >= _MOST_OF * could else None


def _is_most(own: Events, other: Events, best: Fit, within_ns: int) -> bool:
    """Whether at least half of the events coincide, of those that one recorder has while both
    recorded."""
    moved = own.time_ns + best.offset_ns
    first = max(int(moved.min()), int(other.time_ns.min())) - within_ns
    last = min(int(moved.max()), int(other.time_ns.max())) + within_ns
    fewer = min(Events(own.name, moved).within(first, last), other.within(first, last))
    return best.pairs >= _MOST_OF * fewer


def _candidates(
    own: Events, other: Events, within_ns: int, near: tuple[int, int] | None
) -> list[int]:
    """Offsets at which many events may coincide, likeliest first: differences of times of equal
    names, rarest names first."""
    parts: list[Int64s] = []
    room = _CANDIDATES
    names, counts = np.unique(own.name, return_counts=True)
    order = np.argsort(other.name, kind="stable")
    theirs = other.name[order]
    first = np.searchsorted(theirs, names)
    last = np.searchsorted(theirs, names, side="right")
    for at in np.argsort(counts * (last - first), kind="stable").tolist():
        if room < counts[at] * (last[at] - first[at]) and parts:
            break
        mine = own.time_ns[own.name == names[at]]
        there = other.time_ns[order[first[at] : last[at]]]
        apart = _differences(mine, there, room)
        if near is not None:
            apart = apart[np.abs(apart - near[0]) <= near[1]]
        parts.append(apart)
        room -= len(mine) * len(there)
    values = np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
    return _densest(values, within_ns, near[0] if near is not None else 0)


def _densest(values: Int64s, within_ns: int, centre: int) -> list[int]:
    """The medians of the densest places in the sorted `values`; ties go to the one nearest
    `centre`."""
    end = np.searchsorted(values, values + 2 * within_ns, side="right")
    count = end - np.arange(len(values))
    chosen: list[int] = []
    while len(chosen) < _TRIED and len(count) and count.max() > 0:
        most = np.flatnonzero(count == count.max())
        start = int(most[np.argmin(np.abs(values[most] - centre))])
        chosen.append(middle := int(np.median(values[start : int(end[start])])))
        count[np.abs(values - middle) <= 2 * within_ns] = 0
        count[start] = 0
    return chosen


def _differences(own: Int64s, other: Int64s, room: int) -> Int64s:
    """All differences between other and own events; if there are too many, of a sample of the own
    events."""
    most = max(room // max(len(other), 1), 1)
    if len(own) > most:
        own = own[np.linspace(0, len(own) - 1, most).astype(np.int64)]
    return (other[None, :] - own[:, None]).reshape(-1)


def _refined(own: Events, other: Events, offset: int, within_ns: int) -> Fit | None:
    """The fit near an offset, refined to the median difference of coinciding events."""
    for _ in range(3):
        mine, theirs = pairs_at(own, other, offset, within_ns)
        if len(mine) < FEWEST:
            return None
        apart = other.time_ns[theirs] - own.time_ns[mine]
        median = round(float(np.median(apart - offset))) + offset
        if median == offset:
            break
        offset = median
    if len(np.unique(own.time_ns[mine] // max(within_ns, 1))) < FEWEST:
        return None  # all at one moment: not enough
    left = np.abs(apart - offset)
    return Fit(offset, len(mine), round(float(np.median(left))), int(left.max()))


def pairs_at(own: Events, other: Events, offset_ns: int, within_ns: int) -> tuple[Int64s, Int64s]:
    """The rows of coinciding events, with `own` moved by an offset: each is the other's nearest
    event of its name, within `within_ns`."""
    time = np.concatenate((own.time_ns + offset_ns, other.time_ns))
    name = np.concatenate((own.name, other.name))
    theirs = np.arange(len(time)) >= len(own)
    order = np.lexsort((theirs, time, name))
    time, name, theirs = time[order], name[order], theirs[order]
    nearest = _nearest(time, name, theirs)
    rows = np.flatnonzero((nearest >= 0) & ~theirs)
    rows = rows[nearest[nearest[rows]] == rows]
    rows = rows[np.abs(time[rows] - time[nearest[rows]]) <= within_ns]
    return order[rows], order[nearest[rows]] - len(own)


def _nearest(time: Int64s, name: Int64s, theirs: npt.NDArray[np.bool_]) -> Int64s:
    """For each event, sorted by name and time, the row of the other recorder's nearest event with
    that name; -1 for none. Ties go to the earlier one."""
    before = np.where(theirs, _last(~theirs), _last(theirs))
    after = len(time) - 1 - np.where(theirs, _last(~theirs[::-1])[::-1], _last(theirs[::-1])[::-1])
    after = np.where(after >= len(time), -1, after)
    before = np.where((before >= 0) & (name[before] == name), before, -1)
    after = np.where((after >= 0) & (name[after] == name), after, -1)
    back = np.where(before >= 0, time - time[before], np.iinfo(np.int64).max)
    ahead = np.where(after >= 0, time[after] - time, np.iinfo(np.int64).max)
    return np.where(back <= ahead, before, after)


def _last(there: npt.NDArray[np.bool_]) -> Int64s:
    """For each row the last row up to it for which `there` is true; -1 for none."""
    return np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))


# --- Device commands as events.


WITHIN_NS = 10_000
"""The largest difference of starts of the same work in two recorders, which both got from the
device."""
_CPU = re.compile(CPU_DEVICE)
_HOST = ("host", "sync")


def work_rows(commands: CommandColumns, *, beside_host: bool = False) -> Int64s:
    """The rows of commands on which a device worked. Computation on the host's CPU counts, unless
    `beside_host`."""
    own = [
        track.category not in _HOST and not (beside_host and _CPU.match(track.device))
        for track in commands.tracks
    ]
    return np.flatnonzero(np.array(own, dtype=np.bool_)[commands.track])


def work_events(commands: CommandColumns, codes: dict[str, int]) -> tuple[Events, Int64s]:
    """Device work as events, named by kernel if known, and their rows."""
    rows = work_rows(commands)
    text = commands.layer[rows]
    if commands.kernel is not None:
        kernel = commands.kernel[rows]
        text = np.where(kernel > 0, kernel, text)
    used, place = np.unique(text, return_inverse=True)
    names = [commands.strings[code] for code in used.tolist()]
    plain = [  # recorders say more of copies, or less, and AMD's name the entry of a kernel
        n.partition(" (")[0] if n.startswith(("Memcpy", "Memset")) else n.removesuffix(".kd")
        for n in names
    ]
    own = np.array([codes.setdefault(f"work {n}", len(codes)) for n in plain], dtype=np.int64)
    return Events(own[place.reshape(-1)], commands.start_ns[rows]), rows


# --- Which parts are of one run, by their events and clocks.
#
# Two parts are related by events that both recorded (`matching`), else by clocks that both count
# from 1970, if they recorded at the same time or with less than a second between: files of one
# script that ran twice are two runs. A file whose name alone tells when it started, in a zone that
# it does not tell, is related by that, if just one zone lets both have recorded at the same time.


_RANGES_NS = 300_000  # by which starts of ranges may differ, which each recorder opens for itself
_EPOCH_NS = 1_000_000_000  # by which clocks that count from 1970 may differ
_GAP_NS = 1_000_000_000  # between what two recorders saw of one run
_ZONE_NS = 900_000_000_000  # zones are whole quarters of an hour
_ZONES = 14 * 4


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A part on its run's clock, and how it was aligned."""

    part: Part
    related_by: RelatedBy
    offset_ns: int = 0
    fit: Fit | None = None
    within_ns: int | None = None


@dataclass(slots=True, eq=False)
class _Seen:
    """A part with its events: device work, and ranges."""

    part: Part
    work: Events
    ranges: Events


def groups(parts: Sequence[Part]) -> list[list[Placed]]:
    """The parts grouped into runs, each on its run's clock. The run with most parts comes first,
    ties by device time. The first part of a run provides the clock; it counts from 1970 if any part
    does."""
    codes: dict[str, int] = {}
    waiting = [_Seen(part, *_events(part, codes)) for part in parts]
    waiting.sort(key=lambda one: (_clock(one.part) is not ClockName.REALTIME, -len(one.work)))
    found = []
    while waiting:
        group = _group(waiting)
        times = [device_time(one.part) for one in group]
        found.append(((len(group), *map(sum, zip(*times, strict=True))), group))
    return [group for _, group in sorted(found, key=itemgetter(0), reverse=True)]


def _group(waiting: list[_Seen]) -> list[Placed]:
    """Remove from `waiting` its first part and all parts related to it, and return them."""
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
        number, placed = max(related, key=lambda one: one[1].fit.pairs if one[1].fit else -1)
        one, by = waiting.pop(number), placed.offset_ns
        group.append(placed)
        moved = (Events(e.name, e.time_ns + by) for e in (one.work, one.ranges))
        seen.append(_Seen(placed.part, *moved))


def _related(own: _Seen, others: Sequence[_Seen]) -> Placed | None:
    """The part aligned with some that are already placed; None if it cannot be related to them.
    `others[0]` has the clock."""
    best: Fit | None = None
    near = (0, _EPOCH_NS) if _counts_from_1970(own.part, others[0].part) else None
    for other in others:
        if other.part.importer == own.part.importer:
            continue  # two files of one recorder are two processes
        found = fit(own.work, other.work, WITHIN_NS, near, of_all=True)
        if found is None:
            found = fit(own.ranges, other.ranges, _RANGES_NS, near)
        if found is not None and (best is None or found.quality > best.quality):
            best = found
    if best is not None:
        moved = own.part.moved(best.offset_ns)
        return Placed(moved, RelatedBy.EVENTS, best.offset_ns, best)
    parts = [other.part for other in others]
    if any(_counts_from_1970(own.part, other) for other in parts):
        return Placed(own.part, RelatedBy.EPOCH) if _overlap(own.part, parts) else None
    return _by_local_time(own.part, parts)


def _by_local_time(own: Part, others: Sequence[Part]) -> Placed | None:
    clocks = {_clock(other) for other in others}
    if _clock(own) is not ClockName.LOCAL_TIME:
        return None
    within = own.info.clocks.within_ns or 0
    if clocks == {ClockName.LOCAL_TIME}:  # the same zone, whichever it is
        placed = Placed(own, RelatedBy.LOCAL_TIME, within_ns=within)
        return placed if _overlap(own, others) else None
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
    """The start and the end of the recording, as far as known."""
    first, last = part.extent()
    base = part.info.clocks.base_ns
    if _clock(part) is ClockName.LOCAL_TIME and base is not None:
        first = min(first, base)
    return first, last


def _overlap(own: Part, others: Iterable[Part]) -> bool:
    """Whether it recorded while one of the others did, or less than a second from that."""
    return any(_meet(_recorded(own), _recorded(other)) for other in others)


def _meet(own: tuple[int, int], other: tuple[int, int]) -> bool:
    return own[0] < other[1] + _GAP_NS and other[0] < own[1] + _GAP_NS


def device_time(part: Part) -> tuple[int, int]:
    """The total time of device commands and of host commands: a sort key for how much a part
    has."""
    work = host = 0
    for one in part.writings:
        rows = work_rows(one.commands, beside_host=True)
        lasted = np.maximum(one.commands.duration_ns, 0)
        work += int(lasted[rows].sum())
        host += int(lasted.sum()) - int(lasted[rows].sum())
    return work, host


def _events(part: Part, codes: dict[str, int]) -> tuple[Events, Events]:
    """The device work and the ranges of a part, as events for alignment."""
    work = [work_events(one.commands, codes)[0] for one in part.writings]
    ranges = [*part.landmarks, *((call.submodule, call.start_ns) for call in part.calls)]
    names = [f"range {name}" for name, _ in ranges]
    times = np.array([time for _, time in ranges], dtype=np.int64)
    return Events.joined(work), Events.of(names, times, codes)
