"""What is said of the codes in the evidence of findings."""

from __future__ import annotations

from profiler.analysis.findings.codes import Recorded
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    Recorded: {
        Recorded.PYTHON_STACKS: said("with Python stacks, which slow the host"),
        Recorded.OPERATORS: said("with each operator, which slows the host"),
    },
}
