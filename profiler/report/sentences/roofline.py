"""What is said of rooflines and of chains of operators that could be one."""

from __future__ import annotations

from profiler.analysis.roofline.codes import Bound
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    Bound: {
        Bound.COMPUTE: said("compute-bound"),
        Bound.MEMORY: said("memory-bound"),
        Bound.LAUNCH: said("launch-bound"),
        Bound.HOST: said("host-bound"),
    },
}
