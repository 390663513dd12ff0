"""XSpaces as bytes, encoded here field by field: no message class of ours is asked.

space(plane("/device:TPU:0", [line("XLA Ops", [event("add", 0, 5)])]))
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class E:
    """An event: ps from its line's begin, and its statistics; `display`, `of_kind` belong to its
    kind."""

    name: str
    start: int
    length: int
    stats: Mapping[str, object] = field(default_factory=dict)
    display: str = ""
    of_kind: Mapping[str, object] = field(default_factory=dict)
    occurrences: int | None = None


@dataclass
class L:
    name: str
    events: Sequence[E]
    timestamp_ns: int = 0


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def part(tag: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(tag << 3 | 2) + varint(len(data)) + data


def plane(
    name: str, lines: Sequence[L] = (), stats: Mapping[str, object] | None = None, identity: int = 3
) -> bytes:
    """A plane in the order in which XLA writes it: lines ahead of the names in them."""
    names: dict[str, int] = {}
    kinds: dict[tuple[str, str], tuple[int, bytes]] = {}

    def stat(tag: int, key: str, value: object) -> bytes:
        body = number(1, names.setdefault(key, len(names) + 1))
        if isinstance(value, float):
            body += varint(2 << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            body += number(3 if value >= 0 else 4, value)
        elif isinstance(value, str) and value.startswith("ref:"):
            body += number(7, names.setdefault(value[4:], len(names) + 1))
        else:
            body += part(5, str(value))
        return part(tag, body)

    def kind(one: E) -> int:
        key = (one.name, one.display)
        if key not in kinds:
            kinds[key] = (len(kinds) + 1, b"")
            body = number(1, kinds[key][0]) + part(2, one.name)
            body += part(4, one.display) if one.display else b""
            body += b"".join(stat(5, *each) for each in one.of_kind.items())
            kinds[key] = (kinds[key][0], body)
        return kinds[key][0]

    written = b""
    for each in lines:
        body = part(2, each.name)
        body += number(3, each.timestamp_ns) if each.timestamp_ns else b""
        for one in each.events:
            inner = number(1, kind(one))
            inner += number(2, one.start) if one.occurrences is None else number(5, one.occurrences)
            inner += number(3, one.length)
            inner += b"".join(stat(4, *pair) for pair in one.stats.items())
            body += part(4, inner)
        written += part(3, body)
    told = b"".join(stat(6, *each) for each in (stats or {}).items())
    entries = b"".join(
        part(4, number(1, n) + part(2, body)) for n, body in kinds.values()
    ) + b"".join(
        part(5, number(1, n) + part(2, number(1, n) + part(2, key))) for key, n in names.items()
    )
    return number(1, identity) + part(2, name) + written + entries + told


def space(*planes: bytes, hostname: str = "") -> bytes:
    data = b"".join(part(1, each) for each in planes)
    return data + (part(4, hostname) if hostname else b"")
