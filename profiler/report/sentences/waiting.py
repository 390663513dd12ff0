"""What is said of waiting devices and of the critical path."""

from __future__ import annotations

from profiler.analysis.waiting.codes import (
    CopyDirection,
    GapPosition,
    HostDoing,
    PathPart,
    WaitCause,
)
from profiler.messages import said
from profiler.report.sentences.worded import Sentences

__all__ = ["NULLS", "SENTENCES"]

NULLS = {PathPart: said("other")}  # what the longest parts leave
SENTENCES: Sentences = {
    PathPart: {
        PathPart.CALL: said("call"),
        PathPart.LAUNCHES: said("the host, launching"),
        PathPart.COMPUTE: said("compute"),
        PathPart.TRANSFER: said("transfer"),
        PathPart.QUEUED: said("queued"),
        PathPart.HOST_WORK: said("host work"),
    },
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
    CopyDirection: {
        CopyDirection.HOST_TO_DEVICE: said("host to device"),
        CopyDirection.DEVICE_TO_HOST: said("device to host"),
        CopyDirection.HOST_AND_DEVICE: said("between host and device"),
        CopyDirection.DEVICE_TO_DEVICE: said("device to device"),
        CopyDirection.HOST_TO_HOST: said("host to host"),
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
