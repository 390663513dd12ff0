"""What is said of critical paths."""

from __future__ import annotations

from profiler.analysis.waiting.codes import PathPart
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["NULLS", "SENTENCES"]

NULLS = {PathPart: said("other")}  # what the longest parts leave

SENTENCES: Sentences = {
    PathPart: {
        PathPart.CALL: said("call"),
        PathPart.LAUNCHES: said("the host, launching"),
        PathPart.COMPUTE: said("compute"),
        PathPart.TRANSFER: said("transfer"),
        PathPart.QUEUED: said("queued"),
        PathPart.HOST_WORK: said("host work"),
    },
}
