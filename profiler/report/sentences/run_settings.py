"""What is said of settings that differ between the pipeline calls of a run."""

from __future__ import annotations

from profiler.analysis.codes import SettingNote
from profiler.report.sentences.worded import Sentences
from profiler.text import said

__all__ = ["SENTENCES"]

SENTENCES: Sentences = {
    SettingNote: {
        SettingNote.RANGE: said("{least} to {most}"),
        SettingNote.DIFFERS: said("differs"),
        SettingNote.IN_SOME_CALLS: said("{value} in {of} of {calls} pipeline calls"),
    }
}
