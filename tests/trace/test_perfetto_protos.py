"""Perfetto's own message definitions read our bytes, and see the events that we see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from profiler.trace import encode_call, encode_host, schema
from tests.trace import wire
from tests.trace.samples import awkward_trace, small_calls, small_host

theirs = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="Perfetto's message definitions are missing: install the perfetto extra",
)

_DESCRIPTORS = ("extension_set",)  # compiled definitions, of which Perfetto keeps a part
_FILES = {
    **{call.file_name: encode_call(call, *rest) for call, *rest in small_calls()},
    "awkward": encode_call(*awkward_trace()),
    "host": encode_host(*small_host(), "cpu:0"),
}


def _unknown(message: Any, path: str = "") -> Iterator[str]:
    """Numbers of the fields that a message's definition does not have, with where they stand."""
    from google.protobuf import unknown_fields

    yield from (f"{path}.{field.field_number}" for field in unknown_fields.UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None and field.name not in _DESCRIPTORS:
            for entry in value if field.is_repeated else [value]:
                yield from _unknown(entry, f"{path}.{field.name}")


def _content(message: Any) -> dict[int, Any]:
    """The fields of a message by number, without extensions."""
    content = {}
    for field, value in message.ListFields():
        if field.is_extension or field.name in _DESCRIPTORS:
            continue
        entries = list(value) if field.is_repeated else [value]
        nested = field.message_type is not None
        content[field.number] = [_content(entry) if nested else entry for entry in entries]
    return content


@pytest.mark.parametrize("name", _FILES)
def test_nothing_is_unknown_but_the_extension(name: str) -> None:
    """Perfetto's definitions know every field that we write, but those of our extension."""
    allowed = {
        f".packet.track_event.{e.number}" for e in (schema.COMMAND, schema.CALL, schema.SPAN)
    }
    assert set(_unknown(theirs.Trace.FromString(_FILES[name]))) <= allowed


@pytest.mark.parametrize("name", _FILES)
def test_same_packets(name: str) -> None:
    """Packet for packet, Perfetto's definitions read the values that ours read."""
    expected = schema.Trace.FromString(_FILES[name])
    assert _content(theirs.Trace.FromString(_FILES[name])) == _content(expected)


@pytest.mark.parametrize("name", _FILES)
def test_one_interned_data_a_packet(name: str) -> None:
    """Readers do not merge two `interned_data` fields of one packet, so none may have two."""
    for _, packet, _ in wire.fields(_FILES[name]):
        numbers = [number for number, _, _ in wire.fields(packet)]
        assert numbers.count(schema.TracePacket.INTERNED_DATA_FIELD_NUMBER) <= 1
