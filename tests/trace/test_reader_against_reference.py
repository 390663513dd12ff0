"""The core and a slow reader on protobuf messages read the same columns from any trace."""

from __future__ import annotations

from collections import Counter as Bag
from typing import Any

from hypothesis import given

from profiler.errors import InputError
from profiler.trace import TraceColumns, read_bytes
from tests.trace import reference_reader
from tests.trace.reference_reader import Reading, Slice
from tests.trace.trace_strategies import foreign_traces

_TEXTS = ("layer", "op_type", "role", "shapes", "stage", "kernel", "module")
_ABSENT = {
    "command_index": -1,
    "step": -1,
    "pipeline": -1,
    "bytes_read": -1,
    "bytes_written": -1,
    "flops": -1,
}


def _found(trace: TraceColumns, row: int) -> tuple[Any, ...]:
    slices, strings = trace.slices, trace.strings
    texts = [strings[getattr(slices, name)[row]] for name in ("name", "category", *_TEXTS)]
    places = [int(getattr(slices, name)[row]) for name in ("depth", "parent", "call")]
    times = (int(slices.start_ns[row]), int(slices.duration_ns[row]))
    numbers = [int(getattr(slices, name)[row]) for name in _ABSENT]
    return (trace.tracks[slices.track[row]].uuid, *texts, *places, *times, *numbers)


def _expected(reading: Reading, piece: Slice) -> tuple[Any, ...]:
    texts = [piece.name or "", piece.category or "", *(piece.fields.get(n, "") for n in _TEXTS)]
    call = reading.call_of_sequence.get(piece.sequence, -1)
    numbers = [piece.fields.get(name, absent) for name, absent in _ABSENT.items()]
    places = (piece.depth, piece.parent, call, piece.start_ns, piece.duration_ns)
    return (piece.uuid, *texts, *places, *numbers)


@given(foreign_traces())
def test_same_columns(message: Any) -> None:
    """Slices, instants, counters, flows, calls and spans are equal column by column."""
    data = message.SerializeToString()
    reading = reference_reader.read(message)
    try:
        trace = read_bytes(data)
    except InputError:
        assert not message.packet
        return
    rows = range(len(trace.slices))
    assert [_found(trace, row) for row in rows] == [_expected(reading, s) for s in reading.slices]
    assert trace.instants.tolist() == reading.instants
    assert sorted(map(tuple, trace.flows.tolist())) == sorted(reading.flows)
    samples = trace.counters
    tracks = [trace.tracks[track].uuid for track in samples.track]
    found = zip(tracks, samples.time_ns.tolist(), samples.value.tolist(), strict=True)
    assert Bag(found) == Bag(reading.counters)
    calls = [(call.index, call.start_ns, call.duration_ns) for call in trace.calls]
    assert sorted(calls) == sorted(reading.calls)
    spans = [(span.name, span.start_ns, span.duration_ns) for span in trace.spans]
    assert sorted(spans) == sorted(reading.spans)
