"""Words of the tables that say who waits for whom: closed sets."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["PathPart", "WaitCause"]


class PathPart(StrEnum):
    """What a piece of the critical path is."""

    CALL = "call"
    COMPUTE = "compute"
    TRANSFER = "transfer"
    QUEUED = "queued"
    HOST_WORK = "host_work"


class WaitCause(StrEnum):
    """What a device that computes nothing waits for."""

    LAUNCH = "launch"
    QUEUE = "queue"
    HOST = "host"
    OTHER_DEVICE = "other_device"
    DATA = "data"
