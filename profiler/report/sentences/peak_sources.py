"""What is said of where peaks come from."""

from __future__ import annotations

from profiler.analysis.findings.codes import PeakSource
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    PeakSource: {PeakSource.MEASURED: said("measured"), PeakSource.PUBLISHED: said("published")},
}
