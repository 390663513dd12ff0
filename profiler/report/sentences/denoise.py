"""What is said of denoising steps: why some stand out, guidance, redundant work."""

from __future__ import annotations

from profiler.analysis.denoise.codes import (
    GuidanceEvidence,
    GuidanceKind,
    OutlierCause,
    Over,
    PartLevel,
    RedundancyEvidence,
    RedundancyKind,
)
from profiler.messages import said
from profiler.report.sentences.worded import Sentences

__all__ = ["NULLS", "SENTENCES"]

NULLS = {OutlierCause: said("no other track explains it")}
SENTENCES: Sentences = {
    PartLevel: {
        PartLevel.STEP: said("step"),
        PartLevel.SUBMODULE: said("submodule"),
        PartLevel.OPERATOR: said("operator"),
        PartLevel.BLOCK_AND_ROLE: said("block and role"),
        PartLevel.ROLE: said("role"),
    },
    OutlierCause: {
        OutlierCause.WARM_UP: said("warm-up"),
        OutlierCause.FIRST_STEP: said("first step"),
        OutlierCause.COMMANDS: said("commands"),
        OutlierCause.OVERLAP: said("overlap"),
        OutlierCause.HOST_WORK: said("host work"),
        OutlierCause.IDLE: said("idle"),
        OutlierCause.CALLS: said("calls"),
    },
    GuidanceKind: {
        GuidanceKind.CLASSIFIER_FREE: said("classifier-free guidance"),
        GuidanceKind.NEGATIVE_PROMPT: said("negative prompt"),
        GuidanceKind.SKIP_LAYERS: said("skip-layer guidance"),
    },
    GuidanceEvidence: {
        GuidanceEvidence.OWN_CALLS: said("calls of branch {branch}"),
        GuidanceEvidence.MEASURED_CALLS: said("batched against {calls} cond calls"),
        GuidanceEvidence.HALVED_OPERATORS: said(
            "half the batch of each operator: {left_share} ({low_share} to {high_share}) of "
            "batched calls stays"
        ),
        GuidanceEvidence.REPLAYED_LAUNCHES: said(
            "half the batch takes {left_share} ({low_share} to {high_share}) of the device's time "
            "and as many launches, by a replay of which {gain_low_ns} to {gain_high_ns} are gained"
        ),
        GuidanceEvidence.GUESSED_HALF: said(
            "half of batched calls, none of which was traced with operators"
        ),
    },
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
