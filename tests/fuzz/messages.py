"""Protobuf messages put together by hand, for what no library would write."""

from __future__ import annotations

__all__ = ["field", "varint"]


def varint(value: int) -> bytes:
    """`value` as protobuf writes it."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def field(number: int, value: int | bytes) -> bytes:
    """One field of a message: a number as varint, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value
