"""The settings of a run as one reads them: what all its pipeline calls share, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["run_settings"]


def run_settings(
    shared: Mapping[str, Any], by_call: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """`RunInfo.settings`, and of `RunInfo.pipeline_settings` a text for each key: "2 to 9" where
    numbers differ, "differs" where others do; with the calls that have it where not all do."""
    values: dict[str, list[Any]] = {}
    for own in by_call.values():
        for key, value in own.items():
            values.setdefault(key, []).append(value)
    differing = {key: _text(found, len(by_call)) for key, found in values.items()}
    return {**differing, **shared}


def _text(values: Sequence[Any], calls: int) -> str:
    if len({repr(value) for value in values}) == 1:
        text = str(values[0])
    elif all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        text = f"{min(values)} to {max(values)}"
    else:
        text = "differs"
    return text if len(values) == calls else f"{text} in {len(values)} of {calls} pipeline calls"
