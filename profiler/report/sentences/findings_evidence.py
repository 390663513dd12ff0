"""What is said of the codes in the evidence of findings."""

from __future__ import annotations

from profiler.analysis.findings.codes import (
    AroundNodes,
    CompiledIn,
    MostlyBetween,
    OutlierPattern,
    PeakSource,
    Recorded,
    TimedBy,
)
from profiler.messages import said
from profiler.report.sentences.worded import Sentences

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    AroundNodes: {AroundNodes.PART: said("{name} {time_ns}")},
    Recorded: {
        Recorded.PYTHON_STACKS: said("with Python stacks, which slow the host"),
        Recorded.OPERATORS: said("with each operator, which slows the host"),
    },
    TimedBy: {TimedBy.DEVICE: said("the device")},
    CompiledIn: {
        CompiledIn.FIRST_CALL: said("the first call"),
        CompiledIn.LATER_CALL: said("a later call"),
        CompiledIn.OUTSIDE_CALLS: said("outside of calls"),
    },
    MostlyBetween: {
        MostlyBetween.HOST_WORK: said("host work"),
        MostlyBetween.NOT_RECORDED: said("not recorded"),
    },
    OutlierPattern: {
        OutlierPattern.EACH_FIRST_STEP: said("the first step of each pipeline call"),
        OutlierPattern.SINGLE_STEPS: said("single steps"),
    },
    PeakSource: {PeakSource.MEASURED: said("measured"), PeakSource.PUBLISHED: said("published")},
}
