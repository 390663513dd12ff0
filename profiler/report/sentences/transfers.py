"""What is said of copies."""

from __future__ import annotations

from profiler.analysis.waiting.codes import CopyDirection
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    CopyDirection: {
        CopyDirection.HOST_TO_DEVICE: said("host to device"),
        CopyDirection.DEVICE_TO_HOST: said("device to host"),
        CopyDirection.HOST_AND_DEVICE: said("between host and device"),
        CopyDirection.DEVICE_TO_DEVICE: said("device to device"),
        CopyDirection.HOST_TO_HOST: said("host to host"),
    },
}
