"""What the manifest of an imported RBLN run says: devices, clocks, submodules and drops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profiler.drop_reasons import DropReason
from profiler.events import ROOT_DEVICE, Drop, DropKind
from profiler.importers.rbln.clocks import Clocks, Placement
from profiler.importers.rbln.commands import RblnCommands
from profiler.importers.rbln.files import Capture, Shard
from profiler.importers.rbln.labels import Labels
from profiler.importers.rbln.pipeline import ExpectedCall
from profiler.notes import Note, Value
from profiler.trace import manifest_clocks
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_clocks import ClockName, DeviceClock, PlacedBy
from profiler.trace.manifest_fields import Device, Recording, Submodule, Warmup
from profiler.trace.manifest_overhead import Overhead, UnknownCost, WhyUnknown

__all__ = ["PlacedCall", "PlacedRun", "clock_drops", "label_drops", "run_info"]

_RECORDED = re.compile(r"rbln_(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)")


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call on the run's timeline; `commands` is None where its file holds none."""

    index: int
    shard: Shard
    label: ExpectedCall
    device: str
    start_ns: int
    end_ns: int
    commands: RblnCommands | None
    layers: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlacedRun:
    """The calls of a run, and how their devices' clocks were laid onto one."""

    calls: tuple[PlacedCall, ...]
    clocks: Clocks


def label_drops(capture: Capture, labels: Labels, calls: Sequence[PlacedCall]) -> Iterator[Drop]:
    """Why calls are not labelled, whether by a guess, or which labels the calls' layers speak
    against."""
    if labels.why_not:
        where = capture.source.name or capture.stem
        yield Drop(DropKind.UNLABELLED_CALL, where, len(calls), "calls", labels.why_not)
        return
    if labels.guess is not None:
        guess = labels.guess
        values: dict[str, Value] = {"pipeline": guess.description.name, "steps": guess.steps}
        detail = Note.of(DropReason.PIPELINE_GUESSED, **values)
        if guess.others:
            detail = Note.of(DropReason.PIPELINE_GUESSED_OF, **values, others=guess.others)
        where = capture.source.name or capture.stem
        yield Drop(DropKind.DOUBTFUL_LABEL, where, len(calls), "calls", detail)
    first: dict[str, frozenset[str]] = {}
    doubtful: Counter[str] = Counter()
    for call in calls:
        if call.layers:
            known = first.setdefault(call.label.submodule, call.layers)
            shared, all_of_both = len(known & call.layers), len(known | call.layers)
            doubtful[call.label.submodule] += 2 * shared < all_of_both
    for submodule, count in doubtful.items():
        if count:
            detail = Note.of(DropReason.LAYERS_DIFFER)
            yield Drop(DropKind.DOUBTFUL_LABEL, submodule, count, "calls", detail)


def clock_drops(clocks: Clocks) -> Iterator[Drop]:
    """Which devices' times do not compare with the others'."""
    for device, placement in clocks.placements.items():
        if placement.by == PlacedBy.END_TO_END:
            detail = Note.of(DropReason.CLOCK_RESTARTS, device=device)
            yield Drop(DropKind.UNALIGNED_CLOCK, device, 1, "clocks", detail)
        elif device != clocks.reference:
            values = {"device": device, "reference": clocks.reference}
            detail = Note.of(DropReason.CLOCK_UNALIGNED, **values, how=_how(placement))
            yield Drop(DropKind.UNALIGNED_CLOCK, device, 1, "clocks", detail)


def _how(placement: Placement) -> Note:
    if placement.by == PlacedBy.SHARED_CALL:
        return Note.of(DropReason.BY_SHARED_CALL)
    if placement.by == PlacedBy.RUN_START:
        return Note.of(DropReason.AT_RUN_START)
    if placement.uncertainty_ns < 0:
        return Note.of(DropReason.BY_ORDER)
    return Note.of(DropReason.BY_ORDER_WITHIN, uncertainty_ns=placement.uncertainty_ns)


def run_info(
    capture: Capture,
    labels: Labels,
    placed: PlacedRun,
    drops: tuple[Drop, ...],
) -> RunInfo:
    """Everything that the manifest says beside the calls."""
    return RunInfo(
        producer="rbln",
        pipeline="" if labels.why_not else labels.pipeline,
        command_line=("profile-sd3", "import", str(capture.source)),
        devices=_devices(placed),
        submodules=_submodules(placed.calls),
        recording=_recording(capture, labels, placed.calls),
        clocks=_clocks(placed.clocks),
        overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
        warmup=Warmup(calls=len(labels.skipped)) if labels.skipped else None,
        drops=drops,
    )


def _recording(
    capture: Capture,
    labels: Labels,
    calls: Sequence[PlacedCall],
) -> Recording:
    recorded = _RECORDED.match(capture.stem)
    steps = 1 + max(call.step for call in labels.calls) if labels.described_as else 0
    unnamed = sum(call.commands.unnamed for call in calls if call.commands)
    return Recording(
        source=capture.source.name,
        files=len({shard.path for shard in labels.shards}),
        recorded="{}-{}-{} {}:{}:{}".format(*recorded.groups()) if recorded else "",
        described_as=labels.described_as,
        steps=steps or None,
        labelled=not labels.why_not,
        names_kept_whole=unnamed or None,
    )


def _clocks(clocks: Clocks) -> manifest_clocks.Clocks:
    """The run's clock is that of one device; `devices` says how the others were laid onto it."""
    return manifest_clocks.Clocks(
        clock=ClockName.DEVICE,
        reference=clocks.reference,
        aligned=False,
        devices={
            device: DeviceClock(
                placed_by=found.by,
                offset_ns=found.offset_ns,
                uncertainty_ns=found.uncertainty_ns if found.uncertainty_ns >= 0 else None,
            )
            for device, found in clocks.placements.items()
        },
    )


def _devices(placed: PlacedRun) -> dict[str, Device]:
    devices = {ROOT_DEVICE: Device()}
    found = {call.device for call in placed.calls} | placed.clocks.placements.keys()
    for device in sorted(found, key=lambda name: (len(name), name)):
        devices[device] = Device(hardware="RBLN NPU", aligned=False)
    return devices


def _submodules(calls: Sequence[PlacedCall]) -> dict[str, Submodule]:
    submodules: dict[str, Submodule] = {}
    for submodule in dict.fromkeys(call.label.submodule for call in calls):
        own = [call for call in calls if call.label.submodule == submodule]
        cycles = [c.commands.cycles for c in own if c.commands and c.commands.cycles >= 0]
        submodules[submodule] = Submodule(
            device=Counter(call.device for call in own).most_common(1)[0][0],
            activate_profiler=True,
            comp_cycle=sum(cycles) if cycles else None,
            workloads=tuple(
                (call.shard.instance, call.shard.workload, call.index)
                for call in own
                if call.shard.is_part
            ),
        )
    return submodules
