"""A small trace, packet by packet, as Perfetto's own message definitions read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from profiler.trace import encode_call
from tests.trace.writer_samples import small_call

theirs = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="Perfetto's message definitions are missing: install the perfetto extra",
)

_GOLDEN = Path(__file__).with_name("writer_golden.txt")


def _line(packet: Any) -> str:
    """One packet as text. Our static definitions are tested elsewhere: only their names."""
    for file in packet.extension_descriptor.extension_set.file:
        if file.message_type:
            del file.message_type[:]
            del file.enum_type[:]
    text: str = text_format.MessageToString(
        packet, as_one_line=True, print_unknown_fields=True, as_utf8=True
    )
    return text


def test_golden(golden: Callable[..., None]) -> None:
    """Clocks, tracks, names, texts, sections, begins, ends, counter samples and flows."""
    packets = theirs.Trace.FromString(encode_call(*small_call())).packet
    golden(_GOLDEN, map(_line, packets))
