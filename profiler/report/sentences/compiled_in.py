"""What is said of where compilations were."""

from __future__ import annotations

from profiler.analysis.findings.codes import CompiledIn
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    CompiledIn: {
        CompiledIn.FIRST_CALL: said("the first call"),
        CompiledIn.LATER_CALL: said("a later call"),
        CompiledIn.OUTSIDE_CALLS: said("outside of calls"),
    },
}
