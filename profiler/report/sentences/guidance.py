"""What is said of guidance."""

from __future__ import annotations

from profiler.analysis.denoise.codes import GuidanceEvidence, GuidanceKind
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
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
}
