"""Import a folder with files of several recorders as one run.

    import_trace(Path("recorded"), Path("traces"))      # nsys, Kineto and ORT files of one run

Work of a part without calls of its own belongs to the call during which it was launched.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from profiler.errors import InputError
from profiler.importers.foreign_run import component, spans, stages
from profiler.importers.importer import ForeignRun, Importer, head_of, recognised_by
from profiler.importers.kineto.health import front_end
from profiler.importers.mixed_align import (
    FEWEST,
    WITHIN_NS,
    Events,
    Part,
    Placed,
    Written,
    collected,
    device_time,
    fit,
    groups,
    joined,
    pairs_at,
    selected,
    work_events,
    work_rows,
)
from profiler.importers.refusals import likeness, refusal_of
from profiler.plugins import plain_text
from profiler.text import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns, Int64s
from profiler.trace.events import (
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
    Span,
)
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    Apart,
    Attribution,
    CallsFrom,
    ClockName,
    Device,
    HealthNote,
    LeftOut,
    PartOfRun,
    Parts,
    Recording,
    RelatedBy,
    Submodule,
    WhyApart,
)

_NAME = "mixed"  # as `importing` has it

# --- Which importer reads each file of a folder.


_LOOKED_AT = 256  # files of a folder, at most
_CAPTURES = "capture_traces"  # captures of replayed graphs, read with the trace beside them


@dataclass(frozen=True, slots=True)
class Contents:
    """The files in a folder: those of each importer, by its name, and those that none recognizes.
    A trace `is_missing` if such a file is there instead of one, by its name."""

    files: dict[str, tuple[Path, ...]]
    left_out: tuple[LeftOut, ...]
    is_missing: bool


def contents_of(folder: Path, importers: Sequence[Importer]) -> Contents:
    """The files in a folder, and in its direct subfolders, grouped by the first importer that
    recognizes each."""
    found: dict[str, list[Path]] = {}
    others: dict[Path, str] = {}
    stand_ins: set[str] = set()
    there = _files(folder)
    for path in there[:_LOOKED_AT]:
        try:
            head = head_of(path)
        except InputError:
            others[path] = "unreadable"
            continue
        if refusal := refusal_of(path, head):
            others[path] = refusal.what
            stand_ins |= {path.suffix} if refusal.stands_in else set()
        elif importer := next((one for one in importers if recognised_by(path, head, one)), None):
            found.setdefault(importer.name, []).append(path)
        else:
            others[path] = likeness(path, head)
    beside = {
        other
        for importer in importers
        if (beside_of := getattr(importer, "beside", None)) is not None
        for path in found.get(importer.name, ())
        for other in beside_of(path)
    }
    left_out = [
        LeftOut(file=plain_text(str(path.relative_to(folder))), what=what)
        for path, what in others.items()
        if path not in beside
    ]
    if more := there[_LOOKED_AT:]:
        name = plain_text(str(more[0].relative_to(folder)))
        named = f"{name} and {len(more) - 1} more" if len(more) > 1 else name
        left_out.insert(0, LeftOut(file=named, what=f"beyond the first {_LOOKED_AT} files"))
    is_missing = any(path.suffix in stand_ins for files in found.values() for path in files)
    files = {name: tuple(files) for name, files in found.items()}
    return Contents(files, tuple(left_out), is_missing)


def _files(folder: Path) -> list[Path]:
    """The files by name; those of the folder itself come first."""
    entries = _entries(folder)
    below = [one for one in entries if one.is_dir() and one.name != _CAPTURES]
    inside = [file for one in below for file in _entries(one)]
    return [file for file in (*entries, *inside) if file.is_file()]


def _entries(folder: Path) -> list[Path]:
    """The entries that are not hidden, by name; none for a folder that cannot be read."""
    try:
        return sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    except OSError:
        return []


# --- Work that two parts have: it stays in the one with more details.


_UNNAMED_NS = 1_000
_NEARLY_ALL = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Once:
    """A part without the work that a more detailed part has, too: `twice` of its `commands` on
    devices were left out."""

    part: Part
    commands: int
    twice: int


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """The work of one device of a part, with the writing and the row of each event, and whether a
    more detailed part has it, too."""

    events: Events
    writing: Int64s
    row: Int64s
    seen: npt.NDArray[np.bool_]


def once(parts: Sequence[Part]) -> list[Once]:
    """Remove duplicates, so that each device command is in one part only. Return the parts in
    order.

    A command stays in the part that knows the rank, else has more details (modules, shapes), else
    has more commands. If the parts name a device differently, that part's name is used.
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
    """The sort key of a part's detail: knows the job, count of shapes and modules, count of
    commands."""
    named = count = 0
    for one in part.writings:
        rows = work_rows(one.commands)
        count += len(rows)
        named += int((one.commands.shapes[rows] > 0).sum())
        if one.commands.module is not None:
            named += int((one.commands.module[rows] > 0).sum())
    return part.info.job is not None, named, count


def _by_device(part: Part, codes: dict[str, int]) -> dict[str, _Work]:
    found: dict[str, list[tuple[Events, Int64s, Int64s]]] = {}
    for number, one in enumerate(part.writings):
        events, rows = work_events(one.commands, codes)
        devices = [track.device for track in one.commands.tracks]
        for name in dict.fromkeys(devices):
            tracks = [code for code, device in enumerate(devices) if device == name]
            here = np.isin(one.commands.track[rows], tracks)
            if here.any():
                own = Events(events.name[here], events.time_ns[here])
                found.setdefault(name, []).append((own, np.full(here.sum(), number), rows[here]))
    works = {}
    for name, pieces in sorted(found.items()):
        own_events, writings, places = zip(*pieces, strict=True)
        writing, row = np.concatenate(writings), np.concatenate(places)
        works[name] = _Work(Events.joined(own_events), writing, row, np.zeros(len(row), np.bool_))
    return works


def _mark(
    own: Mapping[str, _Work],
    other: Mapping[str, _Work],
    alike: Callable[[Events, Events], tuple[Int64s, int]],
) -> dict[str, str]:
    """Mark work that the other part has, too. Return the other part's names of the devices, by own
    name."""
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
    """All rows if the other part is a copy, else none. A recorder never writes the same work into
    two files; processes of a job do similar work at nearly the same time, but on different
    devices."""
    same = np.array_equal(own.time_ns, other.time_ns) and np.array_equal(own.name, other.name)
    return np.arange(len(own) if same else 0), 0


def _alike(own: Events, other: Events) -> tuple[Int64s, int]:
    """The rows that the other part has, too, and the median difference in ns. They are matched by
    name, or, if recorders name work differently, by starts that nearly all agree to 1 µs."""
    found = fit(own, other, WITHIN_NS, (0, WITHIN_NS))
    if found is not None:
        return pairs_at(own, other, 0, WITHIN_NS)[0], found.residual_ns
    own, other = (Events(np.zeros_like(one.name), one.time_ns) for one in (own, other))
    rows, _ = pairs_at(own, other, 0, _UNNAMED_NS)
    if len(rows) < FEWEST or len(rows) < _NEARLY_ALL * min(len(own), len(other)):
        rows = rows[:0]
    return rows, _UNNAMED_NS


def _without(part: Part, works: Mapping[str, _Work], renamed: Mapping[str, str]) -> Once:
    """The part without work that another part has, with devices named as there. Calls without any
    device work left are dropped. If no call is left, so is the work outside calls: the other part
    has the host's part, too."""
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
        host, left = replace(host, commands=CommandBuilder().build()), []
    spans = part.spans if calls else ()
    rest = replace(part, writings=(*left, replace(host, counters=counters)), spans=spans)
    # an exchange of names: a device that has a name which another gets has that one's
    present = {track.device for one in rest.writings for track in one.commands.tracks}
    back = {new: old for old, new in renamed.items() if new in present and new not in renamed}
    return Once(rest.on({**renamed, **back}), commands, twice)


def _rest(one: Written, number: int, works: Mapping[str, _Work]) -> Written | None:
    """A call without duplicate work; None if it had device work and none is left."""
    gone = np.zeros(len(one.commands), dtype=np.bool_)
    for work in works.values():
        gone[work.row[work.seen & (work.writing == number)]] = True
    if not gone.any():
        return one
    work_left = work_rows(one.commands)
    if one.call is not None and gone[work_left].all():
        return None
    flows = one.commands.flows
    if len(flows):  # launches of removed work only
        launching = np.unique(flows[gone[flows[:, 1]], 0])
        still = np.unique(flows[~gone[flows[:, 1]], 0])
        gone[np.setdiff1d(launching, still)] = True
    return replace(one, commands=selected(one.commands, ~gone))


# --- Work that one part recorded and that belongs to another part's calls.
#
# If a part cannot distinguish calls, it has one call per process. Work launched during a call that
# another part recorded (a session of ONNX Runtime) belongs to that call.


_PROCESS = "run"  # name of the call of a single process
_EXACT = 10  # a call must last this many times the error of its start


def lent(parts: Sequence[Part], within_ns: Sequence[int]) -> list[Part]:
    """Move work from parts that cannot distinguish calls to the calls during which it was launched,
    and return the parts. `within_ns` is the error of each part's times. Nothing is moved if
    recorded calls overlap, because the owner is then ambiguous."""
    takers = sorted(
        (call.start_ns, call.end_ns, part, place)
        for part, own in enumerate(parts)
        for place, one in enumerate(own.writings)
        if (call := one.call) is not None
        and not _lacks_work(own, call)
        and long_enough(call, within_ns[part])
    )
    start, end = (np.array([one[at] for one in takers], dtype=np.int64) for at in (0, 1))
    if not takers or (start[1:] < end[:-1]).any():
        return list(parts)
    writings = [list(part.writings) for part in parts]
    got: dict[tuple[int, int], list[CommandColumns]] = {}
    gave: set[tuple[int, int]] = set()
    for part, own in enumerate(parts):
        for place, one in enumerate(own.writings):
            if one.call is None or not _lacks_work(own, one.call):
                continue
            times, flows = one.commands.start_ns.copy(), one.commands.flows
            times[flows[:, 1]] = one.commands.start_ns[flows[:, 0]]  # when it was launched
            whose = np.searchsorted(start, times, side="right") - 1
            whose = np.where(times < end[np.maximum(whose, 0)], whose, -1)
            for number in np.unique(whose[whose >= 0]).tolist():
                share = selected(one.commands, whose == number)
                got.setdefault(takers[number][2:], []).append(share)
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


def long_enough(call: Call, within_ns: int) -> bool:
    """Whether a call is so long that the error of its start, at most `within_ns`, does not
    matter."""
    return call.duration_ns >= _EXACT * within_ns


def _lacks_work(part: Part, call: Call) -> bool:
    recording = part.info.recording
    if recording is not None and recording.calls_from is CallsFrom.NOTHING:
        return True
    return call.stage == RUN_STAGE and call.submodule == _PROCESS


def _with(one: Written, shares: Sequence[CommandColumns]) -> Written:
    """A call with additional commands, on the device on which most of its work ran."""
    commands, call = joined([one.commands, *shares]), one.call
    rows = work_rows(commands, beside_host=True)
    if call is not None and len(rows):
        lasted = np.bincount(commands.track[rows], np.maximum(commands.duration_ns[rows], 0))
        call = replace(call, device=commands.tracks[int(lasted.argmax())].device)
    return replace(one, call=call, commands=commands)


def _without_empty(
    writings: Sequence[Written], part: int, gave: Set[tuple[int, int]]
) -> list[Written]:
    """Drop calls from which all device work was moved; the rest of their commands is then outside
    calls."""
    kept: list[Written] = []
    loose: list[Written] = []
    for place, one in enumerate(writings):
        empty = (part, place) in gave and not len(work_rows(one.commands))
        (loose if empty else kept).append(one)
    host = kept.pop()
    commands = joined([host.commands, *(one.commands for one in loose)])
    counters = (*host.counters, *(counter for one in loose for counter in one.counters))
    return [*kept, replace(host, commands=commands, counters=counters)]


# --- Parts on one clock → one bundle.


_SAMPLED = frozenset({"metrics", "memory"})  # capabilities that are counters


@dataclass(frozen=True)
class MixedRun:
    """The parts of a run, first the one with the run's clock. `others` are runs of files in the
    same folder that are not related to it, `left_out` files that no importer reads, `unread` files
    that could not be read, `front_ends` notes of processes that launched nothing."""

    name: str
    placed: tuple[Placed, ...]
    others: tuple[MixedRun, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unread: tuple[Drop, ...] = ()
    front_ends: tuple[HealthNote, ...] = ()

    @cached_property
    def _parts(self) -> list[Once]:
        found = once([one.part for one in self.placed])
        # how far the times of each part may be off
        within = [one.within_ns or (one.fit.worst_ns if one.fit else 0) for one in self.placed]
        parts = lent([one.part for one in found], within)
        found = [replace(one, part=part) for one, part in zip(found, parts, strict=True)]
        first = min(one.part.extent()[0] for one in found)
        if first >= 0:
            return found
        return [replace(one, part=one.part.moved(-first)) for one in found]

    @cached_property
    def _order(self) -> list[Part]:
        """The parts, sorted by the device time that is left in them, largest first."""
        return sorted((one.part for one in self._parts), key=device_time, reverse=True)

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of all parts that still have calls or counters."""
        found = set[str]()
        for part in self._order:
            sampled = any(one.counters for one in part.writings)
            left = _SAMPLED if sampled else frozenset[str]()
            found |= part.capabilities if part.calls else part.capabilities & left
        return frozenset(found)

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write one file per call, in the order in which calls returned."""
        writings = [one for part in self._order for one in part.writings]
        found = [(one.call, one) for one in writings if one.call is not None]
        found.sort(key=lambda pair: pair[0].end_ns)
        numbered = [replace(call, index=at) for at, (call, _) in enumerate(found)]
        calls = numbered if len(self.placed) == 1 else _staged(numbered)
        for call, (_, one) in zip(calls, found, strict=True):
            bundle.write_call(call, one.commands, one.counters)
        outside = [one for one in writings if one.call is None]
        counters = [counter for one in outside for counter in one.counters]
        host = joined([one.commands for one in outside])
        bundle.write_host(self._spans(numbered, calls), host, ROOT_DEVICE, counters)
        return self._info()

    def _spans(self, numbered: Sequence[Call], calls: Sequence[Call]) -> list[Span]:
        """The spans of the only part with calls, if the calls are unchanged; else one pipeline
        around all calls."""
        telling = [part for part in self._order if part.calls]
        if len(telling) == 1 and list(numbered) == list(calls):
            return list(telling[0].spans)
        last = max((part.extent()[1] for part in telling), default=0)
        return spans(self.name, sorted(calls, key=lambda call: call.start_ns), last)

    def _info(self) -> RunInfo:
        order = self._order
        first, infos = order[0].info, [part.info for part in order]
        attribution: dict[str, Attribution] = {}
        devices: dict[str, Device] = {}
        for info in infos:
            attribution = info.attribution | attribution
            unknown = [name for name in info.devices if devices.get(name, Device()) == Device()]
            devices |= {name: info.devices[name] for name in unknown}
        activities = [one for part in order if part.calls for one in part.info.host_activities]
        producers = {part.info.producer for part in order if part.calls}
        files = sum(len(one.part.files) for one in self.placed)
        apart = any(one.part.info.clocks.aligned is False for one in self.placed)
        clocks = self.placed[0].part.info.clocks
        return structs.replace(
            first,
            producer=producers.pop() if len(producers) == 1 else _NAME,
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(self.placed[0].part.files[0].parent)),
            versions={
                key: value for info in reversed(infos) for key, value in info.versions.items()
            },
            devices=devices,
            submodules=self._submodules(),
            recording=structs.replace(
                first.recording or Recording(), source=self.name, files=files
            ),
            clocks=structs.replace(clocks, aligned=False if apart else clocks.aligned),
            host_activities=tuple(sorted(activities, key=lambda one: one.start_ns)),
            attribution=attribution,
            drops=tuple(self._drops()),
            job=next((info.job for info in infos if info.job is not None), None),
            health=(*(note for info in infos for note in info.health), *self.front_ends),
            parts=self._parts_recorded(),
        )

    def _submodules(self) -> dict[str, Submodule]:
        """The submodules that have calls, each on the device of most of its calls."""
        devices: dict[str, Counted[str]] = {}
        for part in self._order:
            for call in part.calls:
                devices.setdefault(call.submodule, Counted())[call.device] += 1
        known = {
            name: one
            for part in reversed(self._order)
            for name, one in part.info.submodules.items()
            if name in devices
        }
        return {
            name: one
            if one.device in devices[name]
            else structs.replace(one, device=devices[name].most_common(1)[0][0])
            for name, one in known.items()
        }

    def _drops(self) -> Iterator[Drop]:
        for part in self._order:
            yield from part.info.drops
        yield from self.unread
        for one in self.placed:
            rough = not all(long_enough(call, one.within_ns or 0) for call in one.part.calls)
            if one.related_by is RelatedBy.LOCAL_TIME and rough:
                note = Note.of(DropReason.BEGIN_BY_NAME, within_ns=one.within_ns or 0)
                count = len(one.part.files)
                yield Drop(DropKind.UNALIGNED_CLOCK, one.part.label, count, "files", note)

    def _parts_recorded(self) -> Parts:
        clock, real = self.placed[0].part.info.clocks.clock, ClockName.REALTIME
        return Parts(
            parts=tuple(map(_part_of_run, self.placed, self._parts)),
            apart=tuple(
                Apart(
                    files=_names(one.part),
                    producer=one.part.importer,
                    why=WhyApart.ANOTHER_TIME
                    if clock is one.part.info.clocks.clock is real
                    else WhyApart.UNRELATED,
                )
                for run in self.others
                for one in run.placed
            ),
            left_out=self.left_out,
        )


def _part_of_run(placed: Placed, kept: Once) -> PartOfRun:
    fit = placed.fit
    return PartOfRun(
        files=_names(placed.part),
        producer=placed.part.importer,
        related_by=placed.related_by,
        offset_ns=placed.offset_ns,
        pairs=fit.pairs if fit else 0,
        residual_ns=fit.residual_ns if fit else None,
        worst_ns=fit.worst_ns if fit else None,
        within_ns=placed.within_ns,
        commands=kept.commands,
        twice=kept.twice,
        calls=len(kept.part.calls),
    )


def _names(part: Part) -> tuple[str, ...]:
    return tuple(file.name for file in part.files)


def _staged(calls: Sequence[Call]) -> list[Call]:
    """The calls in order, with stages that their parts alone did not know: a denoiser call in any
    part separates calls before and after."""
    if any(call.stage == "denoise" for call in calls):
        return list(_around_denoising(calls))
    if any(call.stage != RUN_STAGE for call in calls):
        return list(calls)
    order = sorted(range(len(calls)), key=lambda number: calls[number].start_ns)
    names = [calls[number].submodule for number in order]
    labels = stages(names, [calls[number].iteration for number in order])
    found = list(calls)
    for number, (stage, step, iteration) in zip(order, labels, strict=True):
        found[number] = replace(found[number], stage=stage, step=step, iteration=iteration)
    return found


def _around_denoising(calls: Sequence[Call]) -> Iterator[Call]:
    denoising = [call.start_ns for call in calls if call.stage == "denoise"]
    first, last = min(denoising), max(denoising)
    for call in calls:
        stage = (
            "encode" if call.start_ns < first else "decode" if call.start_ns > last else "denoise"
        )
        known = call.stage == RUN_STAGE and component(call.submodule) and call.step == NO_STEP
        yield replace(call, stage=stage) if known else call


# --- A folder with files of several recorders → a run, and unrelated other runs.


def read_folder(folder: Path, importers: Sequence[Importer], given: Mapping[str, Any]) -> MixedRun:
    """Read all files in a folder that any of `importers` recognizes; each importer gets those of
    the `given` options that it has.

    Raises InputError if none can be read.
    """
    contents = contents_of(folder, importers)
    by_name = {importer.name: importer for importer in importers}
    parts, errors, unread = list[Part](), [], []
    alone: list[tuple[Part, int]] = []  # processes without launches; their operators
    launches = False
    for name, files in contents.files.items():
        importer = by_name[name]
        for some, run in _runs(importer, files, given):
            if isinstance(run, InputError):
                errors.append(run)
                note = Note.of(DropReason.ERROR, error=str(run))
                where = str(some[0].relative_to(folder))
                unread.append(Drop(DropKind.DROPPED_EVENTS, where, UNKNOWN, "events", note))
                continue
            launches |= getattr(run, "launches_work", False)
            operators = getattr(run, "operators_alone", 0)
            part = collected(importer, some, run)
            if operators:
                alone.append((part, operators))
            else:
                parts.append(part)
    if launches:
        notes = tuple(front_end(part.label, count) for part, count in alone)
    else:
        parts += [part for part, _ in alone]
        notes = ()
    if not parts:
        raise errors[0] if errors else InputError(f"{folder} holds no trace: give one")
    name = folder.absolute().name
    first, *others = groups(parts)
    runs = tuple(MixedRun(f"{name}-{one[0].part.name}", tuple(one)) for one in others)
    return MixedRun(name, tuple(first), runs, contents.left_out, tuple(unread), notes)


def _runs(
    importer: Importer, files: Sequence[Path], given: Mapping[str, Any]
) -> Iterator[tuple[Sequence[Path], ForeignRun | InputError]]:
    """Yield the runs of an importer's files, or the error. If files that should be one run fail
    together, each is read alone."""
    names = {option.name for option in importer.options}
    options = {name: value for name, value in given.items() if name in names}
    together = getattr(importer, "together", None)
    waiting = list(together(files)) if together is not None else [files]
    while waiting:
        some = waiting.pop(0)
        try:
            yield some, importer.read(some, options)
        except InputError as error:
            if len(some) > 1:
                waiting[:0] = [[file] for file in some]
            else:
                yield some, error
