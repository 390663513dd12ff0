"""Words of comparisons: closed sets."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Resampled", "Side", "Verdict"]


class Side(StrEnum):
    """Which side of a comparison."""

    BASE = "base"
    NEW = "new"

    @property
    def other(self) -> Side:
        """The side opposite."""
        return Side.NEW if self is Side.BASE else Side.BASE

    @property
    def alone(self) -> Verdict:
        """The verdict on what only this side has."""
        return Verdict.ONLY_IN_BASE if self is Side.BASE else Verdict.ONLY_IN_NEW


class Verdict(StrEnum):
    """What came of a metric on both sides, or that only one has it."""

    SLOWER = "slower"
    FASTER = "faster"
    WITHIN_NOISE = "within_noise"
    MEASURED_ONCE = "measured_once"
    ONLY_IN_BASE = "only_in_base"
    ONLY_IN_NEW = "only_in_new"


class Resampled(StrEnum):
    """What an interval is made from."""

    RUNS = "runs"
    PIPELINE_CALLS = "pipeline_calls"
    STEPS = "steps"
    CALLS = "calls"
