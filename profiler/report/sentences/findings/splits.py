"""What is said of operators that were split over tracks or devices."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, texts
from profiler.text import said

__all__ = ["WORDS"]


def _uneven(found: Finding, over: str, caveat: str, recommendation: str) -> Words:
    given = texts(found)
    title = said(
        "Operators of {submodule} are split unevenly over {over}: {share} of the run",
        submodule=given["submodule"],
        over=over,
        share=given["lost_share"],
    )
    return Words(title, caveat, recommendation)


def _track_imbalance(found: Finding) -> Words:
    return _uneven(
        found,
        said("tracks"),
        caveat=said(
            "The part of the busiest track beyond the mean is what an even split saves, if the "
            "work can be divided evenly at all; commands that wait for data look busy."
        ),
        recommendation=said(
            "Divide by a size that is a multiple of the number of tracks (heads, channels, "
            "tokens), give the odd rest to no single one, or run such operators on fewer tracks."
        ),
    )


def _device_imbalance(found: Finding) -> Words:
    return _uneven(
        found,
        said("devices"),
        caveat=said(
            "Devices of different speed, or one that also serves others, look the same; transfers "
            "between them are not counted here."
        ),
        recommendation=said(
            "Divide heads or channels evenly over the devices, give the slower one less, or move "
            "whole submodules instead of parts of operators."
        ),
    )


WORDS: RuleWords = {
    "track_imbalance": _track_imbalance,
    "device_imbalance": _device_imbalance,
}
