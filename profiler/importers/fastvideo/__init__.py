"""What FastVideo writes of its performance: records of its tests, benchmarks, stage logging."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, reader

_RECORD = re.compile(rb'"avg_generation_time_s"\s*:')
_BENCHMARK = re.compile(rb'"stage_means_ms"\s*:')
_STAGES = re.compile(rb'"stages"\s*:\s*\{[^{}]*\{[^{}]*"execution_time"\s*:')


def _recognises(_path: Path, head: bytes) -> bool:
    forms = _RECORD, _BENCHMARK, _STAGES
    return head.lstrip()[:1] == b"{" and any(form.search(head) for form in forms)


IMPORTER = Importer(
    name="fastvideo",
    title="FastVideo",
    accepts="stage times of FastVideo (perf_*.json, its benchmark's JSON, stages that it logged)",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"stages"}),
    seen="those of 2026, by their source",
)
