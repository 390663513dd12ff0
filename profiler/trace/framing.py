"""Packets of a trace file one by one, as messages: for `profile-sd3 dump`, which shows them all,
and `profile-sd3 view`, whose UI does not read those packed with Zstandard.

A `Trace` is nothing but its packets, one length-delimited field after another, so a file that was
cut keeps every packet before the cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.trace import schema
from profiler.trace.unpack import Unpacker, is_gzip

__all__ = ["decoded_packets", "file_bytes", "holds_zstd", "without_zstd"]

_LIMIT = (1 << 31) - 1  # protobuf's own limit for one message
_PACKET_TAG = 0x0A  # field 1, length-delimited


def file_bytes(path: Path) -> bytes:
    """The content of a trace file, unpacked where it is a `.gz`. Raises InputError where it cannot
    be one."""
    try:
        size = path.stat().st_size
        if size == 0:
            raise InputError(f"{path} is empty: record or copy it again")
        if size > _LIMIT:
            raise InputError(f"{path} is larger than 2 GiB: read the call files one by one instead")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    with memoryview(data) as view:
        return Unpacker(size, str(path)).gunzip(view)[0] if is_gzip(view) else data


def decoded_packets(data: bytes, where: str = "the trace") -> Iterator[tuple[int, Any]]:
    """Every whole packet with the offset behind it; ends where the next one is cut or damaged.

    The packets that a compressed one holds follow it, with its offset.
    """
    unpacker = Unpacker(len(data), where)
    for offset, packet in _frames(data):
        yield offset, packet
        for how, field in (("deflate", "compressed_packets"), ("zstd", "zstd_compressed_packets")):
            if packet.HasField(field):
                unpacked = unpacker(how, getattr(packet, field))
                yield from ((offset, inner) for _, inner in _frames(unpacked or b""))


def holds_zstd(data: bytes) -> bool:
    """Whether the first packet of a trace, of which `data` is the begin, is packed with Zstandard:
    then all of them are."""
    if not data or data[0] != _PACKET_TAG:
        return False
    payload = next((at for at in range(1, min(11, len(data))) if data[at] < 0x80), len(data)) + 1
    number = schema.TracePacket.DESCRIPTOR.fields_by_name["zstd_compressed_packets"].number
    tag = bytes([number << 3 & 0x7F | 2 | 0x80, number >> 4])
    return data[payload : payload + 2] == tag


def without_zstd(data: bytes, where: str = "the trace") -> Iterator[bytes]:
    """The packets of a trace in pieces, those packed with Zstandard unpacked."""
    unpacker = Unpacker(len(data), where)
    begin = 0
    for end, packet in _frames(data):
        if packet.HasField("zstd_compressed_packets"):
            yield unpacker("zstd", packet.zstd_compressed_packets) or b""
        else:
            yield data[begin:end]
        begin = end


def _frames(data: bytes) -> Iterator[tuple[int, Any]]:
    from google.protobuf.message import DecodeError

    offset = 0
    while (frame := _frame(data, offset)) is not None:
        begin, offset = frame
        try:
            packet = schema.TracePacket.FromString(data[begin:offset])
        except DecodeError:
            return
        yield offset, packet


def _frame(data: bytes, offset: int) -> tuple[int, int] | None:
    """Begin and end of the payload of the packet at `offset`, None where there is no whole one."""
    if offset >= len(data) or data[offset] != _PACKET_TAG:
        return None
    length = shift = 0
    for cursor in range(offset + 1, min(offset + 6, len(data))):
        length |= (data[cursor] & 0x7F) << shift
        if data[cursor] < 0x80:
            begin = cursor + 1
            return (begin, begin + length) if begin + length <= len(data) else None
        shift += 7
    return None
