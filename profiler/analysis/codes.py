"""Words of the accounting and of the summary of steps: closed sets."""

from __future__ import annotations

from enum import StrEnum

from profiler.analysis.notes import NoteCode

__all__ = ["NoAccount", "OutlierRule", "StepSource"]


class StepSource(StrEnum):
    """What steps were measured by."""

    STEP_SPANS = "step_spans"
    CALLS = "calls"


class OutlierRule(NoteCode):
    """When a step stands out."""

    MEDIAN_DEVIATION = "median_deviation"


class NoAccount(NoteCode):
    """Why the whole time cannot be accounted for."""

    NO_SPAN = "no_span"
    NO_SPANS = "no_spans"
    HOST_FILE_MISSING = "host_file_missing"
