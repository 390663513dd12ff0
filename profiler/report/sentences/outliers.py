"""What is said of outliers of steps."""

from __future__ import annotations

from profiler.analysis.denoise.codes import OutlierCause
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["NULLS", "SENTENCES"]

NULLS = {OutlierCause: said("no other track explains it")}

SENTENCES: Sentences = {
    OutlierCause: {
        OutlierCause.WARM_UP: said("warm-up"),
        OutlierCause.FIRST_STEP: said("first step"),
        OutlierCause.COMMANDS: said("commands"),
        OutlierCause.OVERLAP: said("overlap"),
        OutlierCause.HOST_WORK: said("host work"),
        OutlierCause.IDLE: said("idle"),
        OutlierCause.CALLS: said("calls"),
    },
}
