"""Measurements of Qualcomm's AI Hub (`perf.yaml` of its models)."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, Option, reader

_KEYS = tuple(
    re.compile(rb"^\s*%s:\s*$" % key, re.MULTILINE)
    for key in (rb"precisions", rb"components", rb"performance_metrics")
)


def _recognises(_path: Path, head: bytes) -> bool:
    return head.lstrip()[:1] not in (b"{", b"[") and all(key.search(head) for key in _KEYS)


IMPORTER = Importer(
    name="aihub",
    title="Qualcomm AI Hub",
    accepts="measurements of Qualcomm's AI Hub (a model's perf.yaml)",
    recognises=_recognises,
    read=reader(__name__),
    options=(
        Option("device", str, "the device whose measurements to take"),
        Option("runtime", str, "the runtime whose measurements to take"),
        Option("precision", str, "the precision whose measurements to take"),
        Option("steps", int, "denoising steps of the pipeline that the components make", least=1),
        Option("guidance", str, "the guidance scale: above 1 a step is two passes, with steps"),
    ),
    capabilities=frozenset({"averages"}),
    seen="those of qai-hub-models of 2025 and 2026",
)
