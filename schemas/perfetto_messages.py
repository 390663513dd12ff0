"""List the messages that trace_processor knows for typed arguments of events without being told.

    python schemas/perfetto_messages.py PERFETTO    (a checkout of google/perfetto; the dev extra)

Writes `perfetto_messages.inc` of `profiler/trace/core/foreign`: TrackEvent, Chrome's extension of
it, and what both refer to.

A string is a message, `Name|field|…` with fields `<number><kind><name>`, or an enum,
`=Name|value|…` with values `<number>,<name>`. A field's kind is the letter of its descriptor type
(b is 1), a capital where it is repeated; `!` before its name says packed, and `:Type` after it
which message or enum it is. Names are those of package perfetto.protos.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_tools import protoc

_CORE = Path(__file__).resolve().parent.parent / "profiler/trace/core"
TARGET = _CORE / "foreign/perfetto_messages.inc"
_FILES = (
    "protos/perfetto/trace/trace.proto",
    "protos/third_party/chromium/chrome_track_event.proto",
)
_PACKAGE = "perfetto.protos."
_WIDTH = 96
_HEAD = """\
// Messages of Perfetto, by schemas/perfetto_messages.py, which explains the notation. Facts of the
// format, taken from google/perfetto (Apache-2.0) and Chromium (BSD-3-Clause).
"""


def pool_of(perfetto: str) -> DescriptorPool:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "perfetto.binpb"
        command = ["protoc", f"-I{perfetto}", f"--descriptor_set_out={out}", "--include_imports"]
        if protoc.main([*command, *_FILES]) != 0:
            raise SystemExit(f"protoc refused the protos of {perfetto}")
        pool = DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
            pool.Add(file)
        return pool


def field_text(field: FieldDescriptor) -> str:
    kind = chr(ord("a") + field.type)
    if field.is_repeated:
        kind = kind.upper()
    packed = "!" if field.has_options and field.GetOptions().packed else ""
    target = field.message_type or field.enum_type
    suffix = f":{target.full_name.removeprefix(_PACKAGE)}" if target else ""
    return f"{field.number}{kind}{packed}{field.name}{suffix}"


def messages(pool: DescriptorPool) -> Iterator[str]:
    event = pool.FindMessageTypeByName(f"{_PACKAGE}TrackEvent")
    extensions = sorted(pool.FindAllExtensions(event), key=lambda field: field.number)
    found = {"DebugAnnotation"}  # which is shown in a way of its own
    waiting: list[Descriptor | EnumDescriptor] = [event]
    while waiting:
        one = waiting.pop()
        name = one.full_name.removeprefix(_PACKAGE)
        if name in found:
            continue
        found.add(name)
        if isinstance(one, EnumDescriptor):
            yield f"={name}|" + "|".join(f"{value.number},{value.name}" for value in one.values)
            continue
        fields = [*one.fields, *(extensions if one is event else ())]
        if fields:
            yield f"{name}|" + "|".join(map(field_text, fields))
        waiting += [other for f in fields if (other := f.message_type or f.enum_type)]


def literals(texts: list[str]) -> Iterator[str]:
    for text in texts:
        parts = [text[at : at + _WIDTH - 1] for at in range(0, len(text), _WIDTH - 1)]
        yield "\n".join(f'"{part}"' for part in parts) + ","


def main() -> None:
    texts = sorted(messages(pool_of(sys.argv[1])))
    TARGET.write_text(_HEAD + "\n".join(literals(texts)) + "\n")


if __name__ == "__main__":
    main()
