"""What is said of what nodes do between others."""

from __future__ import annotations

from profiler.analysis.findings.codes import (
    AroundNodes,
)
from profiler.messages import said
from profiler.report.sentences.worded import Sentences

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    AroundNodes: {AroundNodes.PART: said("{name} {time_ns}")},
}
