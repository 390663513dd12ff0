"""A trace file with other texts: everything of a packet that this package knows, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profiler.trace import schema
from profiler.trace.framing import decoded_packets
from profiler.trace.state import text

__all__ = ["with_texts"]

_PACKAGES = (schema.PACKAGE, "perfetto.protos")  # the latter: what ours extends
_PACKED = ("compressed_packets", "zstd_compressed_packets")


def with_texts(data: bytes, replaced: Callable[[str], str], where: str = "the trace") -> bytes:
    """The packets of `data`, unpacked, with each text as `replaced` gives it. What another tool
    wrote into them, and this package does not know, is left out."""
    known = _Texts(replaced)
    parts: list[bytes] = []
    for _, packet in decoded_packets(data, where):
        if any(map(packet.HasField, _PACKED)):
            continue  # what it holds follows
        packet.DiscardUnknownFields()
        known.replace(packet)
        if packet.HasField("extension_descriptor"):
            descriptor = packet.extension_descriptor
            descriptor.extension_set = known.extension_set(descriptor.extension_set)
        trace = schema.Trace()
        trace.packet.append(packet)
        parts.append(trace.SerializeToString())
    return b"".join(parts)


class _Texts:
    """Replaces texts in messages; each is looked at once."""

    def __init__(self, replaced: Callable[[str], str]) -> None:
        self._replaced = replaced
        self._known: dict[str, str] = {}

    def replace(self, message: Any) -> None:
        """Replace all texts of a message, and of those in it, in place."""
        for field, value in message.ListFields():
            if field.message_type is not None:
                for part in (value,) if hasattr(value, "ListFields") else value:
                    self.replace(part)
            elif field.type == field.TYPE_STRING:
                self._set(message, field, value)

    def _set(self, message: Any, field: Any, value: Any) -> None:
        if isinstance(value, (str, bytes)):  # no extension of ours is a text itself
            setattr(message, field.name, self._one(value))
        else:
            value[:] = map(self._one, value)

    def _one(self, value: str | bytes) -> str:
        before = text(value)
        if before not in self._known:
            self._known[before] = self._replaced(before)
        return self._known[before]

    def extension_set(self, data: bytes) -> bytes:
        """Our definitions with the texts of commands, which are values of an enum, replaced; empty
        where they are not ours."""
        if data == schema.EXTENSION_SET:
            return data
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(data)
        except DecodeError:
            return b""
        found.DiscardUnknownFields()
        kept = [file for file in found.file if file.package in _PACKAGES]
        for enum in (enum for file in kept for enum in file.enum_type if enum.name == "Text"):
            for value in enum.value:
                value.name = self._one(value.name)
        return bytes(descriptor_pb2.FileDescriptorSet(file=kept).SerializeToString())
