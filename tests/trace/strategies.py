"""Hypothesis strategies: anything that a producer may hand to the writer, and hostile packets."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from profiler.trace import (
    NO_PIPELINE,
    NO_STEP,
    UNKNOWN,
    Call,
    CommandBuilder,
    CommandColumns,
    Counter,
    Span,
    Track,
    schema,
)

__all__ = ["calls", "command_columns", "counters", "hostile_traces", "spans"]

_NAMES = st.text(min_size=1, max_size=6)
_TEXTS = st.text(max_size=6)
# Near each other: ties and overlaps; some in whole microseconds.
_STARTS = st.integers(0, 40) | st.integers(0, 40_000) | st.integers(0, 1 << 62)
_DURATIONS = st.integers(0, 20) | st.sampled_from([0, 1000, 2000]) | st.integers(0, 1 << 60)
_KNOWN = st.integers(UNKNOWN, (1 << 63) - 1)
_STEPS = st.integers(NO_STEP, (1 << 31) - 1)
_PIPELINES = st.just(NO_PIPELINE) | st.integers(0, 300) | st.integers(0, (1 << 31) - 1)
_TRACKS = st.builds(Track, st.sampled_from(["cpu:0", "x"]), _NAMES, st.sampled_from(["dma", ""]))


@st.composite
def command_columns(draw: st.DrawFn) -> CommandColumns:
    """Commands on few tracks, so that they overlap; flows between any two of them."""
    builder = CommandBuilder()
    tracks = draw(st.lists(_TRACKS, min_size=1, max_size=3))
    for _ in range(draw(st.integers(0, 8))):
        builder.add(
            draw(st.sampled_from(tracks)),
            draw(_TEXTS),
            draw(_TEXTS),
            draw(_STARTS),
            draw(_DURATIONS | st.just(UNKNOWN)),
            role=draw(_TEXTS),
            shapes=draw(_TEXTS),
            stage=draw(_TEXTS),
            kernel=draw(_TEXTS),
            module=draw(_TEXTS),
            name=draw(_TEXTS),
            step=draw(_STEPS),
            pipeline=draw(_PIPELINES),
            bytes_read=draw(_KNOWN),
            bytes_written=draw(_KNOWN),
            flops=draw(_KNOWN),
        )
    if len(builder):
        rows = st.integers(0, len(builder) - 1)
        for source, target in draw(st.lists(st.tuples(rows, rows), max_size=4)):
            builder.link(source, target)
    return builder.build()


@st.composite
def counters(draw: st.DrawFn) -> Counter:
    """Samples in any order, with ties."""
    samples = draw(st.lists(st.tuples(_STARTS, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=5))
    times = np.array([time for time, _ in samples], dtype=np.int64)
    values = np.array([value for _, value in samples], dtype=np.int64)
    unit = draw(st.sampled_from(["bytes", "count"]))
    return Counter(draw(_NAMES), draw(_NAMES), unit, times, values)


@st.composite
def calls(draw: st.DrawFn, index: st.SearchStrategy[int] | None = None) -> Call:
    """Calls with any field at all."""
    noted = draw(st.just((UNKNOWN, UNKNOWN)) | st.tuples(_DURATIONS, _DURATIONS))
    return Call(
        index=draw(st.integers(0, (1 << 31) - 1) if index is None else index),
        submodule=draw(_TEXTS),
        stage=draw(_TEXTS),
        branch=draw(_TEXTS),
        step=draw(_STEPS),
        device=draw(_NAMES),
        start_ns=draw(_STARTS),
        duration_ns=draw(_DURATIONS),
        ops_traced=draw(st.booleans()),
        input_shapes=draw(st.dictionaries(_TEXTS, _TEXTS, max_size=3)),
        pipeline=draw(_PIPELINES),
        iteration=draw(_PIPELINES),
        device_lag_ns=noted[0],
        device_duration_ns=noted[1],
    )


def spans() -> st.SearchStrategy[list[Span]]:
    """Spans that nest or overlap in any way."""
    kinds = st.sampled_from(["pipeline", "stage", "step"])
    span = st.builds(Span, kinds, _TEXTS, _TEXTS, _STEPS, _STARTS, _DURATIONS, _PIPELINES)
    return st.lists(span, max_size=5)


_UINT64 = st.integers(0, 9) | st.integers(0, (1 << 64) - 1)
_UINT32 = st.integers(0, 9) | st.integers(0, (1 << 32) - 1)


@st.composite
def hostile_traces(draw: st.DrawFn) -> Any:
    """Well-formed protobuf that no tracer writes: any field with any value, few of each id."""
    trace = schema.Trace()
    for _ in range(draw(st.integers(1, 12))):
        packet = trace.packet.add(trusted_packet_sequence_id=draw(_UINT32))
        packet.timestamp = draw(_UINT64)
        packet.timestamp_clock_id = draw(st.sampled_from([0, 1, 6, 64, 65]))
        packet.sequence_flags = draw(st.integers(0, 3))
        for part in draw(st.sets(st.sampled_from([_clocks, _track, _interned, _event, _defaults]))):
            part(draw, packet)
    return trace


def _clocks(draw: st.DrawFn, packet: Any) -> None:
    packet.clock_snapshot.primary_trace_clock = draw(st.sampled_from([0, 1, 6, 64]))
    for clock_id in draw(st.lists(st.sampled_from([0, 1, 6, 64, 65]), max_size=3)):
        packet.clock_snapshot.clocks.add(
            clock_id=clock_id,
            timestamp=draw(_UINT64),
            is_incremental=draw(st.booleans()),
            unit_multiplier_ns=draw(_UINT64),
        )


def _track(draw: st.DrawFn, packet: Any) -> None:
    track = packet.track_descriptor
    track.uuid, track.parent_uuid = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    track.name = draw(_TEXTS)
    if draw(st.booleans()):
        track.counter.unit_name = draw(_TEXTS)
    if draw(st.booleans()):
        track.thread.tid = draw(st.integers(0, 9))


def _interned(draw: st.DrawFn, packet: Any) -> None:
    packet.interned_data.event_names.add(iid=draw(st.integers(0, 3)), name=draw(_TEXTS))
    packet.interned_data.event_categories.add(iid=draw(st.integers(0, 3)), name=draw(_TEXTS))


def _defaults(draw: st.DrawFn, packet: Any) -> None:
    packet.trace_packet_defaults.timestamp_clock_id = draw(st.sampled_from([0, 1, 64]))
    packet.trace_packet_defaults.track_event_defaults.track_uuid = draw(st.integers(0, 5))


def _event(draw: st.DrawFn, packet: Any) -> None:
    event = packet.track_event
    event.type = draw(st.integers(0, 4))
    event.track_uuid = draw(st.integers(0, 5))
    event.category_iids.append(draw(st.integers(0, 3)))
    event.name_iid = draw(st.integers(0, 3))
    event.double_counter_value = draw(st.floats())
    event.flow_ids.extend(draw(st.lists(st.integers(0, 3), max_size=2)))
    event.terminating_flow_ids.extend(draw(st.lists(st.integers(0, 3), max_size=2)))
    if draw(st.booleans()):
        command = event.Extensions[schema.COMMAND]
        command.command_index = draw(st.integers(-(1 << 31), (1 << 31) - 1))
        command.flops = draw(st.integers(-(1 << 63), (1 << 63) - 1))
        command.step = draw(st.integers(-(1 << 31), (1 << 31) - 1))
        command.pipeline = draw(st.integers(-(1 << 31), (1 << 31) - 1))
    if draw(st.booleans()):
        event.Extensions[schema.CALL].index = draw(st.integers(-(1 << 31), 5))
        event.Extensions[schema.CALL].pipeline = draw(st.integers(-(1 << 31), 5))
    if draw(st.booleans()):
        event.Extensions[schema.SPAN].kind = draw(_TEXTS)
