"""Chrome JSON of Intel's unitrace (`--chrome-kernel-logging`, `--chrome-call-logging`)."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, reader

_ACCEPTS = "a trace of Intel's unitrace (JSON of --chrome-kernel-logging and --chrome-call-logging)"
_PROCESS = re.compile(rb'"name"\s*:\s*"(?:HOST|DEVICE)<')


def _recognises(_path: Path, head: bytes) -> bool:
    return b'"traceEvents"' in head and _PROCESS.search(head) is not None


IMPORTER = Importer(
    name="unitrace",
    title="unitrace",
    accepts=_ACCEPTS,
    recognises=_recognises,
    read=reader(__name__, _ACCEPTS),
    capabilities=frozenset({"timeline", "launches", "bytes"}),
    seen="by its documentation alone",
)
