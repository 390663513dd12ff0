"""Import traces of RBLN's profiler: labelled calls and device commands.

    import_trace(Path("traces"), Path("bundles"), options={"pipeline": "sd3", "steps": 28})

Each numbered file is one runtime call. The traces have only device clocks, and a call lasts as
long as its commands, because the start of the host call is not recorded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from profiler.errors import InputError
from profiler.importers.rbln import Capture, Shard, find_capture
from profiler.importers.rbln.labels import (
    ExpectedCall,
    Labels,
    describe,
    guess,
    label_by_run,
    label_shards,
    spans_of,
)
from profiler.importers.rbln.trace import (
    DEVICE_KIND,
    Clocks,
    Extent,
    Placement,
    RblnCommands,
    RblnTrace,
    commands_of,
    divide,
    place,
    read_rbln,
    tracks_of,
)
from profiler.text import Note, Value
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder
from profiler.trace.events import ROOT_DEVICE, UNKNOWN, Call, Drop, DropKind, DropReason, Track
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    ClockName,
    Device,
    DeviceClock,
    Overhead,
    PlacedBy,
    Recording,
    Submodule,
    UnknownCost,
    Warmup,
    WhyUnknown,
)
from profiler.trace.manifest_fields import Clocks as RecordedClocks

# --- What the manifest of an imported RBLN run says: devices, clocks, submodules and drops.


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


def _clocks(clocks: Clocks) -> RecordedClocks:
    """The run's clock is that of one device; `devices` says how the others were laid onto it."""
    return RecordedClocks(
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


# --- The traces of RBLN's profiler → a bundle whose calls are labelled.
#
#     import_trace(Path("traces"), Path("bundles"), options={"pipeline": "sd3", "steps": 28})
#
# Each numbered file is one runtime call (`files`); which call of the pipeline it is comes from a
# description of the pipeline (`pipeline`, `labels`) or from our own recording of the run
# (`recorded`), what ran in it from tracks, names and arguments (`tracks`, `grammars.rbln`,
# `commands`). The traces have no clock but the devices' own (`clocks`). A call's time is what its
# commands span: nothing tells when its caller began.


_LAST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class RblnRun:
    """The calls of a capture on one timeline, with what is known to be missing."""

    capture: Capture
    labels: Labels
    calls: PlacedRun
    drops: tuple[Drop, ...]

    @property
    def name(self) -> str:
        """What the files' names have in common."""
        return self.capture.stem

    @property
    def capabilities(self) -> set[str]:
        """The timeline, and what its commands' arguments told."""
        commands = [call.commands for call in self.calls.calls if call.commands is not None]
        known = {
            "bytes": any((found.columns.bytes_read >= 0).any() for found in commands),
            "cycles": any(found.cycles >= 0 for found in commands),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and the spans around them."""
        capture, labels, calls = self.capture, self.labels, self.calls
        drops = [*self.drops]
        entries = [_write(bundle, call, drops) for call in calls.calls]
        drops += label_drops(capture, labels, calls.calls)
        drops += clock_drops(calls.clocks)
        title = capture.stem if labels.why_not or not labels.pipeline else labels.pipeline
        spans = spans_of(title, labels.calls, [(call.start_ns, call.end_ns) for call in entries])
        bundle.write_host(spans, CommandBuilder().build(), ROOT_DEVICE)
        return run_info(capture, labels, calls, tuple(drops))


def read_run(
    path: Path,
    *,
    pipeline: str | None = None,
    steps: int | None = None,
    skip: int | None = None,
    run: Path | None = None,
) -> RblnRun:
    """Read the run that RBLN's profiler recorded.

    `path` is the folder of numbered files, or one file; `pipeline` the name of a built-in
    description or a `.yaml` file; `steps` the denoising steps; `skip` how many leading calls are
    warm-up. `run`, instead of `pipeline` and `steps`, is the bundle of the same run as we recorded
    it. Where the number of files does not fit, calls stay unlabelled and the bundle's drops say
    why. Raises InputError where nothing can be read.
    """
    if run is not None and (pipeline is not None or steps is not None):
        raise InputError("--run knows the calls: leave out --pipeline and --steps")
    description = describe(pipeline) if pipeline is not None else None
    capture, files = _read(find_capture(path))
    if run is not None:
        labels = label_by_run(capture, run, skip or 0)
    elif description is None and capture.in_order:
        labels = _guessed(capture, files, steps, skip)
    else:
        labels = label_shards(capture, description, steps, skip)
    traces = [files[shard][0] for shard in labels.shards]
    if all(trace is None for trace in traces):
        raise InputError(f"no file in {capture.source} holds a command: record it again")
    drops = [drop for shard in labels.shards for drop in files[shard][1]]
    if capture.aggregate is not None:
        drops += _aggregate_drops(capture.aggregate, [trace for trace, _ in files.values()])
    placed = _placed(labels, traces, in_order=capture.in_order)
    return RblnRun(capture, labels, placed, tuple(drops))


_Files = dict[Shard, tuple[RblnTrace | None, Sequence[Drop]]]


def _read(capture: Capture) -> tuple[Capture, _Files]:
    """What each shard holds; the capture with a shard for each call where its one file holds
    several."""
    alone = len(capture.shards) == 1
    files = {shard: _read_shard(shard, alone=alone) for shard in capture.shards}
    trace = files[capture.shards[0]][0]
    streams = divide(trace) if alone and trace is not None else None
    if streams is None:
        return capture, files
    path = capture.shards[0].path
    parts: _Files = {}
    for position, ((instance, workload), part) in enumerate(
        zip(streams.keys, streams.traces, strict=True)
    ):
        number = workload if streams.numbered and workload >= 0 else position
        parts[Shard(path, number, True, instance, workload)] = part, part.drops
    return structs.replace(capture, shards=tuple(parts), in_order=streams.in_order), parts


def _guessed(capture: Capture, files: _Files, steps: int | None, skip: int | None) -> Labels:
    """The labels of the built-in pipeline that fits the files, where one does."""
    found = guess([files[shard][0] for shard in capture.shards[skip or 0 :]], steps)
    if found is None:
        return label_shards(capture, None, steps, skip)
    labels = label_shards(capture, found.description, found.steps, skip)
    return replace(labels, guess=None if labels.why_not else found)


def _read_shard(shard: Shard, *, alone: bool) -> tuple[RblnTrace | None, Sequence[Drop]]:
    """A shard, or why there is none: raised where it is `alone`, else as a drop."""
    try:
        trace = read_rbln(shard.path)
    except InputError as error:
        if alone:
            raise
        detail = Note.of(DropReason.ERROR, error=str(error))
        return None, [Drop(DropKind.UNTRACED_CALL, shard.path.name, 1, "calls", detail)]
    if len(trace):
        return trace, trace.drops
    detail = Note.of(DropReason.NO_COMMAND)
    drop = Drop(DropKind.UNTRACED_CALL, shard.path.name, 1, "calls", detail)
    return None, [*trace.drops, drop]


def _aggregate_drops(path: Path, shards: Sequence[RblnTrace | None]) -> Iterator[Drop]:
    """Whether the aggregate holds what its shards hold."""
    there = [trace for trace in shards if trace is not None]
    try:
        aggregate = read_rbln(path)
    except InputError as error:
        detail = Note.of(DropReason.ERROR, error=str(error))
        yield Drop(DropKind.AGGREGATE_MISMATCH, path.name, UNKNOWN, "slices", detail)
        return
    for unit, whole, parts in (
        ("slices", len(aggregate), sum(map(len, there))),
        ("flows", len(aggregate.flows), sum(len(trace.flows) for trace in there)),
    ):
        if whole != parts:
            counts = {"whole": whole, "parts": parts, "files": len(shards)}
            detail = Note.of(DropReason.AGGREGATE_DIFFERS, what=unit, **counts)
            yield Drop(DropKind.AGGREGATE_MISMATCH, path.name, abs(whole - parts), unit, detail)


def _placed(labels: Labels, traces: Sequence[RblnTrace | None], *, in_order: bool) -> PlacedRun:
    """The calls on one timeline; one that was not read takes no time behind the one before it."""
    rows = [trace.rows if trace is not None else () for trace in traces]
    tracks = tracks_of(rows, [call.device for call in labels.calls])
    extents = [_extents(*pair) for pair in zip(traces, tracks, strict=True)]
    clocks = place(extents, in_order=in_order)
    begin, end = _span(extents, clocks)
    if end >= _LAST_NS:
        raise InputError(
            f"the times in {labels.shards[0].path.parent} are beyond any clock: record again"
        )
    calls: list[PlacedCall] = []
    for index, (shard, label, trace) in enumerate(
        zip(labels.shards, labels.calls, traces, strict=True)
    ):
        commands = None
        if trace is not None:
            commands = commands_of(trace, tracks[index], clocks.offsets[index])
        begin = calls[-1].end_ns if calls else begin
        calls.append(_call(index, shard, label, commands, begin))
    return PlacedRun(tuple(calls), clocks)


def _span(extents: Sequence[Mapping[str, Extent]], clocks: Clocks) -> Extent:
    """First start and last end of all calls on the run's clock."""
    moved = [
        (extent[0] + offsets[device], extent[1] + offsets[device])
        for call, offsets in zip(extents, clocks.offsets, strict=True)
        for device, extent in call.items()
    ]
    return min(start for start, _ in moved), max(end for _, end in moved)


def _extents(trace: RblnTrace | None, tracks: Sequence[Track]) -> dict[str, Extent]:
    """First start and last end on each device, in order of the rows."""
    if trace is None:
        return {}
    devices = list(dict.fromkeys(track.device for track in tracks))
    device = np.array([devices.index(track.device) for track in tracks])[trace.track]
    end_ns = trace.start_ns + np.maximum(trace.duration_ns, 0)
    return {
        name: (int(trace.start_ns[device == code].min()), int(end_ns[device == code].max()))
        for code, name in enumerate(devices)
        if (device == code).any()
    }


def _call(
    index: int,
    shard: Shard,
    label: ExpectedCall,
    commands: RblnCommands | None,
    begin_ns: int,
) -> PlacedCall:
    if commands is None:
        device = label.device or f"{DEVICE_KIND}:0"
        return PlacedCall(index, shard, label, device, begin_ns, begin_ns, None, frozenset())
    columns = commands.columns
    layers = frozenset(columns.strings[code] for code in np.unique(columns.layer).tolist())
    start, end = int(columns.start_ns.min()), int(columns.end_ns.max())
    return PlacedCall(index, shard, label, _device_of(commands), start, end, commands, layers)


def _device_of(commands: RblnCommands) -> str:
    """The device with most of the commands, host work apart; of equals the first."""
    columns = commands.columns
    counts = np.bincount(columns.track, minlength=len(columns.tracks)).tolist()
    by_device: Counter[str] = Counter()
    for track, count in zip(columns.tracks, counts, strict=True):
        by_device[track.device] += 0 if track.category == "host" else count
    return min(by_device, key=lambda device: (-by_device[device], len(device), device))


def _write(bundle: BundleWriter, placed: PlacedCall, drops: list[Drop]) -> Call:
    label, commands = placed.label, placed.commands
    call = Call(
        index=placed.index,
        submodule=label.submodule,
        stage=label.stage,
        branch=label.branch,
        step=label.step,
        device=placed.device,
        start_ns=placed.start_ns,
        duration_ns=placed.end_ns - placed.start_ns,
        ops_traced=commands is not None,
    )
    if commands is None:
        bundle.write_call(call, CommandBuilder().build())
        return call
    bundle.write_call(call, commands.columns, commands.counters)
    if commands.malformed:
        detail = Note.of(DropReason.ARGUMENTS_UNKNOWN)
        where, count = placed.shard.path.name, commands.malformed
        drops.append(Drop(DropKind.DROPPED_EVENTS, where, count, "arguments", detail))
    return call
