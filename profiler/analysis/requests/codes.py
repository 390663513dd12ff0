"""What of a request was measured."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["RequestPart"]


class RequestPart(StrEnum):
    """A part of a request, or of a call in it."""

    LATENCY = "latency"
    QUEUE = "queue"
    COMPUTE = "compute"
    ENCODE = "encode"
    DENOISE = "denoise"
    DECODE = "decode"
