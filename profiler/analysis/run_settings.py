"""The settings of a run as one reads them: what all its pipeline calls share, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from profiler.analysis.codes import SettingNote
from profiler.text import Note
from profiler.trace.manifest_fields import Setting

__all__ = ["run_settings"]


def run_settings(
    shared: Mapping[str, Setting], by_call: Mapping[str, Mapping[str, Setting]]
) -> dict[str, Setting | Note]:
    """`RunInfo.settings`, and of `RunInfo.pipeline_settings` a note for each key that differs: the
    range where they are numbers, else that it differs; with the number of calls that have it where
    not all do."""
    values: dict[str, list[Setting]] = {}
    for own in by_call.values():
        for key, value in own.items():
            values.setdefault(key, []).append(value)
    differing = {key: _differing(found, len(by_call)) for key, found in values.items()}
    return {**differing, **shared}


def _differing(values: Sequence[Setting], calls: int) -> Setting | Note:
    found: Setting | Note = Note.of(SettingNote.DIFFERS)
    if len({repr(value) for value in values}) == 1:
        found = values[0]
    elif len(numbers := [v for v in values if _is_number(v)]) == len(values):
        found = Note.of(SettingNote.RANGE, least=min(numbers), most=max(numbers))
    if len(values) == calls:
        return found
    stated = found if isinstance(found, Note) or _is_number(found) else str(found)
    return Note.of(SettingNote.IN_SOME_CALLS, value=stated, of=len(values), calls=calls)


def _is_number(value: Setting) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
