"""What is said of comparisons."""

from __future__ import annotations

from profiler.analysis.comparison.codes import Resampled, Side, Verdict
from profiler.messages import said
from profiler.report.sentences.worded import Sentences

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    Verdict: {
        Verdict.SLOWER: said("slower"),
        Verdict.FASTER: said("faster"),
        Verdict.WITHIN_NOISE: said("within noise"),
        Verdict.MEASURED_ONCE: said("measured once"),
        Verdict.ONLY_IN_BASE: said("only in base"),
        Verdict.ONLY_IN_NEW: said("only in new"),
    },
    Side: {Side.BASE: said("base"), Side.NEW: said("new")},
    Resampled: {
        Resampled.RUNS: said("runs"),
        Resampled.PIPELINE_CALLS: said("pipeline calls"),
        Resampled.STEPS: said("steps"),
        Resampled.CALLS: said("calls"),
    },
}
