"""The message classes of the trace format, from `schemas/`, in a pool of our own.

A private pool keeps us clear of the `perfetto` package, which registers messages of the same
shape in the default pool.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = [
    "CALL",
    "CLOCK_BOOTTIME",
    "CLOCK_REALTIME",
    "COMMAND",
    "COUNTER",
    "EXTENSION_SET",
    "FIRST_SEQUENCE_CLOCK",
    "INCREMENTAL_STATE_CLEARED",
    "INSTANT",
    "NEEDS_INCREMENTAL_STATE",
    "ORDER_EXPLICIT",
    "PACKAGE",
    "SLICE_BEGIN",
    "SLICE_END",
    "SPAN",
    "UNIT_BYTES",
    "UNIT_COUNT",
    "Trace",
    "TracePacket",
    "TrackEvent",
]

SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type
INCREMENTAL_STATE_CLEARED, NEEDS_INCREMENTAL_STATE = 1, 2  # TracePacket.SequenceFlags
CLOCK_REALTIME, CLOCK_BOOTTIME = 1, 6  # BuiltinClock
FIRST_SEQUENCE_CLOCK = 64  # clock ids 64-127 belong to one packet sequence
ORDER_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
PACKAGE = "profile_sd3.trace"
UNIT_COUNT, UNIT_BYTES = 2, 3  # CounterDescriptor.Unit


def _resource(name: str) -> bytes:
    return files("profiler.trace").joinpath(name).read_bytes()


def _load_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(_resource("schema.binpb")).file:
        pool.Add(file)
    return pool


_POOL = _load_pool()


def _message(name: str) -> Any:
    descriptor = _POOL.FindMessageTypeByName(f"{PACKAGE}.{name}")
    return message_factory.GetMessageClass(descriptor)


def _extension(name: str) -> Any:
    return _POOL.FindExtensionByName(f"{PACKAGE}.Extension.{name}")


Trace: Any = _message("Trace")
TracePacket: Any = _message("TracePacket")
TrackEvent: Any = _message("TrackEvent")
for _name in ("Command", "Call", "Span"):
    _message(_name)

COMMAND: Any = _extension("command")
CALL: Any = _extension("call")
SPAN: Any = _extension("span")

EXTENSION_SET: bytes = _resource("extension.binpb")
