"""Commands of devices as events, and those that two parts both have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from profiler.events import CPU_DEVICE
from profiler.importers.mixed.collected import Part, Written, selected
from profiler.importers.mixed.matching import FEWEST, Events, fit, pairs_at
from profiler.trace.columns import CommandBuilder, CommandColumns, Int64s

__all__ = ["WITHIN_NS", "Once", "once", "work_events", "work_rows"]

WITHIN_NS = 10_000
"""By which begins of work may differ that two recorders saw: both have them from the device."""
_UNNAMED_NS = 1_000
_NEARLY_ALL = 0.8
_CPU = re.compile(CPU_DEVICE)
_HOST = ("host", "sync")


def work_rows(commands: CommandColumns, *, beside_host: bool = False) -> Int64s:
    """The rows of commands that a device worked on, the host's CPU where it computes for itself;
    not that `beside_host`."""
    of_host = np.array(
        [
            track.category in _HOST or (beside_host and _CPU.match(track.device) is not None)
            for track in commands.tracks
        ],
        dtype=np.bool_,
    )
    if not len(commands):
        return np.zeros(0, dtype=np.int64)
    found: Int64s = np.flatnonzero(~of_host[commands.track])
    return found


def work_events(commands: CommandColumns, codes: dict[str, int]) -> tuple[Events, Int64s]:
    """A device's work as events, under its kernel's name where there is one; their rows."""
    rows = work_rows(commands)
    text = commands.layer[rows]
    if commands.kernel is not None:
        kernel = commands.kernel[rows]
        text = np.where(kernel > 0, kernel, text)
    used, place = np.unique(text, return_inverse=True)
    names = [_plain(commands.strings[code]) for code in used.tolist()]
    own = np.array([codes.setdefault(n, len(codes)) for n in names], dtype=np.int64)
    name = own[place.reshape(-1)] if len(own) else np.zeros(0, dtype=np.int64)
    return Events(name, commands.start_ns[rows]), rows


def _plain(name: str) -> str:
    """A name as all recorders have it: they say more of copies, or less, and AMD's name the entry
    of a kernel."""
    if name.startswith(("Memcpy", "Memset")):
        return f"work {name.partition(' (')[0]}"
    return f"work {name.removesuffix('.kd')}"


@dataclass(frozen=True, slots=True, eq=False)
class Once:
    """A part without what a part that tells more has, too: `commands` of devices it had, of which
    `twice` were left out."""

    part: Part
    commands: int
    twice: int


@dataclass(slots=True, eq=False)
class _Work:
    """The work of one device of a part: where it stands, by place of its writing and row."""

    events: Events
    writing: Int64s
    row: Int64s
    seen: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = np.zeros(len(self.events), dtype=np.bool_)


def once(parts: Sequence[Part]) -> list[Once]:
    """The parts of a run, in their order, with everything that devices did in one of them alone.

    Of two that have a command it is left to the one that tells of ranks, or more of its commands
    (modules, shapes), or else has more of them. Where they name a device differently, it gets that
    one's name.
    """
    codes: dict[str, int] = {}
    works = [_by_device(part, codes) for part in parts]
    order = sorted(range(len(parts)), key=lambda number: _detail(parts[number]), reverse=True)
    found: dict[int, Once] = {}
    for place, number in enumerate(order):
        renamed: dict[str, str] = {}
        for richer in order[:place]:
            same = parts[number].importer == parts[richer].importer
            alike = _copied if same else _alike
            renamed = _mark(works[number], works[richer], alike) | renamed
        found[number] = _without(parts[number], works[number], renamed)
        works[number] = {renamed.get(name, name): work for name, work in works[number].items()}
    return [found[number] for number in range(len(parts))]


def _detail(part: Part) -> tuple[bool, int, int]:
    """How much a part tells of its work, and how much of it there is."""
    told = count = 0
    for one in part.writings:
        rows = work_rows(one.commands)
        count += len(rows)
        told += int((one.commands.shapes[rows] > 0).sum())
        if one.commands.module is not None:
            told += int((one.commands.module[rows] > 0).sum())
    return part.info.job is not None, told, count


def _by_device(part: Part, codes: dict[str, int]) -> dict[str, _Work]:
    events, writing, row = [], [], []
    device: list[str] = []
    for number, one in enumerate(part.writings):
        found, rows = work_events(one.commands, codes)
        names = np.array([track.device for track in one.commands.tracks], dtype=object)
        events.append(found)
        writing.append(np.full(len(rows), number))
        row.append(rows)
        device += names[one.commands.track[rows]].tolist() if len(rows) else []
    everything = Events.joined(events)
    of_writing, rows = np.concatenate(writing), np.concatenate(row)
    names = np.array(device, dtype=object)
    works = {}
    for name in sorted(set(device)):
        here = names == name
        own = Events(everything.name[here], everything.time_ns[here])
        works[name] = _Work(own, of_writing[here], rows[here])
    return works


def _mark(
    own: Mapping[str, _Work],
    other: Mapping[str, _Work],
    alike: Callable[[Events, Events], tuple[Int64s, int]],
) -> dict[str, str]:
    """Mark what the other part has as well; the other's name of each device on which that is."""
    found = []
    for name, work in own.items():
        for theirs, their_work in other.items():
            rows, apart = alike(work.events, their_work.events)
            if len(rows):
                found.append((len(rows), -apart, name == theirs, name, theirs, rows))
    renamed: dict[str, str] = {}
    for *_, name, theirs, rows in sorted(found, key=lambda one: one[:5], reverse=True):
        if name not in renamed and theirs not in renamed.values():
            renamed[name] = theirs
            own[name].seen[rows] = True
    return renamed


def _copied(own: Events, other: Events) -> tuple[Int64s, int]:
    """All rows, where the other is a copy. No recorder writes what ran into two files: processes
    of a job do the same at nearly the same time, each on a device of its own."""
    same = np.array_equal(own.time_ns, other.time_ns) and np.array_equal(own.name, other.name)
    return np.arange(len(own) if same else 0), 0


def _alike(own: Events, other: Events) -> tuple[Int64s, int]:
    """The rows of what the other has as well, and how far that is apart in the median: by names,
    else, where recorders name work differently, by begins that nearly all agree to 1 µs."""
    found = fit(own, other, WITHIN_NS, (0, WITHIN_NS))
    if found is not None:
        return pairs_at(own, other, 0, WITHIN_NS)[0], found.residual_ns
    own, other = (Events(np.zeros_like(one.name), one.time_ns) for one in (own, other))
    rows, _theirs = pairs_at(own, other, 0, _UNNAMED_NS)
    if len(rows) < FEWEST or len(rows) < _NEARLY_ALL * min(len(own), len(other)):
        rows = rows[:0]
    return rows, _UNNAMED_NS


def _without(part: Part, works: Mapping[str, _Work], renamed: Mapping[str, str]) -> Once:
    """The part without what was seen elsewhere, its devices by their names there. A call that has
    no work of a device left goes, and where no call is left what is in none goes, too: the host's
    part of it is in the other part as well."""
    commands = sum(len(work.events) for work in works.values())
    twice = sum(int(work.seen.sum()) for work in works.values())
    if not twice:
        return Once(part, commands, 0)
    kept = [_rest(one, number, works) for number, one in enumerate(part.writings)]
    gone = [one for one, rest in zip(part.writings, kept, strict=True) if rest is None]
    left = [one for one in kept if one is not None]
    calls = [one for one in left if one.call is not None]
    host = left.pop()
    counters = (*host.counters, *(counter for one in gone for counter in one.counters))
    if not calls and twice == commands:
        host = replace(host, commands=CommandBuilder().build())
        left = []
    spans = part.spans if calls else ()
    rest = replace(part, writings=(*left, replace(host, counters=counters)), spans=spans)
    return Once(rest.on(_swapped(renamed, rest)), commands, twice)


def _rest(one: Written, number: int, works: Mapping[str, _Work]) -> Written | None:
    """What of a call is left; None where no work of a device is that was there."""
    gone = np.zeros(len(one.commands), dtype=np.bool_)
    for work in works.values():
        gone[work.row[work.seen & (work.writing == number)]] = True
    if not gone.any():
        return one
    work_left = work_rows(one.commands)
    if one.call is not None and gone[work_left].all():
        return None
    flows = one.commands.flows
    if len(flows):  # launches of nothing but what goes
        launching = np.unique(flows[gone[flows[:, 1]], 0])
        still = np.unique(flows[~gone[flows[:, 1]], 0])
        gone[np.setdiff1d(launching, still)] = True
    return replace(one, commands=selected(one.commands, ~gone))


def _swapped(renamed: Mapping[str, str], part: Part) -> dict[str, str]:
    """`renamed` as an exchange: a device that has a name which another gets has that one's."""
    present = {track.device for one in part.writings for track in one.commands.tracks}
    back = {new: old for old, new in renamed.items() if new in present and new not in renamed}
    return dict(renamed) | back
