"""The gains of an analysis' run, made once and only when somebody asks."""

from __future__ import annotations

from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.replay.gains import Gains, gains_of

__all__ = ["replay_gains"]


@shared
def replay_gains(of: Inputs) -> Gains | None:
    """What replays of the whole run say; None where they say nothing."""
    return gains_of(of.run)
