"""The settings of a run as one reads them: what all its pipeline calls share, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from profiler.trace.manifest_fields import Setting

__all__ = ["run_settings"]


def run_settings(
    shared: Mapping[str, Setting], by_call: Mapping[str, Mapping[str, Setting]]
) -> dict[str, Setting]:
    """`RunInfo.settings`, and of `RunInfo.pipeline_settings` a text for each key: "2 to 9" where
    numbers differ, "differs" where others do; with the calls that have it where not all do."""
    values: dict[str, list[Setting]] = {}
    for own in by_call.values():
        for key, value in own.items():
            values.setdefault(key, []).append(value)
    differing = {key: _text(found, len(by_call)) for key, found in values.items()}
    return {**differing, **shared}


def _text(values: Sequence[Setting], calls: int) -> str:
    if len({repr(value) for value in values}) == 1:
        text = str(values[0])
    elif len(numbers := [v for v in values if _is_number(v)]) == len(values):
        text = f"{min(numbers)} to {max(numbers)}"
    else:
        text = "differs"
    return text if len(values) == calls else f"{text} in {len(values)} of {calls} pipeline calls"


def _is_number(value: Setting) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
