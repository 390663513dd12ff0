"""Protobuf's wire format, read independently of any definition."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["fields", "varint", "whole_length"]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the offset behind it."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Fields of a message: number, raw payload, and the offset behind it."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        begin = at
        if kind == 0:
            _, at = varint(data, at)
        elif kind == 2:
            length, begin = varint(data, at)
            at = begin + length
        else:
            at += {1: 8, 5: 4}[kind]
        yield tag >> 3, data[begin:at], at


def whole_length(data: bytes) -> int:
    """The bytes of a message up to the end of its last whole field."""
    whole = 0
    try:
        for _, _, end in fields(data):
            whole = end if end <= len(data) else whole
    except IndexError:  # cut within a number
        pass
    return whole
