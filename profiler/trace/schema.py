"""The message classes of the trace format, from `schemas/`, in a pool of our own.

A private pool avoids conflicts with the `perfetto` package, which registers the same messages in
the default pool. Classes and extensions are made on first use: reading and writing traces does not
need protobuf, whose import takes up to 40 ms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type
INCREMENTAL_STATE_CLEARED, NEEDS_INCREMENTAL_STATE = 1, 2  # TracePacket.SequenceFlags
CLOCK_REALTIME, CLOCK_BOOTTIME = 1, 6  # BuiltinClock
FIRST_SEQUENCE_CLOCK = 64  # clock ids 64-127 belong to one packet sequence
ORDER_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
PACKAGE = "profile_sd3.trace"
UNIT_COUNT, UNIT_BYTES = 2, 3  # CounterDescriptor.Unit


def _resource(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


EXTENSION_SET = _resource("extension.binpb")
CALL: Any
COMMAND: Any
SPAN: Any
Trace: Any
TracePacket: Any
TrackEvent: Any


def serialized(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A serialized message of fields, each a number and a value, in rising order of their numbers.

    Whole numbers, truth values and enums are varints; messages and texts, without lone surrogates,
    have their length before them. Source: protobuf.dev/programming-guides/encoding.
    """
    parts: list[bytes] = []
    for number, value in fields:
        data = value.encode("utf-8", "replace") if isinstance(value, str) else value
        if isinstance(data, bytes):
            parts += (_varint(number << 3 | 2), _varint(len(data)), data)
        else:
            parts += (_varint(number << 3), _varint(int(data) & _64_BITS))
    return b"".join(parts)


_64_BITS = (1 << 64) - 1


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def __getattr__(name: str) -> Any:
    """A message class or extension; the first use makes all of them."""
    if name not in ("CALL", "COMMAND", "SPAN", "Trace", "TracePacket", "TrackEvent"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(_made())
    return globals()[name]


def _made() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_resource("schema.binpb")).file:
        pool.Add(file)

    def message(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))

    for extension in ("Command", "Call", "Span"):
        message(extension)
    return {
        **{name: message(name) for name in ("Trace", "TracePacket", "TrackEvent")},
        **{
            name.upper(): pool.FindExtensionByName(f"{PACKAGE}.Extension.{name}")
            for name in ("command", "call", "span")
        },
    }
