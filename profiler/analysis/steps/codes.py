"""Words of the summary of steps: closed sets."""

from __future__ import annotations

from enum import StrEnum

from profiler.text import NoteCode

__all__ = ["OutlierRule", "StepSource"]


class StepSource(StrEnum):
    """What steps were measured by."""

    STEP_SPANS = "step_spans"
    CALLS = "calls"


class OutlierRule(NoteCode):
    """When a step stands out."""

    MEDIAN_DEVIATION = "median_deviation"
