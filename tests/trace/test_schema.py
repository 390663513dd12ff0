"""The compiled schemas are those of `schemas/`, and live beside Perfetto's own in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
_THEIRS = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as theirs"
_OURS = "import profiler.trace.schema as ours"
_USE = """
event = ours.Trace().packet.add().track_event
event.Extensions[ours.COMMAND].layer = "layer"
assert theirs.TrackEvent.FromString(event.SerializeToString()).ByteSize() == event.ByteSize()
"""


def _python(*arguments: str) -> None:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_compiled_schemas_are_fresh() -> None:
    """`schema.binpb` and `extension.binpb` are what the .proto files compile to."""
    pytest.importorskip("grpc_tools", reason="protoc is missing: install the test extra")
    _python("schemas/build.py", "--check")


@pytest.mark.parametrize("imports", [(_THEIRS, _OURS), (_OURS, _THEIRS)])
def test_beside_the_perfetto_package(imports: tuple[str, str]) -> None:
    """Our messages and the `perfetto` package's load in one process, in either order."""
    pytest.importorskip("perfetto", reason="needs the perfetto extra")
    _python("-c", "\n".join((*imports, _USE)))


def test_extension_needs_no_perfetto_definitions() -> None:
    """The embedded descriptor set stands on its own: a stub of TrackEvent and our messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    from profiler.trace import schema

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(schema.EXTENSION_SET).file:
        pool.Add(file)
    event = pool.FindMessageTypeByName("perfetto.protos.TrackEvent")
    found = {extension.number: extension.name for extension in pool.FindAllExtensions(event)}
    assert found == {9900: "command", 9901: "call", 9902: "span"}


def test_messages_are_those_of_protobuf() -> None:
    """Numbers at the ends of their types, truth values, texts, lone surrogates and messages within
    messages have the bytes that protobuf gives them."""
    from profiler.trace import schema

    event = schema.TrackEvent(correlation_id_str="vae?")
    call = event.Extensions[schema.CALL]
    call.index, call.step, call.ops_traced, call.submodule = 2**31 - 1, -1, True, ""
    call.inputs.add(name="é", shape="x" * 200)
    call.device_lag_ns = -(2**63)
    own = schema.serialized(
        (1, 2**31 - 1),
        (2, ""),
        (5, -1),
        (7, True),
        (8, schema.serialized((1, "é"), (2, "x" * 200))),
        (11, -(2**63)),
    )
    assert schema.serialized((53, "vae\ud800"), (9901, own)) == event.SerializeToString()


def test_a_trace_is_written_without_protobuf() -> None:
    """Its import would take time from the first call that is recorded, and from every import."""
    _python(
        "-c",
        "import sys\n"
        "from profiler.trace.columns import CommandBuilder\n"
        "from profiler.trace.events import Span\n"
        "from profiler.trace.writer import encode_host\n"
        "spans = [Span('pipeline', 'SD3', '', -1, 1, 2)]\n"
        "assert encode_host(spans, CommandBuilder().build(), 'cpu:0', compress='deflate')\n"
        "assert 'google.protobuf' not in sys.modules",
    )
