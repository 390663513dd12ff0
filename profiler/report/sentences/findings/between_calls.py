"""What is said of the time between calls."""

from __future__ import annotations

from profiler.analysis.findings.codes import MostlyBetween
from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, texts
from profiler.text import said

__all__ = ["WORDS"]


_KEEP_THERE = said(
    "Keep latents, guidance and scheduler on the device, and sigmas and timesteps there from the "
    "start; drop callbacks and progress bars; or compile the whole step."
)
_FIND_OUT = said(
    "Find out what runs there, for most of it was not recorded: callbacks, progress bars, garbage "
    "collection, locks, other threads."
)


def _host_between_steps(found: Finding) -> Words:
    given = texts(found)
    recorded = found.evidence["mostly"] == MostlyBetween.HOST_WORK
    return Words(
        title=said("{share} of the steps' time lies between calls", share=given["between_share"]),
        caveat=said(
            "What is not recorded may be callbacks, progress bars or other threads. Part of "
            "the host work may be arithmetic that has to run somewhere."
        ),
        recommendation=_KEEP_THERE if recorded else _FIND_OUT,
    )


def _scheduler_sync(found: Finding) -> Words:
    given = texts(found)
    return Words(
        title=said(
            "The host waits for {device} between the calls of most steps", device=given["device"]
        ),
        caveat=said(
            "While the host waits it launches nothing, so the device is idle after every "
            "wait. The wait itself is the device's work, not lost time."
        ),
        recommendation=said(
            "Find what synchronizes (timesteps compared on the device, .item(), .cpu(), "
            "nonzero() in the scheduler or a callback) and keep those values on the host."
        ),
    )


WORDS: RuleWords = {
    "host_between_steps": _host_between_steps,
    "scheduler_sync": _scheduler_sync,
}
