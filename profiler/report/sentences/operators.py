"""What is said of operators that were split."""

from __future__ import annotations

from profiler.analysis.operators.codes import SplitPart
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    SplitPart: {
        SplitPart.WHOLE: said("whole"),
        SplitPart.COMPUTE: said("compute"),
        SplitPart.MOVEMENT: said("movement"),
        SplitPart.DEVICE: said("device"),
    }
}
