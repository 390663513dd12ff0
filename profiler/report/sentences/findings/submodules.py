"""What is said of submodules as wholes."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.messages import said
from profiler.report.sentences.findings.words import RuleWords, Words, texts

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
            "Kept embeddings save what prompts that come again take, which one run does not "
            "tell. A cold first call is part of it, and with more steps its share falls by "
            "itself. Dropping T5 (SD3 allows it) loses long prompts and text in images."
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
            "Kept embeddings hold for the same negative prompt, sequence length, encoders and "
            "their LoRAs alone."
        ),
        recommendation=said(
            "The negative prompt seldom changes: keep its embeddings (negative_prompt_embeds). "
            "Else encode both prompts as one batch."
        ),
    )


def _separate_guidance(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} is called twice a step for guidance, and {bound} of its "
            "device time is not bound by computation",
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
