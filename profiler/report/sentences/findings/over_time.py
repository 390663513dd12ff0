"""What is said of how times change in the course of a run."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.analysis.denoise.codes import OutlierCause
from profiler.analysis.findings.codes import OutlierPattern
from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import Said, said

__all__ = ["WORDS"]


_RECOMMENDATIONS: Mapping[object, Said] = {
    OutlierCause.OVERLAP: said(
        "Keep what overlaps off this device (other requests, saving of images), or off these steps."
    ),
    OutlierCause.HOST_WORK: said(
        "Look at the host work of this step in the timeline: move it out of the loop."
    ),
    OutlierCause.IDLE: said(
        "Nothing was recorded in the extra time: look for garbage collection, I/O and other "
        "threads."
    ),
    OutlierCause.COMMANDS: said(
        "It runs different commands from the other steps: look for changed shapes or guidance."
    ),
    OutlierCause.FIRST_STEP: said(
        "It is the first step of its pipeline call: look at what that call loads or allocates "
        "before it, and record again to see whether it does so each time."
    ),
}
_FIRST_STEPS = said(
    "The first step of each pipeline call does one-time work: do it before the loop."
)
_AGAIN = said(
    "Record again on a quiet machine; if the same steps stand out, look at them in the timeline."
)


def _first_call(found: Finding) -> Words:
    given = texts(found)
    ratio = number(found, "first_ns") / number(found, "later_median_ns")
    title = said(
        "The first call of {submodule} takes {ratio} times as long as a later one: {share} of "
        "the run is that excess",
        submodule=given["submodule"],
        ratio=f"{ratio:.1f}",
        share=given["excess_share"],
    )
    if "stalls_ns" in found.evidence:
        return _stalled(title, found)
    return Words(
        title=title,
        caveat=said(
            "Means and totals of this submodule include its initialization (allocations, kernel "
            "selection, compilation), so they say little about a warm process. A first call on "
            "larger inputs takes longer as well."
        ),
        recommendation=said(
            "Warm up before recording (run.warmup(), profile-sd3 run --warmup 2) with "
            "the same shapes, and keep the process alive between requests."
        ),
    )


def _stalled(title: Said, found: Finding) -> Words:
    given = texts(found)
    title = said(
        "{what}; the host launched nothing for {time}", what=title, time=given["stalls_ns"]
    )
    if "host_in" in found.evidence:
        title = said("{what}, in {function}", what=title, function=given["host_in"])
    return Words(
        title=title,
        caveat=said(
            "This happened once. It is work that may fall into any call (a garbage collection of "
            "Python, a library that is loaded or set up), not work that a call launches."
        ),
        recommendation=said(
            "Warm up with the same shapes and record again: a stall that comes back is not "
            "caused by recording. To prevent collections, call gc.collect() and gc.freeze() "
            "before the run."
        ),
    )


def _slow_start(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "The first {warmup_steps} steps are slower than the later ones by {share} of the run",
            warmup_steps=given["warmup_steps"],
            share=given["warmup_share"],
        ),
        caveat=said(
            "The mean describes neither the first steps nor the later ones. Comparing short runs "
            "compares their warm-up."
        ),
        recommendation=said(
            "Run at least as many steps before recording (--warmup), compare medians; look for "
            "compilation or allocation in the first steps."
        ),
    )


def _step_drift(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "Steps slow down: from the first to the last by {share} of a median step",
            share=given["drift_share"],
        ),
        caveat=said("A short run looks faster than a service that runs for hours."),
        recommendation=said(
            "Watch clocks, temperature and power while it runs (throttling), memory that "
            "grows, and what else the machine does; measure again when it is warm."
        ),
    )


def _outlier_steps(found: Finding) -> Words:
    cause, pattern = found.evidence.get("cause"), found.evidence["pattern"]
    of_first = pattern == OutlierPattern.EACH_FIRST_STEP
    return Words(
        title=_longer(found),
        caveat=said(
            "An outlier that other programs cause is not the pipeline's; work that overlaps it "
            "need not be its cause."
        ),
        recommendation=_FIRST_STEPS if of_first else _RECOMMENDATIONS.get(cause, _AGAIN),
    )


def _longer(found: Finding) -> Said:
    """The title: one step by its name, or how many there are."""
    given = texts(found)
    if number(found, "outliers") > 1:
        return said(
            "{steps} steps take longer than the median step, by {share} of the run",
            steps=given["outliers"],
            share=given["excess_share"],
        )
    if number(found, "pipeline_calls") > 1:
        return said(
            "Step {step} of pipeline call {pipeline} takes longer than the median step, by {share} "
            "of the run",
            step=given["step"],
            pipeline=given["pipeline"],
            share=given["excess_share"],
        )
    return said(
        "Step {step} takes longer than the median step, by {share} of the run",
        step=given["step"],
        share=given["excess_share"],
    )


WORDS: RuleWords = {
    "first_call": _first_call,
    "slow_start": _slow_start,
    "step_drift": _step_drift,
    "outlier_steps": _outlier_steps,
}
