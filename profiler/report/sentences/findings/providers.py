"""What is said of ONNX Runtime sessions on several execution providers."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import said

__all__ = ["WORDS"]


def _cpu_fallback(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "Nodes of {submodule} fall back to the CPU: with their copies they take {share} of "
            "the run",
            submodule=given["submodule"],
            share=given["cost_share"],
        ),
        caveat=said(
            "Moving one of several consecutive nodes changes nothing: the copies stay until all "
            "have moved. Arithmetic on shapes belongs on the host."
        ),
        recommendation=said(
            "Find why the provider refuses them (verbose session log): opset, type, "
            "dynamic shape; export with another opset, replace the operator, or fold "
            "it away."
        ),
    )


def _provider_switches(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "{submodule} switches providers {each} times a call: {share} of the run "
            "for copies and gaps",
            submodule=given["submodule"],
            each=f"{number(found, 'switches_per_call'):.0f}",
            share=given["cost_share"],
        ),
        caveat=said(
            "On an asynchronous provider the time of a node is that of its launch: the wait is "
            "part of the copy after it."
        ),
        recommendation=said(
            "Give the second provider larger pieces: fewer unsupported operators, a "
            "minimum size of subgraphs, or the whole submodule on one provider."
        ),
    )


WORDS: RuleWords = {
    "cpu_fallback": _cpu_fallback,
    "provider_switches": _provider_switches,
}
