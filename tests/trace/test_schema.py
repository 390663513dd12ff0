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
