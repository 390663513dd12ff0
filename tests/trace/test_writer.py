"""What a file is made of: order, lanes, texts, sections, chunks, packing, what is refused."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.trace import (
    ROOT_DEVICE,
    UNKNOWN,
    Call,
    CommandBuilder,
    CommandColumns,
    Counter,
    Track,
    _core,
    encode_call,
    encode_host,
    schema,
    text_table,
)
from profiler.trace.compression import COMPRESSIONS, WORDS
from profiler.trace.writer import call_chunks, track_uuid
from tests.trace.reference_reading import Slice, read
from tests.trace.writer_samples import EPOCH_NS, large_commands, small_call

_QUEUE = Track("cuda:0", "stream 7", "compute")
_CALL = Call(0, "vae", "decode", "", -1, "cuda:0", EPOCH_NS, 1 << 40, ops_traced=True)


def _commands(*rows: tuple[str, int, int], track: Track = _QUEUE) -> CommandColumns:
    builder = CommandBuilder()
    for name, start_ns, duration_ns in rows:
        builder.add(track, name, "", EPOCH_NS + start_ns, duration_ns)
    return builder.build()


def _packets(data: bytes) -> Sequence[Any]:
    packets: Sequence[Any] = schema.Trace.FromString(data).packet
    return packets


def _lanes(data: bytes) -> list[list[str]]:
    """Names of the commands of each lane, in the order of the lanes."""
    lanes: dict[int, list[str]] = {}
    for piece in read(data).slices:
        if piece.track == _QUEUE.name:
            lanes.setdefault(piece.uuid, []).append(piece.name)
    return [lanes[uuid] for uuid in sorted(lanes)]


def _nesting(slices: Sequence[Slice]) -> dict[str, str]:
    return {s.name: s.parent.name if s.parent else "" for s in slices if s.track == _QUEUE.name}


def _texts(data: bytes) -> dict[int, str]:
    return {
        value.number: value.name
        for packet in _packets(data)
        for file in _definitions(packet).file
        if not file.message_type
        for enum in file.enum_type
        for value in enum.value
    }


def _definitions(packet: Any) -> Any:
    from google.protobuf import descriptor_pb2

    data = packet.extension_descriptor.extension_set
    return descriptor_pb2.FileDescriptorSet.FromString(data)


def test_nesting_commands_share_a_lane() -> None:
    """Parents come before children that begin with them, and touching commands follow."""
    commands = _commands(("child", 0, 10), ("parent", 0, 20), ("next", 20, 5), ("last", 22, 3))
    data = encode_call(_CALL, commands)
    assert _lanes(data) == [["parent", "child", "next", "last"]]
    assert _nesting(read(data).slices) == {
        "parent": "",
        "child": "parent",
        "next": "",
        "last": "next",
    }


def test_overlapping_commands_get_lanes() -> None:
    """The first lane on which a command nests; all lanes have one name and one parent."""
    commands = _commands(("a", 0, 10), ("b", 5, 10), ("c", 7, 20), ("d", 12, 3), ("e", 15, 1))
    data = encode_call(_CALL, commands)
    assert _lanes(data) == [["a", "d", "e"], ["b"], ["c"]]
    described = [p.track_descriptor for p in _packets(data) if p.HasField("track_descriptor")]
    lanes = [track for track in described if track.name == _QUEUE.name]
    assert len({track.uuid for track in lanes}) == 3
    assert {track.parent_uuid for track in lanes} == {track_uuid("cuda:0")}
    assert len({track.sibling_order_rank for track in lanes}) == 1


def test_unclosed_command_has_a_lane_of_its_own() -> None:
    """Nothing seems to lie in what never ended."""
    data = encode_call(_CALL, _commands(("open", 0, UNKNOWN), ("a", 5, 10), ("b", 5, UNKNOWN)))
    assert _lanes(data) == [["open"], ["b"], ["a"]]
    assert [s.duration_ns for s in read(data).slices if s.name in "open b"] == [UNKNOWN] * 2


def test_command_without_duration_begins_and_ends() -> None:
    """It stands beside what begins, and behind what ends, at the same moment."""
    commands = _commands(("a", 0, 10), ("0", 0, 0), ("00", 0, 0), ("end", 10, 0), ("in", 5, 0))
    data = encode_call(_CALL, commands)
    assert _lanes(data) == [["0", "00", "a", "in", "end"]]
    assert _nesting(read(data).slices) == {"0": "", "00": "", "a": "", "in": "a", "end": ""}


def test_end_comes_before_the_next_begin() -> None:
    """On a lane, at one moment: so readers that take events as they come see no overlap."""
    kinds = [
        packet.track_event.type
        for packet in _packets(encode_call(_CALL, _commands(("a", 5, 5), ("b", 10, 5))))
        if packet.HasField("track_event")
    ]
    begin, end = schema.SLICE_BEGIN, schema.SLICE_END
    assert kinds == [begin, begin, end, begin, end, end]


def test_one_lane_is_in_order_of_time() -> None:
    """A file of one busy lane needs no sorting: its call begins first and ends last."""
    commands = large_commands(9000)
    gaps = np.append(np.diff(commands.start_ns), 0)
    commands = replace(commands, duration_ns=np.minimum(commands.duration_ns, gaps))
    call = replace(_CALL, start_ns=EPOCH_NS - 5)
    clocks: dict[int, int] = {}
    clock, times = 0, []
    for packet in _packets(encode_call(call, commands)):
        clock = packet.trace_packet_defaults.timestamp_clock_id or clock
        units = {c.clock_id: c.unit_multiplier_ns or 1 for c in packet.clock_snapshot.clocks}
        clocks |= {
            c.clock_id: c.timestamp * units[c.clock_id] for c in packet.clock_snapshot.clocks
        }
        if packet.HasField("track_event"):
            clocks[clock] += packet.timestamp
            times.append(clocks[clock])
    assert len(times) == 2 * 9001
    assert all(a <= b for a, b in pairwise(times))


def test_events_leave_out_what_a_section_says() -> None:
    """No event repeats track, clock or flags; it names its sequence, as every packet must."""
    data = encode_call(_CALL, large_commands(5000, tracks=3))
    sections = 0
    for packet in _packets(data)[1:]:
        assert packet.trusted_packet_sequence_id == 2
        assert not packet.sequence_flags
        if packet.HasField("track_event"):
            assert not packet.HasField("timestamp_clock_id")
            assert not packet.track_event.HasField("track_uuid")
        else:
            sections += packet.HasField("clock_snapshot")
    assert sections < 40


def test_whole_microseconds_count_in_microseconds() -> None:
    """Times that differ by whole microseconds take a clock of that unit, others do not."""
    rows = [("a", 0, 7000), ("b", 9000, 1000)]
    assert _section_clocks(encode_call(_CALL, _commands(*rows))) == {64, 65}
    rows.append(("c", 20_000, 1))
    assert 65 not in _section_clocks(encode_call(_CALL, _commands(*rows)))
    early = replace(_CALL, start_ns=1)
    builder = CommandBuilder()
    builder.add(_QUEUE, "a", "", 999, 1000)
    assert read(encode_call(early, builder.build())).slices[1].start_ns == 999


def _section_clocks(data: bytes) -> set[int]:
    packets = [packet for packet in _packets(data) if packet.HasField("trace_packet_defaults")]
    return {packet.trace_packet_defaults.timestamp_clock_id for packet in packets}


def test_names_and_texts_are_written_once() -> None:
    """Each string that is used stands in the file twice at most: as name, and as text."""
    data = encode_call(_CALL, large_commands(5000))
    names = [e.name for p in _packets(data) for e in p.interned_data.event_names]
    assert len(names) == len(set(names)) == 301
    texts = _texts(data)
    assert len(texts) == len(set(texts.values())) == 1 + 300 + 49
    assert data.count(b"transformer_blocks.7.part.3") == 2


def test_strings_that_no_row_uses_are_left_out() -> None:
    """Columns of one call may share the strings of a whole run."""
    commands = _commands(("used", 0, 1))
    strings = (*commands.strings, "not used")
    assert b"not used" not in encode_call(_CALL, replace(commands, strings=strings))


def test_words_have_the_shortest_numbers() -> None:
    """The list never changes but at its end: numbers in files are places in it."""
    texts = text_table()
    assert len(set(WORDS)) == len(WORDS)
    assert (texts.number(""), texts.number("encode"), texts.number("MatMul")) == (1, 2, 17)
    assert [texts.number(word) for word in WORDS] == list(range(1, len(WORDS) + 1))
    assert texts.number("transformer_blocks.0") >= 1 << 21


def test_numbers_of_texts_agree_between_files_and_never_clash() -> None:
    """Alone, a number depends on its text only; the tables of two runs start apart."""
    alone, other = text_table(), text_table()
    many = [f"text {number}" for number in range(50_000)]
    numbers = [alone.number(text) for text in many]
    assert len(set(numbers)) == len(many)
    assert all(1 << 21 <= number < 1 << 28 for number in numbers)
    same = sum(
        other.number(text) == number for text, number in zip(many[::-1], numbers[::-1], strict=True)
    )
    assert same > 0.999 * len(many)  # but for the few that met another
    first = {text_table(run=True).number("text") for _ in range(5)}
    assert len(first) > 1
    assert all(1 << 21 <= number < 1 << 28 for number in first)


def test_text_of_no_utf8_is_replaced() -> None:
    """A lone surrogate, as JSON may hold one, costs a character and not the trace."""
    odd = "a\ud800"
    builder = CommandBuilder()
    builder.add(Track(odd, odd, odd), odd, odd, 10, 5, shapes=odd)
    call = Call(0, odd, odd, odd, 0, odd, 0, 20, ops_traced=True, input_shapes={odd: odd})
    counter = Counter(odd, odd, "count", np.array([1]), np.array([2]))
    found = read(encode_call(call, builder.build(), [counter]))
    assert {s.name for s in found.slices} == {"a?"}
    assert ("layer", "a?") in found.slices[1].fields


def test_counters_come_in_order_whatever_was_given() -> None:
    """Samples are sorted; two counters of one name share a track."""
    times = np.array([EPOCH_NS + 30, EPOCH_NS + 10])
    counters = [
        Counter("cuda:0", "Memory", "bytes", times, np.array([3, -1])),
        Counter("cuda:0", "Memory", "bytes", times - 10, np.array([2, 0])),
        Counter("cuda:0", "none", "count", times[:0], times[:0]),
    ]
    found = read(encode_call(_CALL, _commands(), counters)).samples
    place = ("cuda:0", "Memory", str(3))
    offsets = {30: 3, 10: -1, 20: 2, 0: 0}
    assert found == {(*place, EPOCH_NS + time, value): 1 for time, value in offsets.items()}


def test_flows_have_ids_of_their_own_file() -> None:
    """The packet sequence stands in the upper half: no file's flows meet another's."""
    commands = large_commands(100)
    for index in (0, 5):
        data = encode_call(replace(_CALL, index=index), commands)
        ids = {i for p in _packets(data) for i in p.track_event.flow_ids}
        assert {flow_id >> 32 for flow_id in ids} == {index + 2}


def test_wait_takes_its_flow_at_its_end() -> None:
    """A target that was already open when its source began: Perfetto directs flows by time."""
    builder = CommandBuilder()
    wait = builder.add(Track("cuda:0", "Sync", "sync"), "wait", "", EPOCH_NS, 100)
    source = builder.add(_QUEUE, "source", "", EPOCH_NS + 10, 20)
    builder.link(source, wait)
    events = [p.track_event for p in _packets(encode_call(_CALL, builder.build()))]
    kinds = [event.type for event in events if event.terminating_flow_ids]
    assert kinds == [schema.SLICE_END]


def test_chunks_are_whole_packets_and_small() -> None:
    """A writer that is killed leaves packets that can be read, and never holds much."""
    commands = large_commands(30_000, tracks=2)
    counters = [Counter("cpu:0", "c", "count", commands.start_ns, commands.bytes_read)]
    chunks = list(call_chunks(_CALL, commands, counters))
    assert b"".join(chunks) == encode_call(_CALL, commands, counters)
    assert len(chunks) > 10
    assert max(map(len, chunks)) < 400_000
    counts = [len(_packets(chunk)) for chunk in chunks]
    assert sum(counts) == len(_packets(b"".join(chunks)))
    begun = 0
    for chunk in chunks:
        begun += sum(p.track_event.type == schema.SLICE_BEGIN for p in _packets(chunk))
    assert begun == 30_001


def test_packed_packets_hold_the_same() -> None:
    """Deflate and Zstandard pack a MB of packets at a time; what is in them does not change."""
    zstandard = pytest.importorskip("zstandard", reason="install zstandard to pack with it")
    commands, plain = large_commands(17_000), encode_call(_CALL, large_commands(17_000))
    deflated = _packets(encode_call(_CALL, commands, compress="deflate"))
    assert b"".join(zlib.decompress(p.compressed_packets) for p in deflated) == plain
    packed = _packets(encode_call(_CALL, commands, compress="zstd"))
    unpack = zstandard.ZstdDecompressor().decompress
    assert b"".join(unpack(p.zstd_compressed_packets) for p in packed) == plain
    assert len(deflated) == len(packed) == -(-len(plain) // (1 << 20))


def test_unknown_packing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the recommendation, also where nothing can pack with Zstandard."""
    with pytest.raises(InputError, match="use none, deflate, zstd"):
        encode_call(*small_call(), compress="lzma")  # type: ignore[arg-type]

    def missing(name: str) -> Any:
        raise ImportError(name)

    assert COMPRESSIONS == ("none", "deflate", "zstd")
    monkeypatch.setattr("profiler.trace.compression.import_module", missing)
    with pytest.raises(InputError, match="or use deflate"):
        encode_call(*small_call(), compress="zstd")


def test_time_before_the_epoch_is_refused() -> None:
    """Perfetto's times are unsigned."""
    commands = _commands(("a", -EPOCH_NS - 1, 5))
    with pytest.raises(InputError, match="before the epoch"):
        encode_call(_CALL, commands)


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("layer", [9], "layer"),
        ("layer", [-1], "layer"),
        ("shapes", [9], "text"),
        ("track", [2], "track"),
        ("step", [0, 0], "length"),
        ("duration_ns", [(1 << 63) - 1], "64 bits"),
        ("flows", [[0, 1]], "no commands"),
        ("flows", [[-1, 0]], "no commands"),
    ],
)
def test_columns_that_do_not_fit_are_refused(column: str, values: list[Any], says: str) -> None:
    """Codes outside their tables never reach the loops."""
    commands = _commands(("a", 0, 1))
    wrong = np.array(values, dtype=getattr(commands, column).dtype)
    with pytest.raises(ValueError, match=says):
        encode_call(_CALL, replace(commands, **{column: wrong}))


def test_equal_tracks_are_one() -> None:
    """A track that is listed twice, or is the call's own, is one track."""
    commands = _commands(("a", 10, 5), ("b", 20, 5))
    twice = replace(commands, tracks=(_QUEUE, _QUEUE), track=np.array([0, 1], dtype=np.int32))
    assert _lanes(encode_call(_CALL, twice)) == [["a", "b"]]
    calls = replace(_QUEUE, name="Calls", category="other")
    inside = read(encode_call(_CALL, _commands(("a", 10, 5), track=calls))).slices
    assert inside[1].parent is inside[0]


def test_nothing_at_all() -> None:
    """A run without spans and host work still has a host file that says so."""
    assert read(encode_host((), _commands(), ROOT_DEVICE)).slices == []


def test_encoding_is_deterministic() -> None:
    """The same call gives the same bytes."""
    assert encode_call(*small_call()) == encode_call(*small_call())


def test_core_keeps_its_columns_alive() -> None:
    """Chunks may be asked for long after the columns were given."""
    chunks = call_chunks(_CALL, large_commands(20_000))
    first = next(chunks)
    assert first + b"".join(chunks) == encode_call(_CALL, large_commands(20_000))


def test_core_refuses_to_write_before_it_knows() -> None:
    """Its parts are called in order."""
    encoder = _core.TraceEncoder(2, ["compute"])
    with pytest.raises(RuntimeError, match="not started"):
        encoder.chunk()
    with pytest.raises(RuntimeError, match="not placed"):
        encoder.start(b"", [])
    with pytest.raises(ValueError, match="no such track"):
        encoder.add_slice(1, "a", 0, 1, b"")
    assert encoder.place(text_table()) == []
    with pytest.raises(ValueError, match="one uuid a lane"):
        encoder.start(b"", [1])


def test_columns_that_change_while_they_are_written() -> None:
    """A code that was in its table when the trace was begun, and no longer is, is refused."""
    commands = large_commands(20_000)
    chunks = call_chunks(_CALL, commands)
    next(chunks)
    commands.layer[:] = 1 << 30
    with pytest.raises(IndexError):
        list(chunks)
