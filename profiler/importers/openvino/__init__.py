"""Counters of layers that OpenVINO's benchmark_app writes (`-report_type average_counters`), and
metrics of OpenVINO GenAI's pipelines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from profiler.importers.importer import Importer, reader

_METRICS = re.compile(rb'"generate_duration"\s*:')
_STEPS = re.compile(rb'"(?:iteration|unet_inference|transformer_inference)_durations"\s*:')
HEADER = b"layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)"


def _recognises(_path: Path, head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf\r\n \t").startswith(HEADER) or is_metrics(head)


def is_metrics(head: bytes) -> bool:
    """Whether it starts as the JSON of a pipeline's metrics."""
    known = _METRICS.search(head) and _STEPS.search(head)
    return head.lstrip()[:1] == b"{" and bool(known)


def _beside(path: Path) -> Sequence[Path]:
    from profiler.importers.openvino.read import report_beside

    beside = report_beside(path)
    return () if beside is None else (beside,)


IMPORTER = Importer(
    name="openvino",
    title="OpenVINO",
    accepts="layers of OpenVINO's benchmark_app (-report_type average_counters or "
    "detailed_counters), GenAI metrics",
    recognises=_recognises,
    read=reader(__name__),
    beside=_beside,
    capabilities=frozenset({"averages", "stages"}),
    seen="those of an NPU, of 2025; GenAI metrics by the names of its object of 2026.4",
)
