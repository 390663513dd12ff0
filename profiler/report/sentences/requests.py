"""What parts of requests are called."""

from __future__ import annotations

from profiler.analysis.requests.codes import RequestPart
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    RequestPart: {
        RequestPart.LATENCY: said("latency"),
        RequestPart.QUEUE: said("queue"),
        RequestPart.COMPUTE: said("compute"),
        RequestPart.ENCODE: said("encode"),
        RequestPart.DENOISE: said("denoise"),
        RequestPart.DECODE: said("decode"),
    },
}
