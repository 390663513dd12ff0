"""What is said of waiting devices and of the critical path."""

from __future__ import annotations

from profiler.analysis.waiting.codes import GapPosition, HostDoing, WaitCause
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    WaitCause: {
        WaitCause.LAUNCH: said("the host, in calls"),
        WaitCause.SYNC: said("the host, which had waited for it"),
        WaitCause.QUEUE: said("launched commands to begin"),
        WaitCause.HOST: said("the next call"),
        WaitCause.COPY: said("asynchronous copies"),
        WaitCause.OTHER_DEVICE: said("another device"),
        WaitCause.DATA: said("data"),
        WaitCause.UNRECORDED: said("work that was not recorded"),
    },
    GapPosition: {
        GapPosition.BEFORE_FIRST_KERNEL: said("before first kernel"),
        GapPosition.INSIDE: said("inside"),
        GapPosition.AFTER_LAST_KERNEL: said("after last kernel"),
        GapPosition.BETWEEN_CALLS: said("between calls"),
    },
    HostDoing: {
        HostDoing.FUNCTION: said("function"),
        HostDoing.OPERATOR: said("operator"),
        HostDoing.RUNTIME_CALL: said("runtime call"),
        HostDoing.RANGE: said("range"),
        HostDoing.LAUNCH: said("launch"),
        HostDoing.WAIT: said("wait"),
        HostDoing.HOST_WORK: said("host work"),
    },
}
