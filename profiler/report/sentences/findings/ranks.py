"""What is said of ranks that keep others waiting."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.messages import said
from profiler.report.sentences.findings.words import RuleWords, Words, texts

__all__ = ["WORDS"]


def _straggler(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "Rank {rank} is the last to begin {last} of {compared} collectives, {late} in all: "
            "the others wait for it",
            rank=given["rank"],
            last=given["last"],
            compared=given["compared"],
            late=given["late_ns"],
        ),
        caveat=said(
            "Without it the rank before it is the last: the gain is at most what it is late by. "
            "Ranks that were not recorded may be later still."
        ),
        recommendation=said(
            "Look at what this rank does more than others (imbalance between ranks), and at its "
            "clocks, its neighbours on the machine and its input pipeline; give each rank as much "
            "work."
        ),
    )


WORDS: RuleWords = {"straggler": _straggler}
