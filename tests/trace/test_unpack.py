"""Packed traces: `.gz` files, and packets inside packets."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from profiler.errors import InputError
from profiler.trace import TraceColumns, compression, read_bytes, read_trace, schema


def _instants(first: int, last: int) -> bytes:
    trace = schema.Trace()
    for time_ns in range(first, last):
        packet = trace.packet.add(timestamp=time_ns, trusted_packet_sequence_id=1)
        packet.track_event.type, packet.track_event.name = 3, f"moment {time_ns}"
    data: bytes = trace.SerializeToString()
    return data


def _packed(data: bytes, number: int = 50) -> bytes:
    """One packet whose field `number` holds `data`."""
    field = _length_delimited(number, data)
    return _length_delimited(1, field)


def _length_delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _times(trace: TraceColumns) -> Any:
    return trace.slices.start_ns.tolist()


def test_deflate_packets() -> None:
    """Packed packets take part in order, beside plain ones."""
    data = _instants(0, 5) + _packed(zlib.compress(_instants(5, 400))) + _instants(400, 405)
    trace = read_bytes(data)
    assert _times(trace) == list(range(405))
    assert "moment 217" in trace.strings
    assert trace.drops == ()


def test_zstandard_packets() -> None:
    """Zstandard is read where Python or the package `zstandard` has it."""
    zstandard = pytest.importorskip("zstandard", reason="the package zstandard is missing")
    data = _packed(zstandard.compress(_instants(0, 400)), number=133)
    assert _times(read_bytes(data)) == list(range(400))


def test_zstandard_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Zstandard the error says what to install."""

    def no_module(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(compression, "import_module", no_module)
    with pytest.raises(InputError, match="pip install zstandard"):
        read_bytes(_packed(b"\x28\xb5\x2f\xfd", number=133))


def test_packed_packets_out_of_order() -> None:
    """What is unpacked stays while events wait for their place in time."""
    data = b"".join(_packed(zlib.compress(_instants(at, at + 100))) for at in range(900, -1, -100))
    trace = read_bytes(data)
    assert _times(trace) == list(range(1000))
    assert trace.strings[trace.slices.name[123]] == "moment 123"


@pytest.mark.parametrize("damage", [b"", b"no deflate", zlib.compress(b"\x0a\x7fno packets")])
def test_damaged_packed_packets(damage: bytes) -> None:
    """A packed packet that cannot be read is reported; what stands beside it is read."""
    trace = read_bytes(_instants(0, 3) + _packed(damage) + _instants(3, 6))
    assert _times(trace) == list(range(6))
    if damage:
        (drop,) = trace.drops
        assert (drop.kind, drop.count, drop.unit) == ("dropped_events", 1, "packets")


def test_packed_in_packed() -> None:
    """Packed packets hold no packed ones: those are reported, not unpacked."""
    inner = _packed(zlib.compress(_instants(0, 3)))
    trace = read_bytes(_instants(3, 4) + _packed(zlib.compress(inner)))
    assert _times(trace) == [3]
    assert [drop.unit for drop in trace.drops] == ["packets"]


def test_gzip_file(tmp_path: Path) -> None:
    """`.gz` files are read, of several members too; one that is cut as far as it goes."""
    data = _instants(0, 3000)
    packed = gzip.compress(data[:5000]) + gzip.compress(data[5000:])
    path = tmp_path / "trace.pb.gz"
    path.write_bytes(packed)
    assert _times(read_trace(path)) == list(range(3000))
    path.write_bytes(packed[:-900])
    trace = read_trace(path)
    assert 100 < len(trace.slices) < 3000
    assert [drop.kind for drop in trace.drops] == ["truncated_file"]


@pytest.mark.parametrize("damage", ["check sum", "length", "behind", "cut before the check sum"])
def test_damaged_gzip_keeps_what_came_before(tmp_path: Path, damage: str) -> None:
    """A `.gz` file that is damaged at its end is read, and the damage is said."""
    packed = gzip.compress(_instants(0, 3000))
    changed = {
        "check sum": packed[:-8] + b"\0\0\0\0" + packed[-4:],
        "length": packed[:-4] + b"\0\0\0\0",
        "behind": packed + b"something else",
        "cut before the check sum": packed[:-8],
    }
    path = tmp_path / "trace.pb.gz"
    path.write_bytes(changed[damage])
    trace = read_trace(path)
    assert _times(trace) == list(range(3000))
    assert [(drop.kind, drop.count, drop.unit) for drop in trace.drops] == [
        ("truncated_file", 1, "files")
    ]


def test_gzip_of_many_members() -> None:
    """Each member costs what it holds, not the rest of the file: 100,000 of them are read."""
    member = gzip.compress(_instants(7, 8))
    assert len(read_bytes(gzip.compress(b"") * 100_000 + member).slices) == 1


@pytest.mark.parametrize("how", ["deflate", "zstd"])
def test_packed_packets_that_are_cut(how: str) -> None:
    """Of a packed packet that ends early, what it holds up to there is read, and the drop said."""
    data = _instants(0, 3000)
    if how == "zstd":
        zstandard = pytest.importorskip("zstandard", reason="the package zstandard is missing")
        inner = zstandard.compress(data)
        packed = _packed(inner[:-200], number=133)
    else:
        packed = _packed(zlib.compress(data)[:-200])
    trace = read_bytes(packed + _instants(3000, 3010))
    assert 10 <= len(trace.slices) < 3010
    assert [(drop.kind, drop.unit) for drop in trace.drops] == [("dropped_events", "packets")]


def test_one_bound_for_all_layers() -> None:
    """A `.gz` of packed packets unpacks to no more than one of the two alone might."""
    packet = _packed(zlib.compress(bytes(1 << 22), 9))
    with pytest.raises(InputError, match="more than 256 times"):
        read_bytes(gzip.compress(packet * 200))


def test_gzip_of_something_else(tmp_path: Path) -> None:
    """A damaged `.gz` file, or one of no trace, is refused in one sentence."""
    for data in (b"\x1f\x8b\x08\x00 not really", gzip.compress(b"some text, no trace")):
        path = tmp_path / "other.gz"
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"no whole \.gz file|not a Perfetto trace"):
            read_trace(path)


@pytest.mark.parametrize("how", ["gzip", "deflate", "zstd"])
def test_bombs(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would unpack to hundreds of times its size is refused before it is there."""
    monkeypatch.setattr(compression, "_LEAST", 1 << 16)
    nothing = bytes(1 << 26)
    if how == "zstd":
        zstandard = pytest.importorskip("zstandard", reason="the package zstandard is missing")
        data = _packed(zstandard.compress(nothing), number=133)
    else:
        data = gzip.compress(nothing) if how == "gzip" else _packed(zlib.compress(nothing, 9))
    with pytest.raises(InputError, match="more than 256 times"):
        read_bytes(data)
