"""The cases of this folder: a trace as text, its bytes, and what trace_processor makes of it."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
TEXTS = sorted(FOLDER.glob("*.textproto"))


def encoded(path: Path) -> bytes:
    """The bytes of a `.textproto`; what no text can write stands behind it in hexadecimal.

    Needs the perfetto extra.
    """
    from google.protobuf import text_format
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    text = path.read_text(encoding="utf-8")
    trace = text_format.Parse(text, perfetto_trace_pb2.Trace())
    behind = re.findall(r"^# then: ([0-9a-f]+)$", text, re.M)
    first: bytes = trace.SerializeToString(deterministic=True)
    return first + b"".join(map(bytes.fromhex, behind))
