"""What is said of memory that nobody recorded."""

from __future__ import annotations

from profiler.analysis.memory.codes import NoAllocations
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    NoAllocations: {
        NoAllocations.NOT_ASKED_FOR: said(
            "what torch allocates was not recorded, since nobody asked for it (5 % more time): "
            "`--memory` or memory=True records it"
        ),
        NoAllocations.NOT_IN_TRACE: said(
            "what torch allocates was not recorded: profile_memory=True records it"
        ),
    }
}
