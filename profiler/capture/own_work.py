"""What our own work is called in a run: names of spans of kind `profiler`."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["OwnWork"]


class OwnWork(StrEnum):
    """What our own work is, as spans of kind `profiler` name it."""

    START_SESSION = "start_session"  # a profiler of a runtime
    STOP_SESSION = "stop_session"  # and have it write what it recorded
    RENEW_SESSION = "renew_session"
    CONVERT = "convert"  # what a profiler recorded, into commands
