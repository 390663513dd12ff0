"""Bundle, single trace or Parquet folder → `Run`.

    run = load("traces/")                    # newest bundle below the folder
    run = load("traces/20261121-093000-sd3") # one bundle
    run = load("any.pb")                     # any Perfetto trace: its slices are commands
    run = load("parquet_folder")             # what `write_parquet` wrote

What was executed but is not in the files is in `run.losses`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.errors import InputError
from profiler.events import CATEGORIES, ROLES, UNKNOWN, Call, Loss, Span
from profiler.table.columns import (
    CALLS,
    CATEGORY,
    COMMANDS,
    COUNTERS,
    FLOWS,
    ROLE,
    SPANS,
    TEXT,
    empty,
    schema,
)
from profiler.table.parquet import is_parquet_run, read_parquet
from profiler.table.run import Run
from profiler.trace.bundle import HOST_NAME, find_bundles
from profiler.trace.columns import TraceColumns, TrackRow
from profiler.trace.manifest import MANIFEST_NAME, Manifest, RunInfo, read_manifest
from profiler.trace.reader import read_trace

__all__ = ["load", "load_bundle", "load_trace"]


def load(path: str | os.PathLike[str]) -> Run:
    """Load one run. Raises InputError, in one sentence with the remedy, where that cannot be."""
    place = Path(path)
    if place.is_file():
        return load_trace(place)
    if is_parquet_run(place):
        return read_parquet(place)
    return load_bundle(find_bundles(place)[0])


def load_bundle(directory: Path) -> Run:
    """Load the bundle in `directory`: every call file once, then `host.pb`."""
    manifest = read_manifest(directory / MANIFEST_NAME)
    losses = list(manifest.info.losses)
    sizes = {entry.file: entry.bytes for entry in manifest.calls}
    sizes[HOST_NAME] = manifest.files.get(HOST_NAME, UNKNOWN)
    traces: list[TraceColumns] = []
    for name, size in sizes.items():
        trace, lost = _read_part(directory / name, size)
        traces.extend(trace)
        losses.extend(lost)
    once = {(loss.kind, loss.where, loss.unit): loss for loss in reversed(losses)}
    calls = _calls(manifest, traces)
    return _assemble(manifest.run_id, traces, manifest.info, calls, tuple(reversed(once.values())))


def _read_part(path: Path, size: int) -> tuple[list[TraceColumns], list[Loss]]:
    """One file of a bundle, and what it lacks against the `size` that the manifest knows."""
    name = path.name
    if not path.is_file():
        detail = f"{name} is named in the manifest but is not there: copy it back or run again"
        return [], [Loss("missing_file", name, 1, "files", detail)]
    try:
        trace = read_trace(path)
    except InputError as error:
        return [], [Loss("truncated_file", name, max(size, UNKNOWN), "bytes", str(error))]
    losses = list(trace.losses)
    found = path.stat().st_size
    if found < size and all(loss.kind != "truncated_file" for loss in losses):
        detail = f"ends at byte {found:,} of {size:,}: copy it again"
        losses.append(Loss("truncated_file", name, size - found, "bytes", detail))
    elif found > size != UNKNOWN:
        detail = f"has {found:,} bytes where the manifest knows {size:,}: not as it was recorded"
        losses.append(Loss("changed_file", name, found - size, "bytes", detail))
    return [trace], losses


def load_trace(path: Path) -> Run:
    """Load a single Perfetto trace of any producer; slices that are no call are commands."""
    trace = read_trace(path)
    info = RunInfo(producer="profile-sd3" if trace.calls or trace.spans else "foreign")
    calls = {call.index: call for call in reversed(trace.calls)}
    losses = list(trace.losses)
    if len(calls) < len(trace.calls):
        detail = "calls that stand more than once in the file: give the files of one run"
        twice = len(trace.calls) - len(calls)
        losses.append(Loss("dropped_events", path.name, twice, "calls", detail))
    return _assemble(path.name, [trace], info, list(calls.values()), losses)


def _calls(manifest: Manifest, traces: Sequence[TraceColumns]) -> list[Call]:
    """Calls as their files have them; those whose file is lost as the manifest has them."""
    found = {call.index: call for trace in traces for call in trace.calls}
    return [found.get(entry.call.index, entry.call) for entry in manifest.calls]


def _assemble(
    run_id: str,
    traces: Sequence[TraceColumns],
    info: RunInfo,
    calls: Sequence[Call],
    losses: Sequence[Loss],
) -> Run:
    calls_frame = _calls_frame(calls)
    commands = [_commands_frame(trace) for trace in traces]
    offsets = np.cumsum([0, *(len(frame) for frame in commands)])
    flows = [trace.flows + offsets[i] for i, trace in enumerate(traces) if len(trace.flows)]
    spans = [span for trace in traces for span in trace.spans]
    return Run(
        run_id=run_id,
        calls=calls_frame,
        commands=_with_call_columns(_concat(commands, COMMANDS), calls_frame),
        counters=_concat([_counters_frame(trace) for trace in traces], COUNTERS),
        flows=_flows_frame(flows),
        spans=_spans_frame(spans),
        info=info,
        losses=tuple(losses),
    )


def _concat(frames: Sequence[pl.DataFrame], columns: Any) -> pl.DataFrame:
    return pl.concat(frames) if frames else empty(columns)


def _with_call_columns(commands: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Give commands their call's stage and step; host work keeps its own."""
    of_call = calls.select("call", pl.col("stage").alias("_stage"), pl.col("step").alias("_step"))
    return (
        commands.join(of_call, on="call", how="left", maintain_order="left")
        .with_columns(
            stage=pl.coalesce("_stage", "stage"),
            step=pl.coalesce("_step", "step"),
        )
        .select(schema(COMMANDS).names())
    )


def _text(
    strings: Sequence[str], codes: npt.NDArray[np.int32], *, null_empty: bool = False
) -> pl.Series:
    """Categorical column from interned codes."""
    values: list[str | None] = [None if null_empty and not s else s for s in strings]
    return pl.Series(values or [None], dtype=pl.String).gather(codes).cast(TEXT)


def _closed(
    strings: Sequence[str],
    codes: npt.NDArray[np.int32],
    allowed: tuple[str, ...],
    other: str | None,
) -> pl.Series:
    """Enum column: what is not in the closed list becomes `other`."""
    values = [s if s in allowed else other for s in strings]
    return pl.Series(values or [other], dtype=pl.String).gather(codes).cast(pl.Enum(allowed))


def _known(values: npt.NDArray[np.int64]) -> pl.Series:
    """-1 (unknown) → null."""
    series = pl.Series(values)
    return series.set(series < 0, None)


def _commands_frame(trace: TraceColumns) -> pl.DataFrame:
    slices, strings = trace.slices, trace.strings
    device_of, name_of = _track_names(trace.tracks)
    frame = pl.DataFrame(
        {
            "call": slices.call,
            "stage": _text(strings, slices.stage, null_empty=True),
            "step": slices.step,
            "device": _text(device_of, slices.track, null_empty=True),
            "track": _text(name_of, slices.track),
            "category": _closed(strings, slices.category, CATEGORIES, "other").cast(CATEGORY),
            "layer": _text(strings, slices.layer),
            "command_index": slices.command_index,
            "op_type": _text(strings, slices.op_type, null_empty=True),
            "role": _closed(strings, slices.role, ROLES, None).cast(ROLE),
            "start_ns": slices.start_ns,
            "duration_ns": slices.duration_ns,
            "bytes_read": _known(slices.bytes_read),
            "bytes_written": _known(slices.bytes_written),
            "flops": _known(slices.flops),
            "shapes": _text(strings, slices.shapes, null_empty=True),
        }
    )
    if (slices.command_index < 0).any():
        frame = _number_commands(frame)
    return frame


def _number_commands(frame: pl.DataFrame) -> pl.DataFrame:
    """Number the commands of a trace that carries no command index: by start within a layer."""
    order = pl.col("start_ns").rank("ordinal").over("call", "layer").cast(pl.Int32) - 1
    known = pl.col("command_index") >= 0
    return frame.with_columns(
        command_index=pl.when(known).then("command_index").otherwise(order).cast(pl.Int32)
    )


def _track_names(tracks: Sequence[TrackRow]) -> tuple[list[str], list[str]]:
    """For each track the name of its device and its own name. The device is the process that the
    track belongs to, else the root above it."""
    roots = _roots(tracks)
    devices = [
        _process(track) or (tracks[root].name if root != own else "")
        for own, (track, root) in enumerate(zip(tracks, roots, strict=True))
    ]
    return devices or [""], [track.name for track in tracks] or [""]


def _process(track: TrackRow) -> str:
    return track.process or ("" if track.pid is None else f"process {track.pid}")


def _roots(tracks: Sequence[TrackRow]) -> list[int]:
    """The root above each track; of tracks whose parents go in a circle, one of the circle."""
    roots = [-1] * len(tracks)
    for own in range(len(tracks)):
        path, at = {own: None}, own
        while roots[at] < 0 and tracks[at].parent >= 0 and tracks[at].parent not in path:
            at = tracks[at].parent
            path[at] = None
        root = roots[at] if roots[at] >= 0 else at
        for track in path:
            roots[track] = root
    return roots


def _calls_frame(calls: Sequence[Call]) -> pl.DataFrame:
    rows = [
        (
            call.index,
            call.stage,
            call.submodule,
            call.branch or None,
            call.step,
            call.device,
            call.start_ns,
            call.duration_ns,
            call.ops_traced,
            "; ".join(f"{name}: {shape}" for name, shape in call.input_shapes.items()),
        )
        for call in calls
    ]
    return pl.DataFrame(rows, schema=schema(CALLS), orient="row").sort("call")


def _spans_frame(spans: Sequence[Span]) -> pl.DataFrame:
    rows = [
        (span.kind, span.name, span.stage or None, span.step, span.start_ns, span.duration_ns)
        for span in spans
    ]
    return pl.DataFrame(rows, schema=schema(SPANS), orient="row")


def _counters_frame(trace: TraceColumns) -> pl.DataFrame:
    counters = trace.counters
    device_of, name_of = _track_names(trace.tracks)
    units = [track.unit for track in trace.tracks]
    return pl.DataFrame(
        {
            "call": counters.call,
            "device": _text(device_of, counters.track, null_empty=True),
            "name": _text(name_of, counters.track),
            "unit": _text(units, counters.track, null_empty=True),
            "time_ns": counters.time_ns,
            "value": counters.value,
        }
    )


def _flows_frame(flows: Sequence[npt.NDArray[np.int64]]) -> pl.DataFrame:
    if not flows:
        return empty(FLOWS)
    rows = np.concatenate(flows)
    return pl.DataFrame({"source": rows[:, 0].copy(), "target": rows[:, 1].copy()})
