"""What is said of operators that compute the same again."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, texts
from profiler.text import said

__all__ = ["WORDS"]


def _recomputed(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} recomputes what does not change: {part} of the run",
            submodule=given["submodule"],
            part=given["saved_share"],
        ),
        caveat=said(
            "This is inferred from names, classes and shapes, not from values: compare the "
            "outputs of two steps before hoisting."
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
            "{submodule} projects each timestep in its own step, although all are known before "
            "the loop: at most {part} of the run",
            submodule=given["submodule"],
            part=given["saved_share"],
        ),
        caveat=said(
            "The saving is an upper bound: one batch of all steps takes longer than one step. The "
            "tables take memory and are valid for one schedule, and for one prompt where pooled "
            "text is added."
        ),
        recommendation=said(
            "Compute shift, scale and gate of all steps as one batch before the loop, and index "
            "them by step."
        ),
    )


WORDS: RuleWords = {"recomputed": _recomputed, "known_ahead": _known_ahead}
