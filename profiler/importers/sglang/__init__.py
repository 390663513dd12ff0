"""What SGLang's diffusion runtime writes of requests: `--perf-dump-path` and `performance.log`."""

from __future__ import annotations

import re
from pathlib import Path

from profiler.importers.importer import Importer, reader

DUMP = re.compile(rb'"denoise_steps_ms"\s*:')
RECORD = re.compile(rb'"tag"\s*:\s*"pipeline_stage_metrics"')
_TOTAL = re.compile(rb'"total_duration_ms"\s*:')


def _recognises(_path: Path, head: bytes) -> bool:
    if head.lstrip()[:1] != b"{" or not _TOTAL.search(head):
        return False
    return bool(DUMP.search(head) or RECORD.search(head))


IMPORTER = Importer(
    name="sglang",
    title="SGLang diffusion",
    accepts="stage times of SGLang's diffusion runtime (--perf-dump-path, performance.log)",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"stages"}),
    seen="those of 2026, by their source",
)
