"""Words of the tables that say who waits for whom: closed sets."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CopyDirection", "GapPosition", "HostDoing", "PathPart", "WaitCause"]


class PathPart(StrEnum):
    """What a piece of the critical path is."""

    CALL = "call"
    LAUNCHES = "launches"  # of a call whose device works behind the host
    COMPUTE = "compute"
    TRANSFER = "transfer"
    QUEUED = "queued"
    HOST_WORK = "host_work"


class WaitCause(StrEnum):
    """Why nothing runs on a device."""

    LAUNCH = "launch"  # the host launches too late, or has no more to launch
    SYNC = "sync"  # so, because it had waited for a device
    QUEUE = "queue"  # the next command was launched in time, and has not begun
    COPY = "copy_wait"  # that it had started itself, and goes on beside it
    OTHER_DEVICE = "other_device"
    HOST = "host"  # between calls
    DATA = "data"
    UNRECORDED = "unrecorded"


class GapPosition(StrEnum):
    """Where a gap of a device lies, seen from its calls."""

    BEFORE_FIRST_KERNEL = "before_first_kernel"  # of the call: copies may have run
    INSIDE = "inside"
    AFTER_LAST_KERNEL = "after_last_kernel"  # of the call, on this device
    BETWEEN_CALLS = "between_calls"


class HostDoing(StrEnum):
    """What the host was in: as `ActivityKind` has it, or by its commands."""

    FUNCTION = "function"
    OPERATOR = "operator"
    RUNTIME_CALL = "runtime_call"
    RANGE = "range"
    LAUNCH = "launch"
    WAIT = "wait"
    HOST_WORK = "host_work"


class CopyDirection(StrEnum):
    """From where to where something is copied."""

    HOST_TO_DEVICE = "host_to_device"
    DEVICE_TO_HOST = "device_to_host"
    HOST_AND_DEVICE = "host_and_device"  # the producer does not tell which of these
    DEVICE_TO_DEVICE = "device_to_device"  # or on one device
    HOST_TO_HOST = "host_to_host"
