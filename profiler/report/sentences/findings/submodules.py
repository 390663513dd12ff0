"""What is said of submodules as wholes."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, texts
from profiler.text import said

__all__ = ["WORDS"]


def _encoder_dominates(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{longest} takes {share} of a run of {steps} steps",
            longest=given["submodule"],
            share=given["encoder_share"],
            steps=given["steps"],
        ),
        caveat=said(
            "What a cache saves depends on how often prompts repeat, which one run does not show. "
            "The time includes a cold first call, and its share falls with more steps. Dropping "
            "T5 (SD3 allows it) gives up long prompts and text in images."
        ),
        recommendation=said(
            "Cache the embeddings of repeated prompts; run it in 16 or 8 bits, on an "
            "accelerator, or beside the other encoders on a device of its own."
        ),
    )


def _negative_prompt(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "Encoding the negative prompt takes {share} of the run", share=given["wall_share"]
        ),
        caveat=said(
            "Cached embeddings are valid only for the same negative prompt, sequence length, "
            "encoders and LoRAs."
        ),
        recommendation=said(
            "The negative prompt seldom changes: cache its embeddings (negative_prompt_embeds), "
            "or encode both prompts as one batch."
        ),
    )


def _separate_guidance(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} is called twice a step for guidance, and {bound} of its device time is "
            "not compute-bound",
            submodule=given["submodule"],
            bound=given["not_compute_bound_share"],
        ),
        caveat=said(
            "A batch of two needs twice the activation memory, and prompts of "
            "different lengths need padding and a mask, which change results slightly."
        ),
        recommendation=said("Batch both branches in one call, or run them on two devices at once."),
    )


WORDS: RuleWords = {
    "encoder_dominates": _encoder_dominates,
    "negative_prompt": _negative_prompt,
    "separate_guidance": _separate_guidance,
}
