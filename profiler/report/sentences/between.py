"""What is said of what is mostly between calls."""

from __future__ import annotations

from profiler.analysis.findings.codes import MostlyBetween
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    MostlyBetween: {
        MostlyBetween.HOST_WORK: said("host work"),
        MostlyBetween.NOT_RECORDED: said("not recorded"),
    },
}
