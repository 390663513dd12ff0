"""Traces of torch.profiler (Kineto): Chrome JSON, plain or gzip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.events import GRAPH_CAPTURE
from profiler.importers.importer import Importer, only_path

if TYPE_CHECKING:
    from profiler.importers.kineto.read import KinetoRun

__all__ = ["IMPORTER"]

_ACCEPTS = "a torch.profiler trace (Chrome JSON, .json or .json.gz)"
_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')


def _recognises(_path: Path, head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and any(key in head for key in _KEYS)


def _read(paths: Sequence[Path], _options: Mapping[str, Any]) -> KinetoRun:
    from profiler.importers.kineto.read import read_run

    return read_run(only_path(paths, _ACCEPTS))


IMPORTER = Importer(
    name="kineto",
    accepts=_ACCEPTS,
    recognises=_recognises,
    read=_read,
    capabilities=frozenset({"timeline", "launches", "shapes", "memory", GRAPH_CAPTURE}),
)
