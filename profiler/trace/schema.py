"""The message classes of the trace format, from `schemas/`, in a pool of our own.

A private pool keeps us clear of the `perfetto` package, which registers messages of the same
shape in the default pool. Classes, extensions and `EXTENSION_SET` are made when one is first asked
for: who only reads traces needs none, and no protobuf.
"""

from __future__ import annotations

from typing import Any

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
    "load",
]


SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type
INCREMENTAL_STATE_CLEARED, NEEDS_INCREMENTAL_STATE = 1, 2  # TracePacket.SequenceFlags
CLOCK_REALTIME, CLOCK_BOOTTIME = 1, 6  # BuiltinClock
FIRST_SEQUENCE_CLOCK = 64  # clock ids 64-127 belong to one packet sequence
ORDER_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
PACKAGE = "profile_sd3.trace"
UNIT_COUNT, UNIT_BYTES = 2, 3  # CounterDescriptor.Unit


def _resource(name: str) -> bytes:
    from importlib.resources import files

    return files("profiler.trace").joinpath(name).read_bytes()


CALL: Any
COMMAND: Any
SPAN: Any
EXTENSION_SET: bytes
Trace: Any
TracePacket: Any
TrackEvent: Any


def __getattr__(name: str) -> Any:
    """What is made at its first use; all of it then."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load()
    return globals()[name]


def load() -> None:
    """Make all of it, if it is not; waits for another thread that imports what it takes."""
    if "Trace" not in globals():
        globals().update(_made())


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
        "EXTENSION_SET": _resource("extension.binpb"),
    }
