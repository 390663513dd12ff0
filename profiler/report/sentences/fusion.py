"""What is said of fusions."""

from __future__ import annotations

from profiler.analysis.roofline.codes import FusionKind
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    FusionKind: {
        FusionKind.ATTENTION: said("attention"),
        FusionKind.NORM: said("norm"),
        FusionKind.MODULATION: said("modulation"),
        FusionKind.NORM_AND_MODULATION: said("norm and modulation"),
        FusionKind.ROPE: said("rope"),
        FusionKind.SOFTMAX: said("softmax"),
        FusionKind.ELEMENTWISE: said("elementwise"),
    },
}
