"""Bundle or single trace → `Run`.

    run = load_bundle(Path("traces/20261121-093000-sd3"))
    run = load_trace(Path("any.pb"))         # any Perfetto trace: its slices are commands

What was executed but is not in the files is in `run.drops`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl

from profiler.drop_reasons import DropReason
from profiler.errors import InputError, MissingPackageError
from profiler.events import NO_RANK, UNKNOWN, Call, Drop, DropKind, Span, rank_of_device
from profiler.notes import Note
from profiler.table.columns import (
    ARGS,
    CALLS,
    COUNTERS,
    FLOWS,
    SPANS,
    Column,
    empty,
    schema,
)
from profiler.table.command_parts import Part, commands_of, cores, with_calls
from profiler.table.frames import TraceFrames, trace_frames
from profiler.table.run import Run
from profiler.table.small_traces import together
from profiler.trace.bundle import HOST_NAME, MERGED_NAME
from profiler.trace.columns import TraceColumns, same
from profiler.trace.manifest import MANIFEST_NAME, Manifest, RunInfo, read_manifest
from profiler.trace.reader import read_trace

__all__ = ["load_bundle", "load_trace"]

_LONGEST_NS = 1 << 60  # of what a file may tell: sums of three stay in int64
_TOGETHER = 1 << 21  # bytes of small files that become one trace


def load_bundle(directory: Path) -> Run:
    """Load the bundle in `directory`: every call file once, then `host.pb`, on all cores."""
    manifest = read_manifest(directory / MANIFEST_NAME)
    found: dict[tuple[str, str, str], Drop] = {}  # beside those that the manifest tells of
    sizes = {entry.file: entry.bytes for entry in manifest.calls}
    sizes[HOST_NAME] = manifest.files.get(HOST_NAME, UNKNOWN)
    traces: list[TraceFrames] = []
    for part, lost in _read_parts(directory, list(_batches(sizes)), sizes):
        traces.extend(part)
        part.clear()
        for drop in lost:
            found.setdefault((drop.kind, drop.where, drop.unit), drop)
    for drop in _copy_drops(directory, manifest):
        found[drop.kind, drop.where, drop.unit] = drop
    told = manifest.info.drops
    for drop in told:
        found.pop((drop.kind, drop.where, drop.unit), None)
    calls = _calls(manifest, traces)
    return _assemble(manifest.run_id, traces, manifest.info, calls, (*told, *found.values()))


def _batches(sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """The names in their order, small files together."""
    batch: list[str] = []
    for name, size in sizes.items():
        if batch and sum(max(sizes[one], 0) for one in batch) + size > _TOGETHER:
            yield tuple(batch)
            batch = []
        batch.append(name)
    yield tuple(batch)


def _read_parts(
    directory: Path, batches: Sequence[tuple[str, ...]], sizes: Mapping[str, int]
) -> Iterable[tuple[list[TraceFrames], list[Drop]]]:
    """What `_read_batch` gives for each batch, in their order; the largest are begun first.

    Each thread leaves out of its traces what no frame has before it reads the next.
    """

    def bytes_of(batch: tuple[str, ...]) -> int:
        return sum(sizes[name] for name in batch)

    pool = ThreadPoolExecutor(max(1, min(cores(), len(batches))))
    try:
        parts = {
            batch: pool.submit(_read_batch, directory, {name: sizes[name] for name in batch})
            for batch in sorted(batches, key=bytes_of, reverse=True)
        }
        return [parts[batch].result() for batch in batches]
    finally:
        pool.shutdown(cancel_futures=True)


def _read_batch(directory: Path, sizes: Mapping[str, int]) -> tuple[list[TraceFrames], list[Drop]]:
    """The files of a batch as frames, and what they lack."""
    parts = [_read_part(directory / name, size) for name, size in sizes.items()]
    lost = [drop for _, drops in parts for drop in drops]
    traces = together([trace for trace, _ in parts if trace is not None])
    parts.clear()
    return [trace_frames(traces.pop(0)) for _ in range(len(traces))], lost  # nobody keeps a trace


def _read_part(path: Path, size: int) -> tuple[TraceColumns | None, list[Drop]]:
    """One file of a bundle, and what it lacks against the `size` that the manifest knows."""
    name = path.name
    if not path.is_file():
        detail = Note.of(DropReason.NOT_THERE, file=name)
        return None, [Drop(DropKind.MISSING_FILE, name, 1, "files", detail)]
    try:
        trace = read_trace(path)
    except MissingPackageError:
        raise
    except InputError as error:
        detail = Note.of(DropReason.ERROR, error=str(error))
        return None, [Drop(DropKind.TRUNCATED_FILE, name, max(size, UNKNOWN), "bytes", detail)]
    drops = list(trace.drops)
    found = path.stat().st_size
    if found < size and all(drop.kind != DropKind.TRUNCATED_FILE for drop in drops):
        detail = Note.of(DropReason.CUT_SHORT, at=found, size=size)
        drops.append(Drop(DropKind.TRUNCATED_FILE, name, size - found, "bytes", detail))
    elif found > size != UNKNOWN:
        detail = Note.of(DropReason.LARGER_THAN_RECORDED, size=found, recorded=size)
        drops.append(Drop(DropKind.CHANGED_FILE, name, found - size, "bytes", detail))
    return trace, drops


def _copy_drops(directory: Path, manifest: Manifest) -> Iterator[Drop]:
    """What `merged.pb`, of which nothing is read, differs by from its size in the manifest; nothing
    where it was taken away."""
    recorded, merged = manifest.files.get(MERGED_NAME), directory / MERGED_NAME
    size = merged.stat().st_size if merged.is_file() else recorded
    if recorded is not None and size is not None and size != recorded:
        detail = Note.of(DropReason.COPY_DIFFERS, size=size, recorded=recorded)
        yield Drop(DropKind.DAMAGED_COPY, MERGED_NAME, abs(recorded - size), "bytes", detail)


def load_trace(path: Path) -> Run:
    """Load a single Perfetto trace of any producer; slices that are no call are commands."""
    trace = trace_frames(read_trace(path))
    info = RunInfo(producer="profile-sd3" if trace.calls or trace.spans else "foreign")
    calls = {call.index: call for call in reversed(trace.calls)}
    drops = list(trace.drops)
    if len(calls) < len(trace.calls):
        detail = Note.of(DropReason.CALLS_TWICE)
        twice = len(trace.calls) - len(calls)
        drops.append(Drop(DropKind.DROPPED_EVENTS, path.name, twice, "calls", detail))
    return _assemble(path.name, [trace], info, list(calls.values()), drops)


def _calls(manifest: Manifest, traces: Sequence[TraceFrames]) -> list[Call]:
    """Calls as their files have them; those whose file is lost as the manifest has them."""
    found = {call.index: call for trace in traces for call in trace.calls}
    return [found.get(entry.call.index, entry.call) for entry in manifest.calls]


def _assemble(
    run_id: str,
    traces: list[TraceFrames],
    info: RunInfo,
    calls: Sequence[Call],
    drops: Sequence[Drop],
) -> Run:
    """The run of these traces, which are given up: their commands become those of the run a column
    at a time. `alone` is the rank of all, where the run is of one rank of a job."""
    alone = info.job.ranks[0].rank if info.job is not None and len(info.job.ranks) == 1 else NO_RANK
    calls_frame = _calls_frame(calls, alone)
    offsets = np.cumsum([0, *(trace.rows for trace in traces)]).tolist()
    starts = list(zip(traces, offsets[:-1], strict=True))
    offset = (trace.flows.select(pl.all() + first) for trace, first in starts if len(trace.flows))
    args = [
        trace.args.with_columns(pl.col("command") + first)
        for trace, first in starts
        if trace.args is not None
    ]
    counters = _joined((trace.counters for trace in traces), COUNTERS)
    flows = _joined(offset, FLOWS)
    spans = _spans_frame([span for trace in traces for span in trace.spans])
    commands = [trace.commands for trace in traces]
    for parts in commands:
        if alone != NO_RANK:
            parts["rank"] = Part(same(np.int32(alone), len(parts["rank"].values)))
        with_calls(parts, calls_frame)
    starts.clear()
    traces.clear()
    return Run(
        run_id=run_id,
        calls=calls_frame,
        commands=commands_of(commands),
        counters=counters,
        flows=flows,
        spans=spans,
        args=pl.concat(args) if args else empty(ARGS).lazy(),
        info=info,
        drops=tuple(drops),
    )


def _joined(frames: Iterable[pl.DataFrame], columns: Sequence[Column]) -> pl.DataFrame:
    """The rows of all frames, in their pieces."""
    nothing = empty(columns)
    filled = [frame[nothing.columns] for frame in frames if len(frame)]
    return pl.concat(filled or [nothing], rechunk=False)


def _calls_frame(calls: Sequence[Call], alone: int) -> pl.DataFrame:
    rows = [
        (
            call.index,
            call.pipeline,
            call.stage,
            call.submodule,
            call.branch or None,
            call.step,
            call.iteration,
            max(rank_of_device(call.device), alone),
            call.device,
            call.start_ns,
            call.duration_ns,
            *_on_device(call),
            call.ops_traced,
            "; ".join(f"{name}: {shape}" for name, shape in call.input_shapes.items()),
        )
        for call in calls
    ]
    return pl.DataFrame(rows, schema=schema(CALLS), orient="row").sort("call")


def _on_device(call: Call) -> tuple[int | None, int | None]:
    """`device_lag_ns` and `device_duration_ns`; both or none."""
    noted = (call.device_lag_ns, call.device_duration_ns)
    sound = all(0 <= each < _LONGEST_NS for each in noted) and abs(call.start_ns) < 1 << 62
    return noted if sound else (None, None)


def _spans_frame(spans: Sequence[Span]) -> pl.DataFrame:
    rows = [
        (
            span.kind,
            span.pipeline,
            span.name,
            span.stage or None,
            span.step,
            span.start_ns,
            span.duration_ns,
        )
        for span in spans
    ]
    return pl.DataFrame(rows, schema=schema(SPANS), orient="row")
