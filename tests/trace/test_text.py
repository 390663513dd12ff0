"""A trace as text: golden lines, stable from run to run."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.errors import InputError
from profiler.trace import encode_call, schema
from profiler.trace.compression import Compression
from profiler.trace.dump import dump_lines
from tests.trace import wire
from tests.trace.samples import awkward_trace, small_bundle, small_calls

_GOLDEN = Path(__file__).with_name("text_golden.txt")


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "trace.pb"
    path.write_bytes(data)
    return path


def test_golden(tmp_path: Path, golden: Callable[..., None]) -> None:
    """One call, line by line: clocks, tracks, interned names, begins, ends, counters, flows."""
    golden(_GOLDEN, dump_lines(_written(tmp_path, encode_call(*small_calls()[2]))))


@pytest.mark.parametrize("how", ["deflate", "zstd"])
def test_packed_packets(tmp_path: Path, how: Compression) -> None:
    """Packets inside packets follow the packet that holds them, as if they stood in the file."""
    if how == "zstd":
        pytest.importorskip("zstandard", reason="the package zstandard is missing")
    call = small_calls()[2]
    plain = list(dump_lines(_written(tmp_path, encode_call(*call))))
    packed = list(dump_lines(_written(tmp_path, encode_call(*call, compress=how))))
    outer = [line for line in packed if "compressed_packets bytes=" in line]
    assert outer
    inner = [line for line in packed if line not in outer]
    assert [line.split(" ", 1)[1] for line in inner] == [line.split(" ", 1)[1] for line in plain]


def test_gzip(tmp_path: Path) -> None:
    """A `.gz` file is read as what it holds."""
    path = _written(tmp_path, encode_call(*small_calls()[0]))
    plain = list(dump_lines(path))
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert list(dump_lines(path)) == plain


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
    files = [bundle / "host.pb", *sorted(bundle.glob("[0-9]*.pb"))]
    alone = [line.split(" ", 1)[1] for path in files for line in dump_lines(path)]
    assert [line.split(" ", 1)[1] for line in dump_lines(bundle / "merged.pb")] == alone


def test_cut_file(tmp_path: Path) -> None:
    """Of a cut file every whole packet is told, then one sentence with offset, drop and
    recommendation."""
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


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    """Interned names and numbered texts that are not valid UTF-8 are shown with replacements."""
    data = encode_call(*small_calls()[0])
    path = _written(tmp_path, data.replace(b"mlp.fc1", b"mlp\xff\xfe\xfd1"))
    shown = ("mlp\ufffd\ufffd\ufffd1", "mlp\\ufffd\\ufffd\\ufffd1")
    assert any(name in line for line in dump_lines(path) for name in shown)
