"""What is said of what nodes do between others."""

from __future__ import annotations

from profiler.analysis.findings.codes import AroundNodes
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    AroundNodes: {AroundNodes.PART: said("{name} {time_ns}")},
}
