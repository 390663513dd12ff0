"""Import a folder with files of several recorders as one run.

    import_trace(Path("recorded"), Path("traces"))      # nsys, Kineto and ORT files of one run

Work of a part without calls of its own belongs to the call during which it was launched.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from profiler.errors import InputError
from profiler.importers.foreign_run import component, spans, stages
from profiler.importers.importer import ForeignRun, Importer
from profiler.importers.mixed import NAME
from profiler.importers.mixed.align import (
    Once,
    Part,
    Placed,
    Written,
    collected,
    contents_of,
    device_time,
    groups,
    joined,
    once,
    selected,
    work_rows,
)
from profiler.text import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandColumns, Int64s
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
    Clocks,
    Device,
    LeftOut,
    PartOfRun,
    Parts,
    Recording,
    RelatedBy,
    Submodule,
    WhyApart,
)

# --- Work that one part has in no call of its own, and another part's calls asked for.
#
# Where nothing in a part tells calls apart, all of it is one call of its process. What was
# launched
# during a call that another part tells (a session of ONNX Runtime) is that call's.


_PROCESS = "run"  # what the only process's call is called, where nothing tells calls apart
_EXACT = 10  # times longer than what its begin may be off a call must be


@dataclass(frozen=True, slots=True, eq=False)
class _KnownCalls:
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
    told = _known_calls(parts, within_ns)
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


def _known_calls(parts: Sequence[Part], within_ns: Sequence[int]) -> _KnownCalls | None:
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
    return _KnownCalls(tuple((part, place) for _, _, part, place in found), start, end)


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


# --- Parts on one clock → one bundle.


_SAMPLED = frozenset({"metrics", "memory"})  # capabilities that are counters


@dataclass(frozen=True)
class MixedRun:
    """The parts of a run, that whose clock it has first. `others` are the runs of files that lay
    beside it and are not of it, `left_out` files that nobody reads, `unread` what could not be."""

    name: str
    placed: tuple[Placed, ...]
    others: tuple[MixedRun, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unread: tuple[Drop, ...] = ()

    @cached_property
    def _parts(self) -> list[Once]:
        found = once([one.part for one in self.placed])
        within = [_within_ns(one) for one in self.placed]
        parts = lent([one.part for one in found], within)
        found = [replace(one, part=part) for one, part in zip(found, parts, strict=True)]
        first = min(one.part.extent()[0] for one in found)
        if first >= 0:
            return found
        return [replace(one, part=one.part.moved(-first)) for one in found]

    @cached_property
    def _order(self) -> list[Part]:
        """The parts, first that which has most to tell of what is left of it."""
        return sorted((one.part for one in self._parts), key=device_time, reverse=True)

    @property
    def capabilities(self) -> frozenset[str]:
        """What any of the parts tells, of what is left of it."""
        found = set[str]()
        for part in self._order:
            sampled = any(one.counters for one in part.writings)
            left = _SAMPLED if sampled else frozenset[str]()
            found |= part.capabilities if part.calls else part.capabilities & left
        return frozenset(found)

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, in the order in which they returned."""
        writings = [one for part in self._order for one in part.writings]
        found = [(one.call, one) for one in writings if one.call is not None]
        found.sort(key=lambda pair: pair[0].end_ns)
        told = [replace(call, index=at) for at, (call, _) in enumerate(found)]
        calls = _staged(told)
        for call, (_, one) in zip(calls, found, strict=True):
            bundle.write_call(call, one.commands, one.counters)
        outside = [one for one in writings if one.call is None]
        counters = [counter for one in outside for counter in one.counters]
        host = joined([one.commands for one in outside])
        bundle.write_host(self._spans(told, calls), host, ROOT_DEVICE, counters)
        return self._info()

    @property
    def _producer(self) -> str:
        """The only one whose calls and commands these are, if there is but one."""
        found = {part.info.producer for part in self._order if part.calls}
        return found.pop() if len(found) == 1 else NAME

    def _spans(self, told: Sequence[Call], calls: Sequence[Call]) -> list[Span]:
        """Those of the only part with calls, where these are what it told; else one pipeline around
        the calls of all."""
        telling = [part for part in self._order if part.calls]
        if len(telling) == 1 and list(told) == list(calls):
            return list(telling[0].spans)
        last = max((part.extent()[1] for part in telling), default=0)
        return spans(self.name, sorted(calls, key=lambda call: call.start_ns), last)

    def _info(self) -> RunInfo:
        order = self._order
        first, told = order[0].info, [part.info for part in order]
        attribution: dict[str, Attribution] = {}
        devices: dict[str, Device] = {}
        for info in told:
            attribution = info.attribution | attribution
            devices |= {
                name: one for name, one in info.devices.items() if _says_more(devices, name)
            }
        activities = [one for part in order if part.calls for one in part.info.host_activities]
        return structs.replace(
            first,
            producer=self._producer,
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(self.placed[0].part.files[0].parent)),
            versions={
                key: value for info in reversed(told) for key, value in info.versions.items()
            },
            devices=devices,
            submodules=self._submodules(),
            recording=self._recording(first),
            clocks=self._clocks(),
            host_activities=tuple(sorted(activities, key=lambda one: one.start_ns)),
            attribution=attribution,
            drops=tuple(self._drops()),
            job=next((info.job for info in told if info.job is not None), None),
            parts=self._told(),
        )

    def _submodules(self) -> dict[str, Submodule]:
        """Those that have calls, each on the device of most of these."""
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

    def _recording(self, first: RunInfo) -> Recording:
        files = sum(len(one.part.files) for one in self.placed)
        recording = first.recording or Recording()
        return structs.replace(recording, source=self.name, files=files)

    def _clocks(self) -> Clocks:
        clocks = self.placed[0].part.info.clocks
        apart = any(one.part.info.clocks.aligned is False for one in self.placed)
        return structs.replace(clocks, aligned=False if apart else clocks.aligned)

    def _drops(self) -> Iterator[Drop]:
        for part in self._order:
            yield from part.info.drops
        yield from self.unread
        for one in self.placed:
            rough = not all(told_well(call, one.within_ns or 0) for call in one.part.calls)
            if one.related_by is RelatedBy.LOCAL_TIME and rough:
                note = Note.of(DropReason.BEGIN_BY_NAME, within_ns=one.within_ns or 0)
                count = len(one.part.files)
                yield Drop(DropKind.UNALIGNED_CLOCK, one.part.label, count, "files", note)

    def _why(self, other: Part) -> WhyApart:
        both = (other.info.clocks.clock, self.placed[0].part.info.clocks.clock)
        same = all(clock is ClockName.REALTIME for clock in both)
        return WhyApart.ANOTHER_TIME if same else WhyApart.UNRELATED

    def _told(self) -> Parts:
        return Parts(
            parts=tuple(map(_part_of_run, self.placed, self._parts)),
            apart=tuple(
                Apart(
                    files=_names(one.part),
                    producer=one.part.importer,
                    why=self._why(one.part),
                )
                for run in self.others
                for one in run.placed
            ),
            left_out=self.left_out,
        )


def _within_ns(placed: Placed) -> int:
    """How far the times of a part may be off."""
    return placed.within_ns or (placed.fit.worst_ns if placed.fit is not None else 0)


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


def _says_more(known: dict[str, Device], name: str) -> bool:
    return name not in known or known[name] == Device()


def _staged(calls: Sequence[Call]) -> list[Call]:
    """The calls, in their order, with the stages that their parts alone could not tell: what was a
    denoiser's, in whichever part, shows what came before and behind it."""
    if any(call.stage == "denoise" for call in calls):
        return _around_denoising(calls)
    if any(call.stage != RUN_STAGE for call in calls):
        return list(calls)
    order = sorted(range(len(calls)), key=lambda number: calls[number].start_ns)
    names = [calls[number].submodule for number in order]
    labels = stages(names, [calls[number].iteration for number in order])
    found = list(calls)
    for number, (stage, step, iteration) in zip(order, labels, strict=True):
        found[number] = replace(found[number], stage=stage, step=step, iteration=iteration)
    return found


def _around_denoising(calls: Sequence[Call]) -> list[Call]:
    denoising = [call.start_ns for call in calls if call.stage == "denoise"]

    def staged(call: Call) -> Call:
        if call.stage != RUN_STAGE or not component(call.submodule) or call.step != NO_STEP:
            return call
        before, behind = call.start_ns < min(denoising), call.start_ns > max(denoising)
        return replace(call, stage="encode" if before else "decode" if behind else "denoise")

    return [staged(call) for call in calls]


# --- A folder with files of several recorders → a run, and those beside it.
#
# import_trace(Path("recorded"), Path("traces"))      # nsys, Kineto and ORT files of one run


def read_folder(folder: Path, importers: Sequence[Importer], given: Mapping[str, Any]) -> MixedRun:
    """Read all files in a folder that any of `importers` reads; each gets those options of `given`
    that it has.

    Raises InputError where none can be read.
    """
    contents = contents_of(folder, importers)
    by_name = {importer.name: importer for importer in importers}
    parts, errors, unread = [], [], []
    for name, files in contents.files.items():
        importer = by_name[name]
        for some, run in _runs(importer, files, given):
            if isinstance(run, InputError):
                errors.append(run)
                note = Note.of(DropReason.ERROR, error=str(run))
                where = str(some[0].relative_to(folder))
                unread.append(Drop(DropKind.DROPPED_EVENTS, where, UNKNOWN, "events", note))
            else:
                parts.append(collected(importer, some, run))
    if not parts:
        raise errors[0] if errors else InputError(f"{folder} holds no trace: give one")
    name = folder.absolute().name
    first, *others = groups(parts)
    runs = tuple(MixedRun(_name_of(name, group), tuple(group)) for group in others)
    return MixedRun(name, tuple(first), runs, contents.left_out, tuple(unread))


def _runs(
    importer: Importer, files: Sequence[Path], given: Mapping[str, Any]
) -> Iterator[tuple[Sequence[Path], ForeignRun | InputError]]:
    """The runs of an importer's files, or why there is none; each file alone where those that
    should be one run are not."""
    names = {option.name for option in importer.options}
    options = {name: value for name, value in given.items() if name in names}
    together = getattr(importer, "together", None)
    for some in together(files) if together is not None else [files]:
        try:
            yield some, importer.read(some, options)
            continue
        except InputError as error:
            if len(some) == 1:
                yield some, error
                continue
        for file in some:
            try:
                yield [file], importer.read([file], options)
            except InputError as error:
                yield [file], error


def _name_of(folder: str, group: Sequence[Any]) -> str:
    """What to call a run that lay beside another: after its first part."""
    return f"{folder}-{group[0].part.name}"
