"""What is said of operators that compute the same again."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.messages import said
from profiler.report.sentences.findings.words import RuleWords, Words, texts

__all__ = ["WORDS"]


def _recomputed(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} computes the same again: {part} of the run",
            submodule=given["submodule"],
            part=given["saved_share"],
        ),
        caveat=said(
            "Rules about names, classes and shapes decide, not values: hold the outputs of two "
            "steps against each other before hoisting them."
        ),
        recommendation=said(
            "Compute it once before the loop and pass it in (projected text, rotary tables, keys "
            "and values of the text); export with fixed shapes, so that arithmetic on shapes folds "
            "away."
        ),
    )


def _known_ahead(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} projects each timestep in its step, all are known before: at most {part} "
            "of the run",
            submodule=given["submodule"],
            part=given["saved_share"],
        ),
        caveat=said(
            "An upper bound: one batch of all steps takes longer than one step. The tables take "
            "memory, and hold for one schedule, and pooled text where it is added."
        ),
        recommendation=said(
            "Compute shift, scale and gate of all steps as one batch before the loop, and index "
            "them by step."
        ),
    )


WORDS: RuleWords = {"recomputed": _recomputed, "known_ahead": _known_ahead}
