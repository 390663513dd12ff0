"""Parts on one clock → one bundle."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from msgspec import structs

from profiler.drop_reasons import DropReason
from profiler.events import NO_STEP, ROOT_DEVICE, RUN_STAGE, Call, Drop, DropKind, Span
from profiler.importers.components import component, stages
from profiler.importers.mixed import NAME
from profiler.importers.mixed.clocks import Placed, device_time
from profiler.importers.mixed.collected import Part, joined
from profiler.importers.mixed.lending import lent, told_well
from profiler.importers.mixed.work import Once, once
from profiler.importers.spans import spans
from profiler.notes import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_clocks import ClockName, Clocks
from profiler.trace.manifest_fields import Attribution, Device, Recording, Submodule
from profiler.trace.manifest_parts import Apart, LeftOut, PartOfRun, Parts, RelatedBy, WhyApart

__all__ = ["MixedRun"]

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
            parts=tuple(map(_told, self.placed, self._parts)),
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


def _told(placed: Placed, kept: Once) -> PartOfRun:
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
