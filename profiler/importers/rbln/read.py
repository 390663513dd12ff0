"""The traces of RBLN's profiler → a bundle whose calls are labelled.

    import_trace(Path("traces"), Path("bundles"), options={"pipeline": "sd3", "steps": 28})

Each numbered file is one runtime call (`files`); which call of the pipeline it is comes from a
description of the pipeline (`pipeline`, `labels`) or from our own recording of the run
(`recorded`), what ran in it from tracks, names and arguments (`tracks`, `grammars.rbln`,
`commands`). The traces have no clock but the devices' own (`clocks`). A call's time is what its
commands span: nothing tells when its caller began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import ROOT_DEVICE, UNKNOWN, Call, Drop, DropKind, Track
from profiler.importers.rbln.clocks import Clocks, Extent, place
from profiler.importers.rbln.commands import RblnCommands, commands_of
from profiler.importers.rbln.files import Capture, Shard, find_capture
from profiler.importers.rbln.guess import guess
from profiler.importers.rbln.labels import Labels, label_shards, spans_of
from profiler.importers.rbln.manifest import (
    PlacedCall,
    PlacedRun,
    clock_drops,
    label_drops,
    run_info,
)
from profiler.importers.rbln.pipeline import ExpectedCall, describe
from profiler.importers.rbln.recorded import label_by_run
from profiler.importers.rbln.streams import divide
from profiler.importers.rbln.trace import RblnTrace, read_rbln
from profiler.importers.rbln.tracks import DEVICE_KIND, tracks_of
from profiler.notes import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder
from profiler.trace.manifest import RunInfo

__all__ = ["RblnRun", "read_run"]

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
