"""What is said of ranks that keep others waiting."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, texts
from profiler.text import said

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
            "Were it on time, the second latest rank would be the last: the gain is at most the "
            "time by which it is late. Ranks that were not recorded may be later still."
        ),
        recommendation=said(
            "Find what this rank does beyond the others (imbalance between ranks). Check its "
            "clocks, its neighbours on the machine and its input pipeline. Give all ranks the "
            "same amount of work."
        ),
    )


WORDS: RuleWords = {"straggler": _straggler}
