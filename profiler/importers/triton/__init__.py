"""Traces of the Triton Inference Server (`--trace-config triton,file=…`)."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, Option, reader

_ID = re.compile(rb'"id"\s*:\s*\d')
_STAMP = re.compile(rb'"timestamps"\s*:\s*\[\s*(?:\{\s*"(?:name|ns)"|\])')
_MODEL = re.compile(rb'"(?:model_name|activity)"\s*:\s*"')


def _recognises(_path: Path, head: bytes) -> bool:
    if head.lstrip()[:1] != b"[":
        return False
    return all(pattern.search(head) for pattern in (_ID, _STAMP, _MODEL))


IMPORTER = Importer(
    name="triton",
    title="Triton Inference Server",
    accepts="a trace of the Triton Inference Server (mode triton, level TIMESTAMPS), or its "
    "numbered files",
    recognises=_recognises,
    read=reader(__name__),
    options=(
        Option(
            "rate",
            int,
            "the server's rate (--trace-config rate=N): one of N requests was recorded",
            least=1,
        ),
    ),
    capabilities=frozenset({"timeline", "requests"}),
    seen="those of 1.x and 2.x, by their documentation",
)
