"""What is said of who timed a call."""

from __future__ import annotations

from profiler.analysis.findings.codes import TimedBy
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    TimedBy: {TimedBy.DEVICE: said("the device")},
}
