"""What is said of step caches."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import joined, said

__all__ = ["WORDS"]


def _step_cache(found: Finding) -> Words:
    return Words(
        title=joined("; ", _title(found)),
        caveat=said(
            "Medians and steps of this submodule mix calls that skipped blocks with full ones: "
            "the table of step caches separates them. No trace shows what skipping changes in the "
            "result."
        ),
        recommendation=_advice(found),
    )


def _title(found: Finding) -> Iterator[str]:
    given = texts(found)
    yield said(
        "{cache} skipped blocks in {skipping} of {calls} calls of {submodule}: {share} of all "
        "blocks",
        cache=given["cache"],
        skipping=given["skipping_calls"],
        calls=given["calls"],
        submodule=given["submodule"],
        share=given["skipped_blocks_share"],
    )
    if "full_median_ns" in found.evidence and "skipping_median_ns" in found.evidence:
        yield said(
            "{skipping} a call that skips, {full} a full one",
            skipping=given["skipping_median_ns"],
            full=given["full_median_ns"],
        )


def _advice(found: Finding) -> str:
    if not number(found, "skipping_calls"):
        return said(
            "Raise the cache's threshold or widen its range of steps, or switch it off: its checks "
            "cost time and saved none."
        )
    return said(
        "Compare images and times at other thresholds; compare runs only under the same cache."
    )


WORDS: RuleWords = {"step_cache": _step_cache}
