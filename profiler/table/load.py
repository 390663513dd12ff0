"""Bundle, single trace or Parquet folder → `Run`.

    run = load("traces/")                    # newest bundle below the folder
    run = load("traces/20261121-093000-sd3") # one bundle
    run = load("any.pb")                     # any Perfetto trace: its slices are commands
    run = load("parquet_folder")             # what `write_parquet` wrote
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.events import CATEGORIES, NO_CALL, ROLES, Call, Loss, Span
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
from profiler.trace.manifest import MANIFEST_NAME, Manifest, RunInfo, read_manifest
from profiler.trace.reader import TraceColumns, TrackRow, read_trace

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
    traces: list[TraceColumns] = []
    for name in [entry.file for entry in manifest.calls] + [HOST_NAME]:
        path = directory / name
        if not path.is_file():
            detail = f"{name} is named in the manifest but is not there: copy it back or run again"
            losses.append(Loss("missing_file", name, 1, "files", detail))
            continue
        trace = read_trace(path)
        traces.append(trace)
        losses.extend(trace.losses)
    return _assemble(manifest.run_id, traces, manifest.info, _calls(manifest, traces), losses)


def load_trace(path: Path) -> Run:
    """Load a single Perfetto trace of any producer; slices that are no call are commands."""
    trace = read_trace(path)
    info = RunInfo(producer="profile-sd3" if trace.calls or trace.spans else "foreign")
    return _assemble(path.name, [trace], info, trace.calls, trace.losses)


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
    strings: Sequence[str], codes: npt.NDArray[np.int32], allowed: tuple[str, ...], other: str | None
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
    """For each track the name of its device, the root above it, and its own name."""
    devices = []
    for track in tracks:
        root, seen = track, 0
        while root.parent >= 0 and seen < len(tracks):
            root, seen = tracks[root.parent], seen + 1
        devices.append(root.name if root is not track else "")
    return devices or [""], [track.name for track in tracks] or [""]


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
    call = trace.calls[0].index if len(trace.calls) == 1 else NO_CALL
    return pl.DataFrame(
        {
            "call": np.full(len(counters.time_ns), call, dtype=np.int32),
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


