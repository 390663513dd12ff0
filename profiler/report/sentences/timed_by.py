"""What is said of who timed a call."""

from __future__ import annotations

from profiler.analysis.findings.codes import (
    TimedBy,
)
from profiler.messages import said
from profiler.report.sentences.worded import Sentences

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    TimedBy: {TimedBy.DEVICE: said("the device")},
}
