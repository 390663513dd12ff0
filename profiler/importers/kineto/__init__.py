"""Traces of torch.profiler (Kineto): Chrome JSON, plain or packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.events import GRAPH_CAPTURE
from profiler.importers.importer import Importer, Option, only_path

if TYPE_CHECKING:
    from profiler.importers.kineto.read import KinetoRun

__all__ = ["IMPORTER"]

_ACCEPTS = "a torch.profiler trace (Chrome JSON: .json, .json.gz, or one in a zip or tar)"
_LIMIT = 1 << 30  # bytes of an archive in which its trace is looked for


def _recognises(path: Path, head: bytes) -> bool:
    from profiler.kineto.archives import KEYS, holds_trace, packed_as

    if packed_as(head) in ("zip", "tar"):
        with path.open("rb") as file:
            return holds_trace(file, _LIMIT)
    return head.lstrip()[:1] == b"{" and any(key in head for key in KEYS)


def _read(paths: Sequence[Path], options: Mapping[str, Any]) -> KinetoRun:
    from profiler.importers.kineto.read import read_run

    capture = options.get("capture")
    return read_run(only_path(paths, _ACCEPTS), (capture,) if capture else ())


IMPORTER = Importer(
    name="kineto",
    accepts=_ACCEPTS,
    recognises=_recognises,
    read=_read,
    options=(
        Option("capture", Path, "trace, or folder of traces, of the capture of replayed graphs"),
    ),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "memory", GRAPH_CAPTURE}),
    seen="torch 1.8 to 2.13, on CUDA, ROCm and the CPU",
)
