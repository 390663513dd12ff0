"""What is said of chains of operators that could be one, and of data that is only moved."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import Said, joined, said

__all__ = ["WORDS"]

_SLOW = 0.25  # of the roofline
_FEW_GROUPS = said(
    "Its kernel has a block of threads for each group: with few groups in a small batch, most of a "
    "large GPU does nothing. Compiled, the reduction is divided."
)


def _data_movement(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} spends {share} of its computing time on moving data",
            share=given["compute_time_share"],
            submodule=given["submodule"],
        ),
        caveat=said(
            "The cost is an upper bound, as if all of it could go. Some is needed: a "
            "transpose may be what makes the product behind it fast."
        ),
        recommendation=said(
            "Keep one type and layout from end to end (no casts around norms, "
            "channels-last for convolutions), avoid .contiguous(), concatenate less, "
            "export with fixed shapes."
        ),
    )


def _unfused_attention(found: Finding) -> Words:
    return Words(
        title=said(
            "Attention of {submodule} is not fused: {figure}",
            submodule=found.where.submodule,
            figure=_figure(found),
        ),
        caveat=said(
            "Chains are found by shapes and order, and their saving is an upper bound; where the "
            "device waits for the host anyway, the run gains less. Fused kernels support only "
            "some masks and head sizes, and round differently."
        ),
        recommendation=said(
            "Use scaled_dot_product_attention (flash or memory-efficient kernel), an attention "
            "processor that does, or ONNX Runtime's attention fusions; check that no dense bias or "
            "float32 softmax keeps the fused kernel away."
        ),
    )


def _norm_chains(found: Finding) -> Words:
    return Words(
        title=said(
            "Norms of {submodule} are chains of operators: {figure}",
            submodule=found.where.submodule,
            figure=_figure(found),
        ),
        caveat=said(
            "Chains are found by shapes and order, and their saving is an upper bound; where the "
            "device waits for the host anyway, the run gains less. A fused norm may accumulate in "
            "another type."
        ),
        recommendation=said(
            "Use the framework's norm (torch.nn.RMSNorm, LayerNormalization) instead of a "
            "handwritten one, compile the block, or use one kernel for norm, shift and scale."
        ),
    )


def _elementwise_chains(found: Finding) -> Words:
    title = said(
        "Elementwise operators of {submodule} are not fused: {figure}",
        submodule=found.where.submodule,
        figure=_figure(found),
    )
    recommendation = said(
        "torch.compile the submodule; in ONNX export activations as one operator (Gelu instead "
        "of its formula) and let the optimizer fuse them."
    )
    if "norm" in found.evidence:
        title = said(
            "{norm} of {submodule}, and elementwise operators beside it, are not fused: {figure}",
            norm=texts(found)["norm"],
            submodule=found.where.submodule,
            figure=_figure(found),
        )
        recommendation = joined(" ", [_slow_norm(found), recommendation])
    return Words(
        title=title,
        caveat=said(
            "Chains are found by shapes and order, and their saving is an upper bound; where the "
            "device waits for the host anyway, the run gains less. Compiling costs time at the "
            "first call and at each new shape."
        ),
        recommendation=recommendation,
    )


def _slow_norm(found: Finding) -> Said:
    """How long the norm takes, and why a norm of groups may be slow."""
    given = texts(found)
    taken = said("{norm} alone takes {time}.", norm=given["norm"], time=given["norm_total_ns"])
    if "norm_of_roofline_share" in given:
        taken = said(
            "{norm} alone takes {time}, at {share} of its roofline.",
            norm=given["norm"],
            time=given["norm_total_ns"],
            share=given["norm_of_roofline_share"],
        )
    return joined(" ", [taken, _FEW_GROUPS]) if _is_of_groups(found) else taken


def _is_of_groups(found: Finding) -> bool:
    """Whether it is torch's norm of groups, whose kernel has a block of threads for each of them,
    at less than a quarter of its roofline."""
    known = "norm_of_roofline_share" in found.evidence
    slow = known and number(found, "norm_of_roofline_share") < _SLOW
    return slow and found.evidence["norm"] == "aten::native_group_norm"


def _figure(found: Finding) -> str:
    """What fusing saves, or what the chains take where that is not known."""
    given = texts(found)
    if "saved_share" in given:
        return said("at most {share} of the run to save", share=given["saved_share"])
    return said("its chains take {share} of the run", share=given["busy_share"])


WORDS: RuleWords = {
    "unfused_attention": _unfused_attention,
    "norm_chains": _norm_chains,
    "elementwise_chains": _elementwise_chains,
    "data_movement": _data_movement,
}
