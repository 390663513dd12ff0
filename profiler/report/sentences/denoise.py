"""What is said of denoising steps: why some stand out, guidance, redundant work."""

from __future__ import annotations

from profiler.analysis.denoise.codes import PartLevel
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    PartLevel: {
        PartLevel.STEP: said("step"),
        PartLevel.SUBMODULE: said("submodule"),
        PartLevel.OPERATOR: said("operator"),
        PartLevel.BLOCK_AND_ROLE: said("block and role"),
        PartLevel.ROLE: said("role"),
    },
}
