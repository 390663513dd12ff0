"""Protobuf's wire format, as far as ONNX files use it: fields of a message one by one, no schema.

Lengths are checked before anything is read; what does not fit raises ValueError, what is cut
IndexError.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import TypeAlias

__all__ = [
    "Buffer",
    "fields",
    "length_field",
    "messages",
    "messages_of",
    "number_field",
    "varint",
    "varints",
]

Buffer: TypeAlias = "bytes | mmap.mmap"


def messages(data: Buffer, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields that have a length: number, begin and end of what they hold."""
    return (found for found in fields(data, begin, end) if found[2] >= 0)


def messages_of(
    data: Buffer, begin: int, end: int, *numbers: int
) -> Iterator[tuple[int, int, int]]:
    """Those of them that have one of these numbers."""
    return (found for found in messages(data, begin, end) if found[0] in numbers)


def fields(data: Buffer, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields of a message: number, begin and end of what has a length, else the value and -1."""
    while begin < end:
        tag, begin = varint(data, begin)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, begin = varint(data, begin)
            yield number, value, -1
        elif wire == 2:
            length, begin = varint(data, begin)
            if begin + length > end:
                raise ValueError(f"field {number} is cut at byte {begin}")
            yield number, begin, begin + length
            begin += length
        elif wire in (1, 5):
            begin += 8 if wire == 1 else 4
        else:
            raise ValueError(f"no field begins at byte {begin}")
    if begin > end:
        raise ValueError(f"a field is cut at byte {end}")


def varints(data: Buffer, begin: int, end: int) -> Iterator[int]:
    """The numbers that stand there one after the other, as in a packed field."""
    while begin < end:
        value, begin = varint(data, begin)
        yield value


def varint(data: Buffer, begin: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = data[begin]
    if value < 0x80:
        return value, begin + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        begin += 1
        byte = data[begin]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, begin + 1
    raise ValueError(f"a number does not end at byte {begin}")


def length_field(number: int, content: bytes | str) -> bytes:
    """A field that has a length: a message, a text or bytes."""
    data = content.encode() if isinstance(content, str) else content
    return _number(number << 3 | 2) + _number(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    """A field with a number that is not negative."""
    return _number(number << 3) + _number(value)


def _number(value: int) -> bytes:
    """A number that is not negative, as a varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
