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
    """Why nothing runs on a device."""

    LAUNCH = "launch"  # the host launches too late, or has no more to launch
    SYNC = "sync"  # so, because it had waited for a device
    QUEUE = "queue"  # the next command was launched in time, and has not begun
    OTHER_DEVICE = "other_device"
    HOST = "host"  # between calls
    DATA = "data"
    UNRECORDED = "unrecorded"
