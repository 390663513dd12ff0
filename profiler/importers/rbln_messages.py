"""The part of Perfetto's messages that RBLN's traces use, for `rbln_trace` until the project's own
reader returns debug annotations and process ids. Field numbers are Perfetto's."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["trace_message"]

_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Trace": {"packet": (1, "TracePacket*")},
    "TracePacket": {
        "timestamp": (8, "uint64"),
        "trusted_packet_sequence_id": (10, "uint32"),
        "track_event": (11, "TrackEvent"),
        "interned_data": (12, "InternedData"),
        "sequence_flags": (13, "uint32"),
        "trace_packet_defaults": (59, "Defaults"),
        "track_descriptor": (60, "TrackDescriptor"),
    },
    "Defaults": {"track_event_defaults": (11, "EventDefaults")},
    "EventDefaults": {"track_uuid": (11, "uint64")},
    "InternedData": {
        "event_names": (2, "Text*"),
        "debug_annotation_names": (3, "Text*"),
        "debug_annotation_string_values": (29, "Text*"),
    },
    "Text": {"iid": (1, "uint64"), "name": (2, "string")},
    "TrackDescriptor": {
        "uuid": (1, "uint64"),
        "parent_uuid": (5, "uint64"),
        "name": (2, "string"),
        "static_name": (10, "string"),
        "process": (3, "Process"),
        "thread": (4, "Thread"),
    },
    "Process": {"pid": (1, "int32"), "process_name": (6, "string")},
    "Thread": {"pid": (1, "int32"), "tid": (2, "int32"), "thread_name": (5, "string")},
    "TrackEvent": {
        "debug_annotations": (4, "Annotation*"),
        "type": (9, "uint32"),
        "name_iid": (10, "uint64"),
        "track_uuid": (11, "uint64"),
        "name": (23, "string"),
        "flow_ids_old": (36, "uint64*"),
        "terminating_flow_ids_old": (42, "uint64*"),
        "flow_ids": (47, "fixed64*"),
        "terminating_flow_ids": (48, "fixed64*"),
    },
    "Annotation": {
        "name_iid": (1, "uint64"),
        "string_value": (6, "string"),
        "name": (10, "string"),
        "string_value_iid": (17, "uint64"),
    },
}


@cache
def trace_message() -> Any:
    """The class of `Trace`, in a pool of its own; field numbers are Perfetto's."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = "profile_sd3.rbln"
    file = descriptor_pb2.FileDescriptorProto(name="rbln.proto", package=package, syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _FIELDS.items():
        descriptor = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            single = kind.removesuffix("*")
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            added = descriptor.field.add(name=name, number=number, label=label)
            if single in _FIELDS:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{package}.{single}"
            else:
                added.type = getattr(kinds, f"TYPE_{single.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Trace"))
