"""What producers hand to the writer is what the reader returns."""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace import (
    HOST_TRACK,
    NO_PIPELINE,
    Call,
    CommandBuilder,
    CommandColumns,
    Counter,
    Span,
    TraceColumns,
    Track,
    encode_call,
    encode_host,
    read_bytes,
    text_table,
)
from tests.trace.samples import awkward_trace, small_calls
from tests.trace.strategies import calls, command_columns, counters, spans

_TEXT = ("layer", "op_type", "role", "shapes", "stage")
_OPTIONAL = {"kernel": 0, "module": 0, "pipeline": NO_PIPELINE}  # columns, by what is in none
_NUMBERS = ("command_index", "step", "start_ns", "duration_ns", "bytes_read", "bytes_written")
_NUMBERS += ("flops",)


def _written_rows(commands: CommandColumns) -> list[tuple[Any, ...]]:
    texts = [[commands.strings[code] for code in getattr(commands, name)] for name in _TEXT]
    numbers = [getattr(commands, name).tolist() for name in _NUMBERS]
    given = {
        name: np.full(len(commands), none) if column is None else column
        for name, none in _OPTIONAL.items()
        for column in [getattr(commands, name)]
    }
    numbers.append(given["pipeline"].tolist())
    texts += [[commands.strings[code] for code in given[name]] for name in ("kernel", "module")]
    tracks = [commands.tracks[code] for code in commands.track]
    places = [[t.device for t in tracks], [t.name for t in tracks], [t.category for t in tracks]]
    return list(zip(*places, *texts, *numbers, strict=True))


def _read_rows(trace: TraceColumns) -> list[tuple[Any, ...]]:
    slices, strings = trace.slices, trace.strings
    texts = [
        [strings[code] for code in getattr(slices, name)] for name in (*_TEXT, "kernel", "module")
    ]
    numbers = [getattr(slices, name).tolist() for name in (*_NUMBERS, "pipeline")]
    tracks = [trace.tracks[code] for code in slices.track]
    categories = [strings[code] for code in slices.category]
    places = [[trace.tracks[t.parent].name for t in tracks], [t.name for t in tracks], categories]
    return list(zip(*places, *texts, *numbers, strict=True))


def _pairs(rows: Sequence[tuple[Any, ...]], flows: Any) -> Bag[Any]:
    return Bag((rows[source], rows[target]) for source, target in flows.tolist())


def _written_samples(given_counters: Sequence[Counter]) -> Bag[Any]:
    return Bag(
        (counter.device, counter.name, int(time_ns), float(value))
        for counter in given_counters
        for time_ns, value in zip(counter.times_ns, counter.values, strict=True)
    )


def _read_samples(trace: TraceColumns) -> Bag[Any]:
    found = trace.counters
    tracks = [trace.tracks[code] for code in found.track]
    return Bag(
        (trace.tracks[track.parent].name, track.name, time_ns, value)
        for track, time_ns, value in zip(
            tracks, found.time_ns.tolist(), found.value.tolist(), strict=True
        )
    )


def _assert_holds(trace: TraceColumns, commands: CommandColumns) -> None:
    written, read = _written_rows(commands), _read_rows(trace)
    assert Bag(read) == Bag(written)
    assert _pairs(read, trace.flows) == _pairs(written, commands.flows)


@given(calls(), command_columns(), st.lists(counters(), max_size=2))
def test_call(call: Call, commands: CommandColumns, given_counters: list[Counter]) -> None:
    """A call with any commands, flows and counters comes back as it was."""
    trace = read_bytes(encode_call(call, commands, given_counters))
    assert trace.calls == (call,)
    assert set(trace.slices.call.tolist()) <= {call.index}
    assert set(trace.counters.call.tolist()) <= {call.index}
    assert _read_samples(trace) == _written_samples(given_counters)
    _assert_holds(trace, commands)


@given(spans(), command_columns())
def test_host(given_spans: list[Span], commands: CommandColumns) -> None:
    """Spans, however they overlap, and host work come back as they were."""
    trace = read_bytes(encode_host(given_spans, commands, "cpu:0"))
    assert Bag(trace.spans) == Bag(given_spans)
    assert trace.calls == ()
    _assert_holds(trace, commands)


def test_host_work_names_its_pipeline_call() -> None:
    """Host work of pipeline calls 0 and 300 and of none; where none has one, no column is kept."""
    track = Track("cpu:0", HOST_TRACK, "host")
    numbers = (0, 300, NO_PIPELINE)
    builder, without = CommandBuilder(), CommandBuilder()
    for number in numbers:
        builder.add(track, "scheduler.step", "", 10, 5, pipeline=number)
        without.add(track, "scheduler.step", "", 10, 5)
    span = Span("pipeline", "P", "", -1, 0, 40, pipeline=300)
    trace = read_bytes(encode_host([span], builder.build(), "cpu:0"))
    assert sorted(trace.slices.pipeline.tolist()) == sorted(numbers)
    assert trace.spans == (span,)
    assert without.build().pipeline is None
    bare = read_bytes(encode_host([], without.build(), "cpu:0"))
    assert bare.slices.pipeline.tolist() == [NO_PIPELINE] * 3


@given(
    st.lists(command_columns(), min_size=2, max_size=3).flatmap(
        lambda files: st.tuples(
            st.tuples(*(calls(st.just(index)) for index in range(len(files)))),
            st.just(files),
            st.permutations(range(len(files))),
        )
    )
)
def test_concatenation(
    run: tuple[tuple[Call, ...], list[CommandColumns], list[int]],
) -> None:
    """Files one after another, in any order, are the trace of all their calls."""
    given_calls, files, order = run
    data = [encode_call(*parts) for parts in zip(given_calls, files, strict=True)]
    trace = read_bytes(b"".join(data[index] for index in order))
    assert trace.calls == given_calls
    written = [(index, row) for index, f in enumerate(files) for row in _written_rows(f)]
    read = zip(trace.slices.call.tolist(), _read_rows(trace), strict=True)
    assert Bag(read) == Bag(written)


@given(calls(), command_columns(), st.lists(counters(), max_size=2))
def test_encoding_is_deterministic(
    call: Call, commands: CommandColumns, given_counters: list[Counter]
) -> None:
    """The same events give the same bytes."""
    first = encode_call(call, commands, given_counters)
    assert encode_call(call, commands, given_counters) == first


def test_slices_come_in_order_of_their_begin() -> None:
    """The reader keeps the order of the file, which is that of time within one call."""
    for call, commands, given_counters in (*small_calls(), awkward_trace()):
        trace = read_bytes(encode_call(call, commands, given_counters))
        starts = trace.slices.start_ns.tolist()
        assert starts == sorted(starts)


def test_unclosed_command_is_a_drop() -> None:
    """A command that never closed is read as such, and said to be lost."""
    trace = read_bytes(encode_call(*awkward_trace()), "awkward.pb")
    assert trace.slices.duration_ns.tolist().count(-1) == 1
    (drop,) = trace.drops
    assert (drop.kind, drop.where, drop.count, drop.unit) == (
        "unclosed_slice",
        "awkward.pb",
        1,
        "slices",
    )


def test_wait_keeps_the_direction_of_its_flow() -> None:
    """A flow to a command that was already open when its source began is not turned round."""
    _, commands, _ = small_calls()[2]
    trace = read_bytes(encode_call(*small_calls()[2]))
    layers = [trace.strings[code] for code in trace.slices.layer]
    found = sorted((layers[source], layers[target]) for source, target in trace.flows.tolist())
    assert found == [("attn.sdpa", "wait")] * 2 + [("to device", "attn.sdpa")] * 2
    assert len(commands.flows) == 4


def test_text_that_utf8_cannot_hold_is_replaced() -> None:
    """A lone surrogate, as JSON may hold one, costs a character and not the trace."""
    odd = "a\ud800"
    builder = CommandBuilder()
    builder.add(Track(odd, odd, odd), odd, odd, 10, 5, shapes=odd)
    call = Call(0, odd, odd, odd, 0, odd, 0, 20, ops_traced=True, input_shapes={odd: odd})
    trace = read_bytes(encode_call(call, builder.build()))
    assert trace.strings[trace.slices.layer[0]] == "a?"
    assert trace.tracks[trace.slices.track[0]].name == "a?"
    assert trace.calls[0].submodule == "a?"
    assert trace.calls[0].input_shapes == {"a?": "a?"}


def test_files_whose_texts_share_numbers() -> None:
    """Files written apart may give two texts one number: each keeps its own, in either order."""
    texts = [f"layer.{number}" for number in (10104, 11012)]
    assert len({text_table().number(text) for text in texts}) == 1
    files = []
    for index, layer in enumerate(texts):
        builder = CommandBuilder()
        builder.add(Track("cpu:0", "queue", "compute"), layer, "", 10 + index, 1)
        call = Call(index, "vae", "decode", "", -1, "cpu:0", 0, 100, ops_traced=True)
        files.append(encode_call(call, builder.build()))
    for order in (files, files[::-1]):
        trace = read_bytes(b"".join(order))
        assert [trace.strings[code] for code in trace.slices.layer] == texts
