"""A trace as text: golden lines, stable from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.errors import InputError
from profiler.trace import schema
from profiler.trace.text import dump_lines
from profiler.trace.writer import encode_call
from tests.trace import wire
from tests.trace.samples import awkward_trace, small_bundle, small_calls

_GOLDEN = """\
1 4 - clock realtime=1795253400123457789 64=1795253400123457789 primary=realtime
1 4 - defaults clock=64
2 4 - extension bytes=1066
3 4 - track "cpu:0" uuid=495569360738997 children=explicit
4 4 - track "cpu:1" uuid=437629689919608 children=explicit
5 4 - track "cpu:1/Calls" uuid=16777220 parent=437629689919608 rank=1
6 4 - track "cpu:1/Task DMA" uuid=33554436 parent=437629689919608 rank=200000
7 4 - track "cpu:1/Sync" uuid=50331652 parent=437629689919608 rank=400000
8 4 - track "cpu:1/stream 10" uuid=67108868 parent=437629689919608 rank=100010
9 4 - track "cpu:1/stream 7" uuid=83886084 parent=437629689919608 rank=100007
10 4 - track "cpu:0/Resident memory" uuid=362225893213251 parent=495569360738997 \
rank=1000000 unit="bytes"
11 4 - interned event_categories=1 "other"
11 4 - interned event_names=1 "transformer"
11 4 1795253400123457789 begin "cpu:1/Calls" "transformer" category=other call.index=2 \
call.submodule="transformer" call.stage="denoise" call.branch="batched" call.step=0 \
call.device="cpu:1" call.ops_traced=True call.inputs[0].name="hidden_states" \
call.inputs[0].shape="float32[2,16,64,64]" call.inputs[1].name="timestep" \
call.inputs[1].shape="int64[2]"
12 4 - interned event_categories=2 "dma"
12 4 - interned event_names=2 "to device"
12 4 1795253400123457789 begin "cpu:1/Task DMA" "to device" category=dma \
command.layer="to device" command.command_index=0 command.op_type="Memcpy" \
command.bytes_read=1099511627776 flow=17179869185 flow=17179869187
13 4 1795253400123457789 counter "cpu:0/Resident memory" value=8589934592
14 4 1795253400123457889 end "cpu:1/Task DMA"
15 4 - interned event_categories=3 "sync"
15 4 - interned event_names=3 "wait"
15 4 1795253400123457909 begin "cpu:1/Sync" "wait" category=sync command.layer="wait" \
command.command_index=0 command.op_type="Sync"
16 4 - interned event_categories=4 "compute"
16 4 - interned event_names=4 "attn.sdpa"
16 4 1795253400123457939 begin "cpu:1/stream 10" "attn.sdpa" category=compute \
command.layer="attn.sdpa" command.command_index=0 command.op_type="SDPA" \
command.role="attention" flow=17179869186 terminating_flow=17179869185
17 4 1795253400123457939 begin "cpu:1/stream 7" "attn.sdpa" category=compute \
command.layer="attn.sdpa" command.command_index=1 command.op_type="SDPA" \
command.role="attention" flow=17179869188 terminating_flow=17179869187
18 4 1795253400123458139 end "cpu:1/stream 7"
19 4 1795253400123458139 end "cpu:1/stream 10"
20 4 1795253400123458288 counter "cpu:0/Resident memory" value=8589934594
21 4 1795253400123458289 end "cpu:1/Sync" terminating_flow=17179869186 terminating_flow=17179869188
22 4 1795253400123458289 end "cpu:1/Calls"
"""


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "trace.pb"
    path.write_bytes(data)
    return path


def test_golden(tmp_path: Path) -> None:
    """One call, line by line: clocks, tracks, interned names, begins, ends, counters, flows."""
    lines = list(dump_lines(_written(tmp_path, encode_call(*small_calls()[2]))))
    assert "\n".join(lines) + "\n" == _GOLDEN


def test_one_line_an_event(tmp_path: Path) -> None:
    """Whatever names hold, each event is one line of its own."""
    path = _written(tmp_path, encode_call(*awkward_trace()))
    lines = list(dump_lines(path))
    assert all(len(line.splitlines()) == 1 for line in lines)
    events = schema.Trace.FromString(path.read_bytes()).packet
    timed = [line for line in lines if line.split()[2] != "-"]
    assert len(timed) == sum(packet.HasField("track_event") for packet in events)
    assert any('"line\\nbreak"' in line for line in timed)


def test_merged_is_the_files_in_order(tmp_path: Path) -> None:
    """The lines of merged.pb are those of its files, packets numbered on."""
    bundle = small_bundle(tmp_path)
    files = sorted(path for path in bundle.glob("*.pb") if path.name != "merged.pb")
    alone = [line.split(" ", 1)[1] for path in files for line in dump_lines(path)]
    assert [line.split(" ", 1)[1] for line in dump_lines(bundle / "merged.pb")] == alone


def test_cut_file(tmp_path: Path) -> None:
    """Of a cut file every whole packet is told, then one sentence with offset, loss and remedy."""
    data = encode_call(*small_calls()[0])
    whole = list(dump_lines(_written(tmp_path, data)))
    ends = [end for *_, end in wire.fields(data)]
    cut = _written(tmp_path, data[:-2])
    told: list[str] = []
    expected = f"damaged at byte {ends[-2]:,}, the last {len(data) - 2 - ends[-2]} of"
    with pytest.raises(InputError, match=expected) as caught:
        told.extend(dump_lines(cut))
    assert "copy it again" in str(caught.value)
    assert "\n" not in str(caught.value)
    told = []
    lines = dump_lines(cut)
    told = [next(lines) for _ in whole[:-1]]
    assert told == whole[:-1]


def test_no_trace(tmp_path: Path) -> None:
    """A file of another kind is refused."""
    with pytest.raises(InputError, match="not a Perfetto trace"):
        list(dump_lines(_written(tmp_path, b"{}")))


def test_parents_in_a_circle(tmp_path: Path) -> None:
    """Tracks that claim each other as parents end in a path of bounded length."""
    trace = schema.Trace()
    for uuid, parent in ((1, 2), (2, 1), (3, 3)):
        descriptor = trace.packet.add().track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, parent, f"t{uuid}"
    lines = list(dump_lines(_written(tmp_path, trace.SerializeToString())))
    assert len(lines) == 3
    assert all(len(line) < 1000 for line in lines)


def test_packets_of_other_kinds(tmp_path: Path) -> None:
    """Packets that we do not know are told as such, and unknown events keep their place."""
    trace = schema.Trace()
    trace.packet.add(trusted_packet_sequence_id=3)
    event = trace.packet.add(timestamp=7).track_event
    event.type, event.name, event.track_uuid = schema.INSTANT, "mark", 9
    event.categories.append("two words")
    trace.packet.add(timestamp=8).track_event.track_uuid = 9
    assert list(dump_lines(_written(tmp_path, trace.SerializeToString()))) == [
        "1 3 - other bytes=2",
        '2 0 7 instant "track 9" "mark" category="two words"',
        '3 0 8 event "track 9"',
    ]
