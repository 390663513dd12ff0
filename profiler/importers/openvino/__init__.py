"""Counters of layers that OpenVINO's benchmark_app writes (`-report_type average_counters`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiler.importers.importer import Importer, reader

HEADER = b"layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)"


def _recognises(_path: Path, head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf\r\n \t").startswith(HEADER)


def _beside(path: Path) -> Sequence[Path]:
    from profiler.importers.openvino.read import report_beside

    beside = report_beside(path)
    return () if beside is None else (beside,)


IMPORTER = Importer(
    name="openvino",
    title="OpenVINO",
    accepts="layer counters of OpenVINO's benchmark_app (-report_type average_counters or "
    "detailed_counters)",
    recognises=_recognises,
    read=reader(__name__),
    beside=_beside,
    capabilities=frozenset({"averages"}),
    seen="those of an NPU, of 2025",
)
