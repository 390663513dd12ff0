"""Compile the schemas into what the codec ships: `python schemas/build.py` (needs the dev extra).

Writes `profiler/importers/xplane.binpb`, the part of XLA's XSpace that is imported,
`profiler/kineto/gpu.binpb`, that of Perfetto's traces of GPUs, and beside
`profiler/trace/schema.py`:

- `schema.binpb`: the FileDescriptorSet of both .proto files, loaded into a private pool;
- `extension.binpb`: the same extension against Perfetto's own `TrackEvent`, embedded in every
  trace by an ExtensionDescriptor packet. A stub of `TrackEvent` that declares only its extension
  range is enough for the Perfetto UI and trace_processor.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

SCHEMAS = Path(__file__).resolve().parent
PROFILER = SCHEMAS.parent / "profiler"
TRACE = PROFILER / "trace"
IMPORTERS = PROFILER / "importers"


def compiled(proto: str) -> descriptor_pb2.FileDescriptorSet:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "schema.binpb"
        command = ["protoc", f"-I{SCHEMAS}", f"--descriptor_set_out={out}", proto]
        if protoc.main([*command, "--include_imports"]) != 0:
            raise SystemExit("protoc refused the schemas")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def for_perfetto(ours: descriptor_pb2.FileDescriptorSet) -> descriptor_pb2.FileDescriptorSet:
    """The extension as Perfetto needs it: extending `.perfetto.protos.TrackEvent`."""
    stub = descriptor_pb2.FileDescriptorProto(
        name="protos/perfetto/trace/track_event/track_event.proto", package="perfetto.protos"
    )
    event = stub.message_type.add(name="TrackEvent")
    event.extension_range.add(start=9900, end=10000)
    (extension,) = [file for file in ours.file if file.name == "profile_sd3.proto"]
    extension = descriptor_pb2.FileDescriptorProto.FromString(extension.SerializeToString())
    extension.dependency[:] = [stub.name]
    (wrapper,) = [message for message in extension.message_type if message.name == "Extension"]
    for field in wrapper.extension:
        field.extendee = ".perfetto.protos.TrackEvent"
    (command,) = [message for message in extension.message_type if message.name == "Command"]
    number_texts(command)
    extension.enum_type.add(name="Text").value.add(name="TEXT_UNSPECIFIED", number=0)
    return descriptor_pb2.FileDescriptorSet(file=[stub, extension])


def number_texts(command: descriptor_pb2.DescriptorProto) -> None:
    """Make the numbered texts of `command` enums, in place of the texts themselves."""
    numbered = {field.name for field in command.field if field.name.endswith("_text")}
    plain = [field for field in command.field if f"{field.name}_text" not in numbered]
    for field in plain:
        if field.name in numbered:
            field.name = field.name.removesuffix("_text")
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_ENUM
            field.type_name = ".profile_sd3.trace.Text"
    fields = [descriptor_pb2.FieldDescriptorProto.FromString(f.SerializeToString()) for f in plain]
    del command.field[:]
    command.field.extend(fields)


def main() -> None:
    ours = compiled("profile_sd3.proto")
    outputs = {
        TRACE / "schema.binpb": ours,
        TRACE / "extension.binpb": for_perfetto(ours),
        IMPORTERS / "xplane.binpb": compiled("xplane_subset.proto"),
        PROFILER / "kineto" / "gpu.binpb": compiled("gpu_subset.proto"),
    }
    for path, descriptor_set in outputs.items():
        data = descriptor_set.SerializeToString(deterministic=True)
        if "--check" not in sys.argv:
            path.write_bytes(data)
        elif path.read_bytes() != data:
            raise SystemExit(f"{path.name} is stale: run python schemas/build.py")


if __name__ == "__main__":
    main()
