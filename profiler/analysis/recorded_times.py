"""Whether a run's commands have times of their own, and not averages laid end to end."""

from __future__ import annotations

from profiler.trace.manifest import RunInfo

__all__ = ["times_recorded"]

_TIMELINE = "timeline"  # capability: when each command ran


def times_recorded(info: RunInfo) -> bool:
    """Whether anybody recorded when commands ran: else nobody knows when a device was idle, and
    what waited for what. Producers that state no capabilities record it."""
    return not info.capabilities or _TIMELINE in info.capabilities
