"""The reader's rules, each on the smallest trace that shows it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.trace import TraceColumns, read_bytes, read_trace, schema
from tests.runs import told

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def _event(kind: int, time_ns: int, name: str = "", track: int = 5, **fields: Any) -> Any:
    packet = schema.TracePacket(timestamp=time_ns, trusted_packet_sequence_id=1)
    packet.track_event.type = kind
    packet.track_event.track_uuid = track
    if name:
        packet.track_event.name = name
    for key, value in fields.items():
        if isinstance(value, list):
            getattr(packet.track_event, key).extend(value)
        else:
            setattr(packet.track_event, key, value)
    return packet


def _track(uuid: int, name: str = "", parent: int = 0) -> Any:
    packet = schema.TracePacket(trusted_packet_sequence_id=1)
    packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = uuid, parent
    if name:
        packet.track_descriptor.name = name
    return packet


def _data(packets: Iterable[Any]) -> bytes:
    data: bytes = schema.Trace(packet=packets).SerializeToString()
    return data


def _read(*packets: Any) -> TraceColumns:
    return read_bytes(_data(packets), "here.pb")


def _rows(trace: TraceColumns) -> list[tuple[str, int, int, int]]:
    slices = trace.slices
    names = [trace.strings[code] for code in slices.name]
    numbers = (slices.start_ns.tolist(), slices.duration_ns.tolist(), slices.depth.tolist())
    return list(zip(names, *numbers, strict=True))


def test_nesting_and_unclosed_slices() -> None:
    """Slices nest by time; what never ends has duration -1 and is reported."""
    trace = _read(
        _event(BEGIN, 10, "a"), _event(BEGIN, 20, "b"), _event(END, 30), _event(BEGIN, 40, "c")
    )
    assert _rows(trace) == [("a", 10, -1, 0), ("b", 20, 10, 1), ("c", 40, -1, 1)]
    assert trace.slices.parent.tolist() == [-1, 0, 0]
    (drop,) = trace.drops
    assert (drop.kind, drop.where, drop.count) == ("unclosed_slice", "here.pb", 2)


@pytest.mark.parametrize("count", [10, 3000, 40_000])
def test_any_order_of_packets(count: int) -> None:
    """Events are read in order of time, whether they are out of order by little or by much."""
    packets = []
    for number in range(count):
        kind, name = (BEGIN, f"s{number % 7}") if number % 2 == 0 else (END, "")
        packets.append(_event(kind, 100 * number, name, track=5 + number // 2 % 3))
    straight = _read(*packets)
    nearly = [packets[at ^ 4] for at in range(count - count % 8)] + packets[count - count % 8 :]
    shuffled = random.Random(1).sample(packets, count)
    for order in (nearly, shuffled):
        assert _rows(_read(*order)) == _rows(straight)
    assert (straight.slices.duration_ns == 100).all()


def test_events_of_one_moment_keep_their_order() -> None:
    """What has the same time is taken as it stands in the file."""
    trace = _read(
        _event(BEGIN, 50, "late"),
        _event(BEGIN, 10, "a"),
        _event(END, 10),
        _event(BEGIN, 10, "b"),
        _event(END, 20),
        _event(END, 60),
    )
    assert _rows(trace) == [("a", 10, 0, 0), ("b", 10, 10, 0), ("late", 50, 10, 0)]


def test_an_end_that_names_its_slice() -> None:
    """An end with a name closes the innermost slice of that name, and what is inside with it."""
    trace = _read(
        _event(BEGIN, 10, "outer"),
        _event(BEGIN, 20, "inner"),
        _event(END, 30, "outer"),
        _event(BEGIN, 40, "next"),
        _event(END, 50),
    )
    assert _rows(trace) == [("outer", 10, 20, 0), ("inner", 20, 10, 1), ("next", 40, 10, 0)]


def test_instants_are_rows_without_duration() -> None:
    """Instants stand among the slices, and by themselves in `instants`."""
    trace = _read(_event(BEGIN, 10, "a"), _event(INSTANT, 15, "!"), _event(END, 20))
    assert _rows(trace) == [("a", 10, 10, 0), ("!", 15, 0, 1)]
    assert trace.instants.tolist() == [1]


def test_descriptors_after_use() -> None:
    """A track is known by its descriptor, wherever in the file that stands."""
    trace = _read(
        _event(BEGIN, 10, "a", track=7),
        _event(END, 20, track=7),
        _track(7, "late", 3),
        _track(3, "d"),
    )
    (track,) = {trace.tracks[code] for code in trace.slices.track}
    assert (track.name, trace.tracks[track.parent].name) == ("late", "d")


def test_unknown_parents_are_a_drop() -> None:
    """Events on tracks whose parents are unknown or go in a circle are dropped, and said to be."""
    trace = _read(
        _track(1, "a", 2), _track(2, "b", 1), _event(BEGIN, 1, "x", 1), _event(BEGIN, 2, "y", 9)
    )
    assert _rows(trace) == [("y", 2, -1, 0)]
    assert ("dropped_events", 1) in [(drop.kind, drop.count) for drop in trace.drops]


def test_tracks_of_one_name_share_rows_in_turn() -> None:
    """Siblings of one name take the first row that is free, as in Perfetto's timeline."""
    trace = _read(
        *(_track(uuid, "queue") for uuid in (7, 8)),
        *(_event(BEGIN, 10, "a", 7), _event(BEGIN, 15, "b", 8), _event(END, 20, track=7)),
        *(_event(END, 30, track=8), _event(BEGIN, 40, "c", 8), _event(END, 50, track=8)),
    )
    rows = trace.slices.track.tolist()
    assert rows[0] != rows[1] == rows[2]
    assert trace.slices.depth.tolist() == [0, 0, 0]


def test_state_is_lost_with_a_packet() -> None:
    """Events that need state are skipped until the sequence starts anew; names are forgotten."""

    def named(time_ns: int, iid: int) -> Any:
        packet = _event(INSTANT, time_ns, name_iid=iid)
        packet.sequence_flags = schema.NEEDS_INCREMENTAL_STATE
        return packet

    def start(name: str) -> Any:
        packet = schema.TracePacket(trusted_packet_sequence_id=1)
        packet.sequence_flags = schema.INCREMENTAL_STATE_CLEARED
        packet.interned_data.event_names.add(iid=1, name=name)
        return packet

    trace = _read(named(1, 1), start("a"), named(2, 1), start("b"), named(3, 1), named(4, 2))
    assert [row[0] for row in _rows(trace)] == ["a", "b", ""]
    (drop,) = trace.drops
    assert (drop.kind, drop.count) == ("dropped_events", 1)


def test_clock_without_snapshot_is_a_drop() -> None:
    """A time that no snapshot relates to the trace's clock is dropped, and said to be."""
    packet = _event(INSTANT, 5, "x")
    packet.timestamp_clock_id = 64
    trace = _read(packet, _event(INSTANT, 6, "y"))
    assert [row[0] for row in _rows(trace)] == ["y"]
    (drop,) = trace.drops
    assert (drop.kind, drop.count, "clock" in told(drop)) == ("dropped_events", 1, True)


def test_clocks_are_related_piecewise() -> None:
    """Each time is converted by the snapshot before it; a clock may count in larger units."""

    def snapshot(boot_ns: int, own: int) -> Any:
        packet = schema.TracePacket(trusted_packet_sequence_id=1)
        clocks = packet.clock_snapshot.clocks
        clocks.add(clock_id=schema.CLOCK_BOOTTIME, timestamp=boot_ns)
        clocks.add(clock_id=64, timestamp=own, unit_multiplier_ns=1000)
        return packet

    events = [_event(INSTANT, time, "x") for time in (5, 10, 15, 21)]
    for packet in events:
        packet.timestamp_clock_id = 64
    trace = _read(snapshot(100_000, 10), snapshot(900_000, 20), *events)
    assert trace.slices.start_ns.tolist() == [95_000, 100_000, 105_000, 901_000]


def test_flows_end_where_they_terminate() -> None:
    """A flow goes from slice to slice by time; its id may be used again behind its end."""
    packets = [
        _event(INSTANT, 10, "a", flow_ids=[7]),
        _event(INSTANT, 20, "b", flow_ids=[7]),
        _event(INSTANT, 30, "c", terminating_flow_ids=[7]),
        _event(INSTANT, 40, "d", flow_ids=[7]),
        _event(INSTANT, 50, "e", terminating_flow_ids=[7, 8]),
    ]
    assert _read(*packets[::-1]).flows.tolist() == [[0, 1], [1, 2], [3, 4]]


def test_texts_that_no_slice_has_take_no_memory() -> None:
    """Columns of our extension that nothing fills are one value, repeated."""
    trace = _read(_event(INSTANT, 1, "a"), _event(INSTANT, 2, "b"))
    assert trace.slices.flops.tolist() == [-1, -1]
    assert trace.slices.flops.strides == (0,)
    assert trace.slices.op_type.tolist() == [0, 0]


def test_files_are_read_as_bytes_are(tmp_path: Path) -> None:
    """A path, a large file that is mapped, and bytes give the same columns."""
    data = _data(_event(INSTANT, time, "x") for time in range(10))
    padding = b"\x12\x80\x80\x80\x08" + bytes(1 << 24)  # a field that no Trace has
    small, large = tmp_path / "small.pb", tmp_path / "large.pb"
    small.write_bytes(data)
    large.write_bytes(padding + data)
    for trace in (read_trace(small), read_trace(large), read_bytes(data)):
        assert trace.slices.start_ns.tolist() == list(range(10))
        assert trace.drops == ()


def test_threads_read_side_by_side() -> None:
    """Traces read in several threads at once are read as one by one."""
    data = [
        _data(_event(INSTANT, time, f"file {number}") for time in range(2000))
        for number in range(8)
    ]
    with ThreadPoolExecutor(4) as pool:
        for number, trace in enumerate(pool.map(read_bytes, data)):
            assert set(trace.strings) == {"", f"file {number}"}
            assert np.array_equal(trace.slices.start_ns, np.arange(2000))


def test_a_trace_of_nothing_is_none() -> None:
    """Packets without anything that a tracer writes are no trace."""
    with pytest.raises(InputError, match="not a Perfetto trace"):
        read_bytes(b"\x0a\x00\x0a\x02\x98\x7f")
