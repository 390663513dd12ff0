"""Words that several questions share: closed sets."""

from __future__ import annotations

from profiler.text import NoteCode

__all__ = ["SettingNote"]


class SettingNote(NoteCode):
    """How a setting differs between the pipeline calls of a run."""

    RANGE = "range"
    DIFFERS = "differs"
    IN_SOME_CALLS = "in_some_calls"
