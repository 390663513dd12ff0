"""What is said of what the device could do."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, texts
from profiler.text import said

__all__ = ["WORDS", "is_attention"]


def _launch_bound(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{part} of the device time of {submodule} is launch-bound",
            part=given["device_time_share"],
            submodule=given["submodule"],
        ),
        caveat=said(
            "The minimum time of a command was measured on an idle machine. Recording lengthens "
            "short commands most."
        ),
        recommendation=said(
            "Launch fewer, larger commands: fuse, batch prompts and branches, generate larger "
            "images. CUDA graphs do not help here: they help where the host is the limit."
        ),
    )


_OTHER_ATTENTION = said(
    "Try another attention backend, and lengths and head sizes that are multiples of 64."
)
_OTHER_PRODUCT = said(
    "Try another kernel (GEMM tuning such as TunableOp or max-autotune), and sizes that are "
    "multiples of 64."
)


def is_attention(found: Finding) -> bool:
    """Whether a finding is of the role attention, whose kernels no tuning of products changes."""
    return found.evidence.get("role") == "attention"


def _slow_products(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{role} of {submodule} reaches {share} of its roofline on {device}",
            role=given["role"],
            submodule=given["submodule"],
            share=given["of_roofline_share"],
            device=given["device"],
        ),
        caveat=said(
            "No kernel reaches the published peak: half of it is good. Clocks fall under load, "
            "and small or odd sizes reach less with any kernel."
        ),
        recommendation=_OTHER_ATTENTION if is_attention(found) else _OTHER_PRODUCT,
    )


def _single_precision(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} computes products in float32 on {device}: {share} of the run",
            submodule=given["submodule"],
            device=given["device"],
            share=given["run_share"],
        ),
        caveat=said(
            "TF32 may be on already, which traces do not tell. T5 and some VAEs "
            "overflow in float16: take bfloat16, and compare images."
        ),
        recommendation=said(
            "Load it in bfloat16 (torch_dtype=torch.bfloat16), or allow TF32 "
            "(torch.set_float32_matmul_precision('high'))."
        ),
    )


WORDS: RuleWords = {
    "launch_bound": _launch_bound,
    "slow_products": _slow_products,
    "single_precision": _single_precision,
}
