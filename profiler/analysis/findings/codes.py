"""Words of the evidence of findings: closed sets."""

from __future__ import annotations

from enum import StrEnum

from profiler.text import NoteCode

__all__ = [
    "AroundNodes",
    "CompiledIn",
    "MostlyBetween",
    "OutlierPattern",
    "PeakSource",
    "Recorded",
    "TimedBy",
]


class AroundNodes(NoteCode):
    """What of a call's time lies outside of its nodes."""

    PART = "part"


class Recorded(StrEnum):
    """What was recorded that slows the host most."""

    PYTHON_STACKS = "python_stacks"
    OPERATORS = "operators"


class TimedBy(StrEnum):
    """Whose clock times operators."""

    DEVICE = "device"


class CompiledIn(StrEnum):
    """Which call of a submodule compiled for longest."""

    FIRST_CALL = "first_call"
    LATER_CALL = "later_call"
    OUTSIDE_CALLS = "outside_calls"


class MostlyBetween(StrEnum):
    """What most of the time between calls is."""

    HOST_WORK = "host_work"
    NOT_RECORDED = "not_recorded"


class OutlierPattern(StrEnum):
    """Which steps stand out."""

    EACH_FIRST_STEP = "each_first_step"
    SINGLE_STEPS = "single_steps"


class PeakSource(StrEnum):
    """Where the peaks of a device are from."""

    MEASURED = "measured"
    PUBLISHED = "published"
