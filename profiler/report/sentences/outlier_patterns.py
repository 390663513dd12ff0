"""What is said of patterns of outliers."""

from __future__ import annotations

from profiler.analysis.findings.codes import OutlierPattern
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    OutlierPattern: {
        OutlierPattern.EACH_FIRST_STEP: said("the first step of each pipeline call"),
        OutlierPattern.SINGLE_STEPS: said("single steps"),
    },
}
