"""What is said of redundant work."""

from __future__ import annotations

from profiler.analysis.denoise.codes import Over, RedundancyEvidence, RedundancyKind
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    RedundancyKind: {
        RedundancyKind.CONDITIONING: said("conditioning"),
        RedundancyKind.POSITION: said("position"),
        RedundancyKind.CROSS_ATTENTION: said("cross-attention"),
        RedundancyKind.SHAPE_ARITHMETIC: said("shape arithmetic"),
        RedundancyKind.TIMESTEP: said("timestep"),
        RedundancyKind.MODULATION: said("modulation"),
    },
    Over: {
        Over.STEPS: said("steps"),
        Over.STEPS_AND_BRANCHES: said("steps, branches"),
        Over.BRANCHES: said("branches"),
        Over.AHEAD: said("known ahead"),
        Over.AHEAD_AND_BRANCHES: said("known ahead, branches"),
    },
    RedundancyEvidence: {
        RedundancyEvidence.PATH: said("path {name}"),
        RedundancyEvidence.CLASS: said("class {name}"),
        RedundancyEvidence.TOKENS: said("{tokens} tokens where to_q has {others}"),
        RedundancyEvidence.ROLE_ROPE: said("role rope"),
        RedundancyEvidence.NO_BLOCK: said("in no block"),
        RedundancyEvidence.ROLE_MODULATION: said("role modulation"),
        RedundancyEvidence.ONE_VECTOR: said("one vector a sample"),
        RedundancyEvidence.INTEGERS: said("integers"),
        RedundancyEvidence.NO_DATA: said("no data"),
        RedundancyEvidence.EQUAL_SHAPES: said("equal shapes"),
        RedundancyEvidence.NO_SHAPES: said("no shapes"),
    },
}
