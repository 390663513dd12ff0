"""What vLLM-Omni tells of requests with --log-stats: `*.stats.jsonl`, and its log."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, reader

_MARK = re.compile(
    rb"""["']type["']:\s*["'](?:stage_request_stats|Request_stage_stats|orchestrator_request_e2e)["']"""
    rb"|\[StageRequestStats \[request_id=|\[OmniTiming\] req=|={12} Omni Metrics Summary ={12}"
)
_JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{\]]")


def _recognises(_path: Path, head: bytes) -> bool:
    return _JSON_ARRAY.match(head) is None and _MARK.search(head) is not None


IMPORTER = Importer(
    name="vllm_omni",
    title="vLLM-Omni",
    accepts="stage times of vLLM-Omni (--log-stats: *.stats.jsonl, or its log)",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"stages"}),
    seen="those of 2025 and 2026, by their source",
)
