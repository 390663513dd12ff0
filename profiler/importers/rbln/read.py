"""Import traces of RBLN's profiler: labelled calls and device commands.

    import_trace(Path("traces"), Path("bundles"), options={"pipeline": "sd3", "steps": 28})

Each numbered file is one runtime call. The traces have only device clocks, and a call lasts as
long as its commands, because the start of the host call is not recorded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import structs

from profiler.errors import InputError
from profiler.importers.foreign_run import ForeignRunBuilder
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
    RblnCommands,
    RblnTrace,
    commands_of,
    divide,
    place,
    read_rbln,
    tracks_of,
)
from profiler.text import Note, Value
from profiler.trace.events import UNKNOWN, Drop, DropKind, DropReason, Track
from profiler.trace.manifest_fields import ClockName, Device, PlacedBy, Recording, Submodule, Warmup
from profiler.trace.manifest_fields import Clocks as RecordedClocks

# --- What the manifest of an imported RBLN run says: devices, clocks, submodules and drops.


_RECORDED = re.compile(r"rbln_(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)")


def _add_label_drops(run: ForeignRunBuilder, capture: Capture, labels: Labels) -> None:
    """Report why calls are not labelled, that labels are a guess, or which labels the layers of
    calls contradict."""
    where, count, kind = (
        capture.source.name or capture.stem,
        len(run.calls),
        DropKind.DOUBTFUL_LABEL,
    )
    if labels.why_not:
        run.drops.append(Drop(DropKind.UNLABELLED_CALL, where, count, "calls", labels.why_not))
        return
    if labels.guess is not None:
        guess = labels.guess
        values: dict[str, Value] = {"pipeline": guess.description.name, "steps": guess.steps}
        detail = Note.of(DropReason.PIPELINE_GUESSED, **values)
        if guess.others:
            detail = Note.of(DropReason.PIPELINE_GUESSED_OF, **values, others=guess.others)
        run.drops.append(Drop(kind, where, count, "calls", detail))
    first: dict[str, set[str]] = {}
    doubtful: Counter[str] = Counter()
    for one in run.calls:
        columns, submodule = one.commands, one.call.submodule
        layers = {columns.strings[code] for code in np.unique(columns.layer).tolist()}
        if layers:
            known = first.setdefault(submodule, layers)
            doubtful[submodule] += 2 * len(known & layers) < len(known | layers)
    for submodule, count in doubtful.items():
        run.drop(kind, count, "calls", DropReason.LAYERS_DIFFER, submodule)


def _add_clock_drops(run: ForeignRunBuilder, clocks: Clocks) -> None:
    """Report devices whose times cannot be compared with the others'."""
    kind, unit, reference = DropKind.UNALIGNED_CLOCK, "clocks", clocks.reference
    for device, clock in clocks.devices.items():
        within = clock.uncertainty_ns
        if clock.placed_by == PlacedBy.END_TO_END:
            run.drop(kind, 1, unit, DropReason.CLOCK_RESTARTS, device, device=device)
            continue
        if device == reference:
            continue
        if clock.placed_by == PlacedBy.SHARED_CALL:
            how = Note.of(DropReason.BY_SHARED_CALL)
        elif clock.placed_by == PlacedBy.RUN_START:
            how = Note.of(DropReason.AT_RUN_START)
        elif within is None:
            how = Note.of(DropReason.BY_ORDER)
        else:
            how = Note.of(DropReason.BY_ORDER_WITHIN, uncertainty_ns=within)
        values = {"device": device, "reference": reference}
        detail = Note.of(DropReason.CLOCK_UNALIGNED, **values, how=how)
        run.drops.append(Drop(kind, device, 1, unit, detail))


# --- The traces of RBLN's profiler → a bundle whose calls are labelled.
#
# Each numbered file is one runtime call. Which call of the pipeline it is, `labels` finds by a
# description of the pipeline or by our own recording of the run; what ran in it, and the devices'
# clocks, are from `trace`. A call's time is what its commands span: nothing tells when its caller
# began.


_LAST_NS = 1 << 62


def read_run(
    path: Path,
    *,
    pipeline: str | None = None,
    steps: int | None = None,
    skip: int | None = None,
    run: Path | None = None,
) -> ForeignRunBuilder:
    """Read a run recorded by RBLN's profiler.

    `path` is the folder of numbered files, or one file; `pipeline` the name of a built-in
    description or a `.yaml` file; `steps` the denoising steps; `skip` the number of warm-up calls
    at the start. `run`, instead of `pipeline` and `steps`, is the bundle of the same run as we
    recorded it. If the number of files does not fit, calls stay unlabelled and the bundle's drops
    say why. Raises InputError if nothing can be read.
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
    return _build_run(capture, labels, traces, drops)


_Files = dict[Shard, tuple[RblnTrace | None, Sequence[Drop]]]


def _read(capture: Capture) -> tuple[Capture, _Files]:
    """Read each shard; if the only file has several calls, the capture gets a shard per call."""
    alone = len(capture.shards) == 1
    files = {shard: _read_shard(shard, alone=alone) for shard in capture.shards}
    trace = files[capture.shards[0]][0]
    streams = divide(trace) if alone and trace is not None else None
    if streams is None:
        return capture, files
    path = capture.shards[0].path
    parts: _Files = {}
    for position, (key, part) in enumerate(zip(streams.keys, streams.traces, strict=True)):
        number = key[1] if streams.numbered and key[1] >= 0 else position
        parts[Shard(path, number, True, *key)] = part, part.drops
    return structs.replace(capture, shards=tuple(parts), in_order=streams.in_order), parts


def _guessed(capture: Capture, files: _Files, steps: int | None, skip: int | None) -> Labels:
    """The labels of the built-in pipeline that fits the files, if one does."""
    found = guess([files[shard][0] for shard in capture.shards[skip or 0 :]], steps)
    if found is None:
        return label_shards(capture, None, steps, skip)
    labels = label_shards(capture, found.description, found.steps, skip)
    return replace(labels, guess=None if labels.why_not else found)


def _read_shard(shard: Shard, *, alone: bool) -> tuple[RblnTrace | None, Sequence[Drop]]:
    """A shard's content, or None and the drops. If it is the only one (`alone`), errors are
    raised."""
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
    """Yield a drop if the aggregate differs from its shards."""
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


def _build_run(
    capture: Capture, labels: Labels, traces: Sequence[RblnTrace | None], drops: Sequence[Drop]
) -> ForeignRunBuilder:
    """Return the calls on one timeline; a call that could not be read has no duration and follows
    the one before."""
    rows = [trace.rows if trace is not None else () for trace in traces]
    tracks = tracks_of(rows, [call.device for call in labels.calls])
    extents = [_extents(*pair) for pair in zip(traces, tracks, strict=True)]
    clocks = place(extents, in_order=capture.in_order)
    begin, end = _span(extents, clocks)
    if end >= _LAST_NS:
        raise InputError(
            f"the times in {labels.shards[0].path.parent} are beyond any clock: record again"
        )
    run = ForeignRunBuilder("rbln", capture.stem, capture.source, all_traced=True)
    run.files = len({shard.path for shard in labels.shards})
    run.pipeline = "" if labels.why_not else labels.pipeline
    run.drops += drops
    read = [
        commands_of(trace, track, offsets) if trace is not None else None
        for trace, track, offsets in zip(traces, tracks, clocks.offsets, strict=True)
    ]
    for shard, label, commands in zip(labels.shards, labels.calls, read, strict=True):
        _add_call(run, shard, label, commands, begin)
        begin = run.calls[-1].call.end_ns
    _add_label_drops(run, capture, labels)
    _add_clock_drops(run, clocks)
    calls, known = [one.call for one in run.calls], [one for one in read if one is not None]
    title = capture.stem if labels.why_not or not labels.pipeline else labels.pipeline
    run.spans += spans_of(title, labels.calls, [(call.start_ns, call.end_ns) for call in calls])
    devices = {call.device for call in calls} | clocks.devices.keys()
    for device in sorted(devices, key=lambda name: (len(name), name)):
        run.devices[device] = Device(hardware="RBLN NPU", aligned=False)
    run.capability(
        timeline=True,
        bytes=any((one.columns.bytes_read >= 0).any() for one in known),
        cycles=any(one.cycles >= 0 for one in known),
    )
    run.submodules = _submodules(labels, read)
    run.clocks = RecordedClocks(
        clock=ClockName.DEVICE, reference=clocks.reference, aligned=False, devices=clocks.devices
    )
    run.warmup = Warmup(calls=len(labels.skipped)) if labels.skipped else None
    recorded = _RECORDED.match(capture.stem)
    steps = 1 + max(call.step for call in labels.calls) if labels.described_as else 0
    run.recording = Recording(
        recorded="{}-{}-{} {}:{}:{}".format(*recorded.groups()) if recorded else "",
        described_as=labels.described_as,
        steps=steps or None,
        labelled=not labels.why_not,
        names_kept_whole=sum(one.unnamed for one in known) or None,
    )
    return run


def _submodules(labels: Labels, read: Sequence[RblnCommands | None]) -> dict[str, Submodule]:
    """Return the cycles and the workloads of each submodule."""
    cycles: dict[str, int] = {}
    workloads: dict[str, list[tuple[int, int, int]]] = {}
    for index, (shard, label, one) in enumerate(
        zip(labels.shards, labels.calls, read, strict=True)
    ):
        workload = [(shard.instance, shard.workload, index)] if shard.is_part else []
        workloads.setdefault(label.submodule, []).extend(workload)
        if one is not None and one.cycles >= 0:
            cycles[label.submodule] = cycles.get(label.submodule, 0) + one.cycles
    return {
        name: Submodule(comp_cycle=cycles.get(name), workloads=tuple(found))
        for name, found in workloads.items()
    }


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


def _add_call(
    run: ForeignRunBuilder,
    shard: Shard,
    label: ExpectedCall,
    commands: RblnCommands | None,
    begin: int,
) -> None:
    where, start, end, device = shard.path.name, begin, begin, label.device or f"{DEVICE_KIND}:0"
    if commands is not None:
        columns, device = commands.columns, _device_of(commands)
        start, end = int(columns.start_ns.min()), int(columns.end_ns.max())
        lost, reason = commands.malformed, DropReason.ARGUMENTS_UNKNOWN
        run.drop(DropKind.DROPPED_EVENTS, lost, "arguments", reason, where)
    run.call(
        *(label.submodule, start, end - start, commands.columns if commands else None),
        device=device,
        traced=commands is not None,
        counters=commands.counters if commands else (),
        stage=label.stage,
        branch=label.branch,
        step=label.step,
    )


def _device_of(commands: RblnCommands) -> str:
    """The device with most commands, not counting host work; ties go to the first."""
    columns = commands.columns
    counts = np.bincount(columns.track, minlength=len(columns.tracks)).tolist()
    by_device: Counter[str] = Counter()
    for track, count in zip(columns.tracks, counts, strict=True):
        by_device[track.device] += 0 if track.category == "host" else count
    return min(by_device, key=lambda device: (-by_device[device], len(device), device))
